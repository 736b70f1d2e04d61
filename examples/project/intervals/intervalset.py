"""The set itself."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class IntervalSet:
    """An immutable set of numbers. Intervals that touch are one: ``[0, 2)`` and ``[2, 5)`` are ``[0, 5)``."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        """Raises ValueError for an interval that ends before it starts; an empty one adds nothing."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(intervals):
            if end < start:
                raise ValueError(f"[{start}, {end}) ends before it starts")
            if start == end:
                continue
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._starts, self._ends))

    def __len__(self) -> int:
        """How many numbers are in it, not how many intervals."""
        return sum(self._ends) - sum(self._starts)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        place = bisect_right(self._starts, number) - 1
        return place >= 0 and number < self._ends[place]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IntervalSet):
            return NotImplemented
        return self._starts == other._starts and self._ends == other._ends

    def __hash__(self) -> int:
        return hash((tuple(self._starts), tuple(self._ends)))

    def __repr__(self) -> str:
        return f"IntervalSet({list(self)!r})"

    def __or__(self, other: IntervalSet) -> IntervalSet:
        return IntervalSet([*self, *other])

    def __and__(self, other: IntervalSet) -> IntervalSet:
        return IntervalSet(_overlaps(list(self), list(other)))

    def __sub__(self, other: IntervalSet) -> IntervalSet:
        if not self:
            return self
        return self & other.complement(self._starts[0], self._ends[-1])

    def __xor__(self, other: IntervalSet) -> IntervalSet:
        return (self | other) - (self & other)

    def complement(self, start: int, end: int) -> IntervalSet:
        """What lies in ``[start, end)`` and not in the set."""
        gaps = []
        position = start
        for place in range(bisect_left(self._ends, start), len(self._starts)):
            if self._starts[place] >= end:
                break
            if self._starts[place] > position:
                gaps.append((position, self._starts[place]))
            position = max(position, self._ends[place])
        if position < end:
            gaps.append((position, end))
        return IntervalSet(gaps)

    def shifted(self, distance: int) -> IntervalSet:
        """Every number moved by ``distance``."""
        return IntervalSet((start + distance, end + distance) for start, end in self)


def _overlaps(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    i = j = 0
    while i < len(left) and j < len(right):
        start = max(left[i][0], right[j][0])
        end = min(left[i][1], right[j][1])
        if start < end:
            yield start, end
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
