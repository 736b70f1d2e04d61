"""What holds for the repository as a whole: who imports whom, what is pinned, what the documents promise."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click

from tests.support.doc_commands import REPOSITORY, extract, fenced, pages

SERVICE = REPOSITORY / "service"

# api → roles → workspaces → guest client → drivers: a layer imports those to its right, never one to its left.
LAYERS = {
    "drivers": 0,
    "guest": 1,
    "workspaces": 2,
    "store": 2,
    "mcp": 3,
    "offload": 3,
    "skills": 3,
    "tools": 3,
    "api": 4,
}

# The one thing that a driver carries for the layer above it: the guest's archive. It stands on no layer itself.
CARRIED = "workspaced_server.guest.bundle"

LINES_MAX = 500
LINES_ADVISED = 400

# A file that is one noun and long, with the reason why it stays whole.
LONG: dict[str, str] = {}

# Split, so that this file does not hold what it looks for.
REGISTRY_HOSTS = tuple(
    re.escape(first + second)
    for first, second in (
        ("py", "pi.org"),
        ("python", "hosted.org"),
        ("registry.npm", "js.org"),
        ("proxy.go", "lang.org"),
        ("sum.go", "lang.org"),
        ("static.crates", ".io"),
        ("index.crates", ".io"),
        ("repo.maven.", "apache.org"),
        ("repo1.", "maven.org"),
        ("deb.", "debian.org"),
        ("security.", "debian.org"),
        ("snapshot.", "debian.org"),
    )
)


@cache
def tracked() -> list[Path]:
    """Files that are committed or would be: what git does not ignore."""
    command = ["git", "-C", str(REPOSITORY), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    return [REPOSITORY / name for name in sorted(set(names)) if name and (REPOSITORY / name).is_file()]


def relative(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def texts() -> Iterator[tuple[Path, str]]:
    for path in tracked():
        content = path.read_bytes()
        if b"\0" not in content[:8192]:
            yield path, content.decode("utf-8", "replace")


def generated(path: Path) -> bool:
    return re.search(r"_pb2(_grpc)?\.pyi?$", path.name) is not None


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, root: Path, *, executed: bool = False) -> Iterator[tuple[int, str]]:
    """Every import anywhere in a file, as (line, absolute module); ``from a import b`` counts as ``a.b``.

    ``executed`` leaves out those that only a type checker reads.
    """
    package = module_name(path, root).split(".")
    if path.name != "__init__.py":
        package.pop()
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    skipped: set[ast.AST] = set()
    if executed:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
                skipped.update(inner for statement in node.body for inner in ast.walk(statement))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{prefix}.{alias.name}"


def python_files(directory: Path) -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py" and path.is_relative_to(directory)]


def unit(module: str) -> str:
    """The part of the server that a module belongs to: the name after ``workspaced_server``."""
    return [*module.split("."), ""][1]


def test_no_registry_host_is_named() -> None:
    pattern = re.compile("|".join(REGISTRY_HOSTS))
    assert [relative(path) for path, text in texts() if pattern.search(text)] == []


def test_no_path_of_the_clone_is_named() -> None:
    assert [relative(path) for path, text in texts() if str(REPOSITORY) + "/" in text] == []


def test_files_stay_readable() -> None:
    lengths = {
        relative(path): text.count("\n")
        for path, text in texts()
        if path.suffix in {".py", ".proto"} and not generated(path)
    }
    for name, lines in sorted(lengths.items(), key=lambda item: -item[1]):
        if lines > LINES_ADVISED:
            print(f"{lines:5} lines  {name}: would it read better as two nouns?")
    too_long = {name for name, lines in lengths.items() if lines > LINES_MAX}
    assert too_long - LONG.keys() == set()
    assert LONG.keys() - too_long == set(), "no longer long: drop the reason"


def test_the_server_imports_one_way() -> None:
    root = SERVICE / "workspaced_server"
    edges: dict[str, set[str]] = {}
    places: dict[tuple[str, str], str] = {}
    for path in python_files(root):
        source = unit(module_name(path, SERVICE))
        for line, target in imports(path, SERVICE):
            if (target + ".").startswith(CARRIED + "."):
                continue
            if target.split(".")[0] == "workspaced_server" and unit(target) != source:
                edges.setdefault(source, set()).add(unit(target))
                places.setdefault((source, unit(target)), f"{relative(path)}:{line}")

    def height(name: str, above: frozenset[str] = frozenset()) -> int:
        """A layer's own place; of any other part, that of the highest layer it leads to."""
        if name in LAYERS:
            return LAYERS[name]
        return max((height(part, above | {name}) for part in edges.get(name, ()) if part not in above), default=-1)

    wrong = [
        f"{places[source, target]}: {source} imports {target}"
        for source, targets in edges.items()
        if source in LAYERS
        for target in targets
        if height(target) > LAYERS[source]
    ]
    assert wrong == []


def test_what_a_driver_carries_stands_on_no_layer() -> None:
    path = SERVICE / (CARRIED.replace(".", "/") + ".py")
    assert [module for _, module in imports(path, SERVICE) if unit(module) in LAYERS] == []


def test_the_guest_imports_only_the_standard_library() -> None:
    # The bundle carries websockets for the one module that needs it.
    allowed = sys.stdlib_module_names | {"workspaced_guest", "websockets"}
    files = python_files(SERVICE / "workspaced_guest")
    assert files
    wrong = [
        f"{relative(path)}:{line}: {module}"
        for path in files
        for line, module in imports(path, SERVICE, executed=True)
        if module.split(".")[0] not in allowed
    ]
    assert wrong == []


def test_the_server_imports_only_what_it_shares_with_the_guest() -> None:
    wrong = [
        f"{relative(path)}:{line}: {module}"
        for path in python_files(SERVICE / "workspaced_server")
        for line, module in imports(path, SERVICE)
        if module.split(".")[0] == "workspaced_guest" and module.split(".")[1:2] not in (["wire"], ["front"])
    ]
    assert wrong == []


def test_the_client_stands_alone() -> None:
    root = REPOSITORY / "clients/python"
    wrong = [
        f"{relative(path)}:{line}: {module}"
        for path in python_files(root / "workspaced")
        for line, module in imports(path, root)
        if module.split(".")[0] in {"workspaced_server", "workspaced_guest", "tests"}
    ]
    assert wrong == []


def pins(name: str) -> dict[str, str]:
    text = (REPOSITORY / "requirements" / name).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def test_every_dependency_is_pinned_by_hash() -> None:
    server, develop = pins("server.lock"), pins("develop.lock")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    client = tomllib.loads((REPOSITORY / "clients/python/pyproject.toml").read_text())

    def names(requirements: list[str]) -> set[str]:
        found = {re.split(r"[<>=!~; \[]", requirement, maxsplit=1)[0].lower() for requirement in requirements}
        return found - {"workspaced"}

    assert names(project["project"]["dependencies"] + client["project"]["dependencies"]) <= server.keys()
    assert names(project["dependency-groups"]["develop"]) <= develop.keys()
    assert server.items() <= develop.items(), "the two locks disagree: run make lock"
    for lock in ("server.lock", "develop.lock"):
        text = (REPOSITORY / "requirements" / lock).read_text()
        assert "://" not in text
        unhashed = [
            pin for pin in re.findall(r"^[a-z0-9-]+==.*\n.*", text, re.MULTILINE) if "--hash=sha256:" not in pin
        ]
        assert unhashed == []


def test_versions_agree() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    client = tomllib.loads((REPOSITORY / "clients/python/pyproject.toml").read_text())["project"]
    assert project["version"] == client["version"]
    assert f"workspaced=={client['version']}" in project["dependencies"]
    assert f"## {project['version']}" in (REPOSITORY / "CHANGELOG.md").read_text()


def shown_commands() -> list[tuple[str, str, str]]:
    """(where, program, first word after it) of each ``make`` and ``workspaced`` command in the documents."""
    shown: list[tuple[str, str, str]] = []
    for path in pages():
        for block in extract(path):
            for command in block.commands:
                for match in re.finditer(
                    r"(?:^|[|;&(]\s*|\$\()(?:\w+=\S+ )*(make|workspaced)((?: +[^\s|;&)]+)*)", command
                ):
                    words = [word for word in match[2].split() if not word.startswith("-") and "=" not in word]
                    shown.append((block.where, match[1], words[0] if words else ""))
    return shown


def test_commands_are_shown_in_blocks_that_tests_can_run() -> None:
    """Only ``bash`` blocks are run by the tests of the documents, so no command may hide in another kind of block."""
    hidden = [
        f"{path.name}: {line.strip()}"
        for path in pages()
        for language, text in fenced(path)
        if language in {"", "sh", "shell", "text", "zsh"}
        for line in text.splitlines()
        if re.match(r"\s*(\$ )?(make|workspaced) [a-z]", line)
    ]
    assert hidden == []


def test_make_commands_of_the_documents_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    targets = set(phony[1].split())
    assert [
        (where, word) for where, program, word in shown_commands() if program == "make" and word not in targets
    ] == []


def test_workspaced_commands_of_the_documents_exist() -> None:
    from workspaced_server.cli import main

    commands = {"", *main.list_commands(click.Context(main))}
    shown = [(where, word) for where, program, word in shown_commands() if program == "workspaced"]
    assert [(where, word) for where, word in shown if word not in commands] == []
