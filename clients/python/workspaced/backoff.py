"""How long to wait before the next attempt."""

from __future__ import annotations

import random


class Backoff:
    """Exponential delays with jitter: between half and all of 50 ms, 100 ms, 200 ms ... at most ``limit`` seconds."""

    __slots__ = ("_attempt", "_first", "_limit")

    def __init__(self, first: float = 0.05, limit: float = 2.0) -> None:
        self._first = first
        self._limit = limit
        self._attempt = 0

    def reset(self) -> None:
        """Begin with the shortest delay again."""
        self._attempt = 0

    def next(self, at_least: float | None = None) -> float:
        """The next delay in seconds; ``at_least`` is what the server asked for."""
        delay = min(self._limit, self._first * 2.0 ** min(self._attempt, 16))
        self._attempt += 1
        return max(at_least or 0.0, delay * random.uniform(0.5, 1.0))
