"""What `.gitignore` files name."""

from __future__ import annotations

import fnmatch
import os
import re

from .fault import Fault
from .glob import Glob

_FILE_BYTES = 1 << 20
_TOOLS_OWN = frozenset((".git", ".hg", ".svn", ".jj"))


class _Rule:
    __slots__ = ("directories", "glob", "name", "negated")

    def __init__(self, line: str) -> None:
        self.negated = line.startswith("!")
        pattern = re.sub(r"\\(.)", _escaped, line[1:] if self.negated else line)
        self.directories = pattern.endswith("/")
        pattern = pattern.removesuffix("/")
        self.name: re.Pattern[str] | None = None
        self.glob: Glob | None = None
        if "/" in pattern:
            pattern = pattern.removeprefix("/")
            if any(part in ("", ".") for part in pattern.split("/")):
                raise re.error("names nothing that there is")
            self.glob = Glob(pattern)
        else:
            self.name = re.compile(fnmatch.translate(pattern))

    def matches(self, parts: list[str]) -> bool:
        if self.name is not None:
            return self.name.match(parts[-1]) is not None
        assert self.glob is not None
        states = self.glob.start
        for part in parts:
            states = self.glob.step(states, part)
        return self.glob.matches(states)


class Rules:
    """One file of rules; `base` is how many components lead to its directory."""

    def __init__(self, text: str, base: int) -> None:
        self.base = base
        self._rules: list[_Rule] = []
        for line in text.splitlines():
            line = re.sub(r"(?<!\\)[ \t]+$", "", line)
            if line.strip() and not line.startswith("#"):
                try:
                    self._rules.append(_Rule(line))
                except (Fault, re.error):
                    continue  # as git does with what is no pattern
        self._rules.reverse()
        names = [rule.name.pattern for rule in self._rules if rule.name is not None]
        # Most names are named by none: one look tells.
        self._names = re.compile("|".join(names)) if names else None
        self._only_names = len(names) == len(self._rules)

    def verdict(self, parts: list[str], is_directory: bool) -> bool | None:
        """Whether the path is ignored, or None when the file does not say."""
        parts = parts[self.base :]
        if self._only_names and (self._names is None or not self._names.match(parts[-1])):
            return None
        for rule in self._rules:
            if (is_directory or not rule.directories) and rule.matches(parts):
                return not rule.negated
        return None


class Ignore:
    """The rules that hold below a directory, the nearest last. `parts` of a path are from the top of the rules."""

    def __init__(self, rules: tuple[Rules, ...] = ()) -> None:
        self._rules = rules

    def within(self, directory: str, base: int) -> Ignore:
        """With those of a directory's own file."""
        found = _load(os.path.join(directory, ".gitignore"), base)
        return self if found is None else Ignore((*self._rules, found))

    def ignores(self, parts: list[str], is_directory: bool) -> bool:
        """Whether an entry is to be left out."""
        if parts[-1] in _TOOLS_OWN:
            return True
        for rules in reversed(self._rules):
            verdict = rules.verdict(parts, is_directory)
            if verdict is not None:
                return verdict
        return False


def above(root: str, workdir: str) -> tuple[Ignore, list[str]]:
    """The rules that hold in `root` (absolute) by files above it, and the components from their top to it.

    The top is the repository that it is in; outside of one it is the workdir, or `root` itself.
    """
    inside = root == workdir or root.startswith(workdir.rstrip("/") + "/")
    top = root
    while not os.path.lexists(os.path.join(top, ".git")):
        # A workspace may lie in somebody's repository, which is no matter of its agents.
        if top == "/" or (inside and top == workdir):
            top = workdir if inside else root
            break
        top = os.path.dirname(top)
    parts = [part for part in os.path.relpath(root, top).split("/") if part != "."]
    excluded = _load(os.path.join(top, ".git", "info", "exclude"), 0)
    ignore = Ignore(() if excluded is None else (excluded,))
    directory = top
    for base, part in enumerate(parts):
        ignore = ignore.within(directory, base)
        directory = os.path.join(directory, part)
    return ignore, parts


def _load(path: str, base: int) -> Rules | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            text = os.fsdecode(file.read(_FILE_BYTES))
    except OSError:
        return None
    return Rules(text, base) if text else None


def _escaped(match: re.Match[str]) -> str:
    return f"[{match[1]}]" if match[1] in "*?[" else match[1]
