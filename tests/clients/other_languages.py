"""Builds the examples of languages that have no client of their own, with the compilers of this machine.

Each language has a directory in the cache with its packages and one build of the example, which is repeated only when
the contract, the example or this file has changed. Only the first build needs package registries.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BUILD_SECONDS = 1500


@dataclass(frozen=True)
class Language:
    """How the example of a language is built, and the command that runs it."""

    name: str
    tools: tuple[str, ...]
    """Programs that have to be on the path."""
    build: Callable[[Path, Path], None]
    """From the directory of the example and that of the language's packages."""
    command: Callable[[Path, Path], list[str]]


def program(language: Language) -> list[str]:
    """The command that runs the example, which is built now if it is not."""
    missing = [tool for tool in language.tools if shutil.which(tool) is None]
    if missing:
        raise RuntimeError(f"to test {language.name}, install {' and '.join(missing)}")
    directory = _cache() / "other-languages" / language.name
    packages, example = directory / "packages", directory / "tree/examples" / language.name
    with _locked(directory):
        digest, stamp = _digest(language), directory / "built"
        if not stamp.is_file() or stamp.read_text() != digest:
            stamp.unlink(missing_ok=True)
            _lay_out(language, directory / "tree")
            packages.mkdir(exist_ok=True)
            language.build(example, packages)
            stamp.write_text(digest)
    return language.command(example, packages)


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("WORKSPACED_CACHE") or Path(home) / "workspaced")


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sources(language: Language) -> list[Path]:
    """What the build is made of, below the root of the repository."""
    places = [ROOT / "protos/workspaced", ROOT / "examples" / language.name]
    skipped = {"target", "Cargo.lock"}
    found = [file.relative_to(ROOT) for place in places for file in place.rglob("*") if file.is_file()]
    return sorted(file for file in found if not skipped & set(file.parts))


def _digest(language: Language) -> str:
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for file in _sources(language):
        content = (ROOT / file).read_bytes()
        digest.update(f"{file} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _lay_out(language: Language, tree: Path) -> None:
    """The same files as in the repository; what a build left there stays, and what has not changed is not touched."""
    wanted = _sources(language)
    for place in (tree / "protos", tree / "examples" / language.name / "src"):
        for file in [file for file in place.rglob("*") if file.is_file()]:
            if file.relative_to(tree) not in wanted:
                file.unlink()
    for file in wanted:
        content = (ROOT / file).read_bytes()
        copy = tree / file
        if not copy.is_file() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)


def _run(*command: str, cwd: Path, **environment: str) -> None:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=_BUILD_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-6000:]}")


def _maven(example: Path, packages: Path, *arguments: str) -> None:
    """Without a network when all packages are there."""
    command = ["mvn", "--batch-mode", "--quiet", f"-Dmaven.repo.local={packages}", *arguments]
    complete = packages / ".complete"
    if complete.is_file():
        try:
            _run(*command, "--offline", cwd=example)
            return
        except RuntimeError:
            complete.unlink()  # perhaps the example asks for others now
    _run(*command, cwd=example)
    complete.touch()


def _build_java(example: Path, packages: Path) -> None:
    # Old generated code would be compiled with the new.
    shutil.rmtree(example / "target", ignore_errors=True)
    classpath = "dependency:build-classpath"
    _maven(example, packages, "compile", classpath, "-Dmdep.outputFile=target/classpath", "-Dmdep.includeScope=runtime")


def _java_command(example: Path, packages: Path) -> list[str]:
    classpath = (example / "target/classpath").read_text().strip()
    return ["java", "-cp", f"{example / 'target/classes'}:{classpath}", "example.RunCommand"]


# The crates of the plugins that examples/rust/buf.gen.yaml names.
_RUST_PLUGINS = ("protoc-gen-prost@0.5.0", "protoc-gen-tonic@0.5.0")


def _build_rust(example: Path, packages: Path) -> None:
    plugins = packages / "plugins"
    # Unoptimized: they run once, and compile in a fraction of the time.
    if not all((plugins / "bin" / plugin.split("@")[0]).exists() for plugin in _RUST_PLUGINS):
        _cargo(example, packages, "install", "--debug", "--locked", "--root", str(plugins), *_RUST_PLUGINS)
    shutil.rmtree(example / "target/generated", ignore_errors=True)
    _run("buf", "generate", cwd=example, PATH=f"{plugins / 'bin'}:{os.environ['PATH']}")
    try:
        _cargo(example, packages, "build", "--offline")
    except RuntimeError:
        _cargo(example, packages, "build")


def _cargo(example: Path, packages: Path, *arguments: str) -> None:
    # The programs of cargo are where they are; what it downloads is here.
    home = {"CARGO_HOME": str(packages / "cargo"), "CARGO_TARGET_DIR": str(packages / "target")}
    # What is for debuggers is most of the work and of the space.
    home.update(CARGO_PROFILE_DEV_DEBUG="0", CARGO_INCREMENTAL="0")
    rustup = os.environ.get("RUSTUP_HOME") or str(Path.home() / ".rustup")
    configuration = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo") / "config.toml"
    (packages / "cargo").mkdir(exist_ok=True)
    if configuration.is_file():
        shutil.copy(configuration, packages / "cargo/config.toml")  # it may name a mirror
    _run("cargo", *arguments, "--quiet", cwd=example, RUSTUP_HOME=rustup, **home)


def _rust_command(example: Path, packages: Path) -> list[str]:
    return [str(packages / "target/debug/workspaced-example")]


JAVA = Language("java", ("javac", "mvn", "buf"), _build_java, _java_command)
RUST = Language("rust", ("cargo", "buf"), _build_rust, _rust_command)
