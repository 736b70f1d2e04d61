"""What the README and the pages show is run as it stands: commands by bash, Python by Python, against a real server."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.support.cli_reference import commands
from tests.support.doc_commands import REPOSITORY, extract, fenced, pages
from tests.support.server import ServerProcess
from workspaced_server.config import load

IMAGE = "workspaced-test:bookworm"
AGENT_IMAGE = "workspaced-test:agents"
SHOWN_ADDRESS = "127.0.0.1:7420"
SHOWN_IMAGE = re.compile(r"python:3\.\d+(-slim)?")
# What a machine tells every program: its engine, its proxies and the authorities that it trusts.
MACHINE = re.compile(r"DOCKER_|.*CERT|.*PROXY$", re.IGNORECASE)

# Around blocks that await something: what the page says there is, a client and a workspace, with a server inside.
HARNESS = f"""
import ast, asyncio, sys
import workspaced

async def main() -> None:
    text = open(sys.argv[1]).read()
    async with workspaced.connect("{SHOWN_ADDRESS}") as client:
        ws = await client.initialize(backend="local", workspace_id=sys.argv[2])
        server = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000, bind='127.0.0.1')"
        async with ws.exec(["python3", "-uc", server], disconnect_policy="kill") as process:
            async for _ in process:
                break
            code = compile(text, sys.argv[1], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            await eval(code, {{"workspaced": workspaced, "asyncio": asyncio, "client": client, "ws": ws}})
        await ws.delete()

asyncio.run(main())
"""


@dataclass(frozen=True)
class Reader:
    """Somebody with a clone, a server, and an empty home directory."""

    server: ServerProcess
    clone: Path
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.pathsep.join([str(self.home / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "service"), str(REPOSITORY / "clients/python")]),
            "WORKSPACED_SERVER": self.server.address,
            "WORKSPACED_STATE_DIR": str(self.server.state_dir),
            "IMAGE": IMAGE,
            "AGENT_IMAGE": AGENT_IMAGE,
            **caches(),
            **{name: value for name, value in os.environ.items() if MACHINE.match(name)},
        }

    def adapt(self, text: str) -> str:
        """The text with this server's address and an image that is here."""
        return text.replace(SHOWN_ADDRESS, self.server.address)

    def run(self, command: list[str], seconds: float = 200) -> str:
        """Run to its end, which has to be a good one; returns everything that was printed."""
        done = subprocess.run(
            command,
            cwd=self.clone,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
        text = done.stdout.decode(errors="replace")
        assert done.returncode == 0, f"{command[-1]} ended with {done.returncode}:\n{text[-6000:]}"
        return text


@cache
def caches() -> dict[str, str]:
    """Where Go and npm keep what they fetched and built: below the home directory that the reader does not have."""
    asked = subprocess.run(["go", "env", "-json", "GOMODCACHE", "GOCACHE"], check=True, capture_output=True)
    npm = subprocess.run(["npm", "config", "get", "cache"], check=True, capture_output=True, text=True)
    return {**json.loads(asked.stdout), "npm_config_cache": npm.stdout.strip()}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("documents") / "state")
    server.start()
    yield server
    assert server.stop() == 0


@pytest.fixture
def reader(server: ServerProcess, tmp_path: Path) -> Iterator[Reader]:
    clone, home = tmp_path / "clone", tmp_path / "home"
    names = subprocess.run(
        ["git", "-C", str(REPOSITORY), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
    ).stdout.decode()
    for name in filter(None, names.split("\0")):
        if (REPOSITORY / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, clone / name)
    (home / "bin").mkdir(parents=True)
    command = home / "bin" / "workspaced"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m workspaced_server "$@"\n')
    command.chmod(0o755)
    reader = Reader(server, clone, home)
    yield reader
    left = reader.run(["workspaced", "ls", "--quiet"]).split()
    if left:
        reader.run(["workspaced", "rm", "--force", *left])


def programs() -> list[tuple[str, Path, str]]:
    """(where, page, text) of each Python block."""
    found = []
    for path in pages():
        texts = [text for language, text in fenced(path) if language == "python"]
        found += [(f"{path.name}-{number}", path, text) for number, text in enumerate(texts, start=1)]
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", [path for path in pages() if extract(path)], ids=lambda path: path.name)
def test_commands_run_in_their_order(reader: Reader, path: Path) -> None:
    script = ["set -euo pipefail"]
    for block in extract(path):
        if block.norun is not None:
            continue
        if block.background:
            # The server of the test stands in for it; that it would start is seen from what make would run.
            for command in block.commands:
                assert command == "make serve", f"{block.where}: nothing else is known to stand in for"
                assert "workspaced serve" in reader.run(["make", "--dry-run", "serve"])
            continue
        script += [f"echo '== {block.where}'", reader.adapt(block.text)]
    file = reader.home / "page.sh"
    file.write_text("\n".join(script))
    said = reader.run(["bash", str(file)])
    print(said)
    if path.name == "README.md":
        assert re.search(r"Ran \d{3} tests in .*\n\nOK", said)
        assert '"exitCode": 3' in said
        assert said.count("1\n2\n3\nexit code 0\n") == 3


def test_the_quick_start_is_the_programs() -> None:
    shown = fenced(REPOSITORY / "README.md")
    for language, name in (("python", "quickstart.py"), ("ts", "quickstart.ts"), ("go", "main.go")):
        assert (language, (REPOSITORY / "examples" / "quickstart" / name).read_text()) in shown, name


@pytest.mark.parametrize(("path", "text"), [item[1:] for item in programs()], ids=[item[0] for item in programs()])
def test_python_runs(reader: Reader, path: Path, text: str) -> None:
    file = reader.home / "block.py"
    file.write_text(SHOWN_IMAGE.sub(IMAGE, reader.adapt(text)))
    code = compile(text, path.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if not code.co_flags & inspect.CO_COROUTINE:
        # A program, or a part of one that needs nothing but the import that the page began with.
        file.write_text(f"import workspaced\n{file.read_text()}")
        print(reader.run([sys.executable, str(file)]))
        return
    harness = reader.home / "harness.py"
    harness.write_text(reader.adapt(HARNESS))
    print(reader.run([sys.executable, str(harness), str(file), f"doc-{uuid.uuid4().hex[:8]}"]))


def test_the_example_runs(reader: Reader) -> None:
    file = reader.clone / "examples" / "python_quickstart.py"
    file.write_text(SHOWN_IMAGE.sub(IMAGE, reader.adapt(file.read_text())))
    reader.run([sys.executable, str(file)])


# What is written, whether it is run or not


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_commands_that_are_named_exist(path: Path) -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    known = {name.split()[0] for name, _ in commands()}
    blocks = "\n".join(text for language, text in fenced(path) if language in {"bash", "console"})
    quoted = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", path.read_text(encoding="utf-8"))
    text = "\n".join([blocks, *quoted])
    for name in re.findall(r"(?:^|[$;&|(] *)make ([a-z]+)$", text, re.MULTILINE):
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), f"{path.name}: make {name}"
    for name in re.findall(r"(?:^|[$;&|(] *)workspaced ([a-z]+)", text, re.MULTILINE):
        assert name in known, f"{path.name}: workspaced {name}"


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", link):
            assert (path.parent / link).exists(), f"{path.name}: {link}"


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_configuration_that_is_shown_is_accepted(path: Path, tmp_path: Path) -> None:
    for language, text in fenced(path):
        if language == "toml":
            (tmp_path / "shown.toml").write_text(text)
            load(tmp_path / "shown.toml", environment={"WORKSPACED_STATE_DIR": str(tmp_path)})
