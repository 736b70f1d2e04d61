"""What `.gitignore` files name, as git itself sees it."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from workspaced_guest import tools_scan

FILES = [
    "a", "b.o", "ab", "a b", "#a", "!a", "d/a", "d/b.o", "d/e/a", "d/e/f/ab", "e/d/a", "e/a.o", "a.d/a", "d/a.d/b.o",
]  # fmt: skip


class Collected(tools_scan.Output):
    """What a search found."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def line(self, text: str) -> None:
        self.found.append(text)


def ours(directory: Path, path: str = ".") -> set[str]:
    request: dict[str, Any] = {
        "workdir": str(directory),
        "path": path,
        "globs": [],
        "pattern": None,
        "include_ignored": False,
        "limit": 1000,
        "seconds": 20,
    }
    output = Collected()
    tools_scan.answer(request, output)
    return {name for name in output.found if not name.endswith(".gitignore")}


def gits(directory: Path) -> set[str]:
    command = ["git", "-C", str(directory), "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    return {name for name in listed if name and not name.endswith(".gitignore")}


def tree(directory: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(directory)], check=True)
    for name in FILES:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        # A directory may have the name of another's file.
        (directory / name).write_text("")


PIECES = st.sampled_from(["a", "b", "d", "e", "f", "o", ".", "*", "?", "**", "/", "\\", "[ab]", "[!a]", "#", "!", " "])
# A slash that is escaped is somebody's mistake, and means different things to git in different places.
PATTERNS = st.lists(PIECES, min_size=1, max_size=5).map("".join).filter(lambda pattern: "\\/" not in pattern)


@settings(max_examples=60)
@given(st.lists(PATTERNS, min_size=1, max_size=4), st.lists(PATTERNS, max_size=2))
@example(["*.o", "!b.o", "/a", "d/"], ["!a", "/e"])
@example(["d/**/a", "**/ab", "e/**"], [])
@example(["\\#a", "\\!a", "a\\ b", "a "], [])
@example(["/*", "!/d", "/d/*", "!/d/e"], [])
@example(["a\\", "[", "[!]a]", "[]-]"], [])
def test_as_git(patterns: list[str], below: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        tree(directory)
        (directory / ".gitignore").write_text("\n".join(patterns) + "\n")
        if below:
            (directory / "d" / ".gitignore").write_text("\n".join(below))
        assert ours(directory) == gits(directory)
        # From within, as from the top.
        inside = {path for path in gits(directory) if path.startswith("d/")}
        if inside:
            assert ours(directory, "d") == inside


def test_excludes_of_the_clone_and_the_workspace_within_a_repository(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / ".git" / "info" / "exclude").write_text("*.o\n")
    assert ours(tmp_path) == gits(tmp_path)
    assert "b.o" not in ours(tmp_path)
    # A workspace in somebody's repository is not what that repository ignores.
    (tmp_path / ".gitignore").write_text("*\n")
    assert ours(tmp_path) == set()
    assert "a" in ours(tmp_path / "d")
