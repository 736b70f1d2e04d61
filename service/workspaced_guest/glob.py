"""Glob patterns over paths, matched a component at a time, so that a walk knows early where nothing can match."""

from __future__ import annotations

from .fault import invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from re import Pattern

    States = frozenset[int]

PATTERN_LIMIT = 1024


class Glob:
    """A pattern for paths relative to a directory.

    `*`, `?` and `[...]` stay within one component and match leading dots too; `**` as a whole component is any number
    of directories, none included, and as the last one everything below. States are indexes of components still to
    match.
    """

    def __init__(self, pattern: str) -> None:
        """Raises ARGUMENT_INVALID for an empty, absolute or overlong pattern, or one with `..`."""
        import fnmatch
        import re

        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        if not parts or pattern.startswith("/") or ".." in parts or len(pattern) > PATTERN_LIMIT:
            raise invalid("glob must be a relative pattern without '..' of at most 1024 characters", field="glob")
        if parts[-1] == "**":
            parts.append("*")
        self._parts: list[Pattern[str] | None] = []
        for part in parts:
            if part != "**":
                self._parts.append(re.compile(fnmatch.translate(part)))
            elif not self._parts or self._parts[-1] is not None:
                self._parts.append(None)
        self.start: States = self._close({0})

    def step(self, states: States, name: str) -> States:
        """The states below the entry `name`; empty when nothing below or at it can match."""
        following = set()
        for state in states:
            if state == len(self._parts):
                continue
            part = self._parts[state]
            if part is None:
                following.add(state)
            elif part.match(name):
                following.add(state + 1)
        return self._close(following)

    def matches(self, states: States) -> bool:
        """Whether the path that led to `states` matches as a whole."""
        return len(self._parts) in states

    def goes_on(self, states: States) -> bool:
        """Whether something below the path that led to `states` can match."""
        return any(state < len(self._parts) for state in states)

    def _close(self, states: set[int]) -> States:
        for state in list(states):
            while state < len(self._parts) and self._parts[state] is None:
                state += 1
                states.add(state)
        return frozenset(states)
