"""Interval sets as people write them: ``0-2, 5, 7-9`` with both ends included."""

from __future__ import annotations

import re

from .intervalset import IntervalSet

_PART = re.compile(r"\s*(-?\d+)\s*(?:-\s*(-?\d+)\s*)?")


def parse(text: str) -> IntervalSet:
    """The set that ``text`` describes. Raises ValueError that quotes the part which is none."""
    if not text.strip():
        return IntervalSet()
    intervals = []
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if not match:
            raise ValueError(f"{part.strip()!r} is neither a number nor FIRST-LAST")
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if last < first:
            raise ValueError(f"{part.strip()!r} runs backwards")
        intervals.append((first, last + 1))
    return IntervalSet(intervals)


def render(numbers: IntervalSet) -> str:
    """The shortest text that `parse` reads back as the same set."""
    return ", ".join(str(start) if end == start + 1 else f"{start}-{end - 1}" for start, end in numbers)
