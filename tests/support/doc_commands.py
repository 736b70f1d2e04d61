"""The commands that the documentation shows, so that tests can run what readers copy.

A block is run as written when its fence says ``bash``. Words after the language say how::

    ```bash                     run, in a scratch directory, together with the page's other blocks and in their order
    ```bash name=quickstart     a name by which a test picks the block
    ```bash background          goes on running beside the blocks that follow, such as a server
    ```bash norun="a reason"    not run, for the reason given
    ```console                  a transcript to read, never run
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,}|~{3,}) *(?P<info>[^`]*)$")
_FLAGS = frozenset({"background"})
_KEYS = frozenset({"name", "norun"})


class MalformedBlock(ValueError):
    """A fence that is not closed, or says something of a block that nothing understands."""


@dataclass(frozen=True)
class Block:
    """One fenced block of shell commands. ``line`` is the line of its opening fence, from 1."""

    path: Path
    line: int
    text: str
    name: str | None = None
    background: bool = False
    norun: str | None = None
    commands: tuple[str, ...] = field(default=())

    @property
    def where(self) -> str:
        return f"{self.path.name}:{self.line}"


def pages(root: Path = REPOSITORY) -> list[Path]:
    """The documents with commands for users and developers: the README and everything under ``docs/``."""
    return [path for path in (root / "README.md", *sorted((root / "docs").rglob("*.md"))) if path.exists()]


def extract(path: Path) -> list[Block]:
    """Returns the ``bash`` blocks of a Markdown page, in order; raises `MalformedBlock`."""
    return [_block(path, line, info, text) for line, info, text in _fences(path) if _language(info) == "bash"]


def fenced(path: Path) -> list[tuple[str, str]]:
    """Returns (language, text) of every fenced block of a page, in order; the language may be empty."""
    return [(_language(info), text) for _, info, text in _fences(path)]


def _language(info: str) -> str:
    return (info.split(maxsplit=1) or [""])[0]


def _fences(path: Path) -> Iterator[tuple[int, str, str]]:
    """(line of the opening fence, what follows its marks, text) of each block, without the fence's indentation."""
    opened: tuple[int, str, str, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is None:
            if fence:
                opened = (number, fence["indent"], fence["marks"], fence["info"].strip())
                lines = []
            continue
        start, indent, marks, info = opened
        if fence and fence["marks"].startswith(marks) and not fence["info"].strip():
            yield start, info, "".join(text.removeprefix(indent) + "\n" for text in lines)
            opened = None
        else:
            lines.append(line)
    if opened is not None:
        raise MalformedBlock(f"{path.name}:{opened[0]}: the fence is never closed")


def _block(path: Path, line: int, info: str, text: str) -> Block:
    name: str | None = None
    norun: str | None = None
    background = False
    for word in shlex.split(info)[1:]:
        key, equals, value = word.partition("=")
        if not equals and key in _FLAGS:
            background = True
        elif equals and key in _KEYS and value.strip():
            name, norun = (value, norun) if key == "name" else (name, value)
        else:
            raise MalformedBlock(f"{path.name}:{line}: {word!r} says nothing about a block")
    return Block(path, line, text, name=name, background=background, norun=norun, commands=tuple(_commands(text)))


def _commands(text: str) -> list[str]:
    """The block's simple commands, one a line, continued lines joined; bodies of here-documents left out."""
    commands: list[str] = []
    pending = ""
    terminator: str | None = None
    for line in text.splitlines():
        if terminator is not None:
            if line.strip() == terminator:
                terminator = None
            continue
        pending += line
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        here = re.search(r"<<-?\s*(['\"]?)(\w+)\1", pending)
        terminator = here[2] if here else None
        if pending.strip() and not pending.lstrip().startswith("#"):
            commands.append(pending.strip())
        pending = ""
    return commands
