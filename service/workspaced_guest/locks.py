"""Locks by directory entry: one writer at a time looks at what is there and replaces it."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .paths import Place

    Key = tuple[int, int, str]

_guard = threading.Lock()
_held: dict[Key, _Entry] = {}


class _Entry:
    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0


@contextmanager
def entry_lock(place: Place) -> Iterator[None]:
    """Hold the lock of one directory entry, whatever path leads to it. For short work: waiting can't be cancelled."""
    status = os.fstat(place.directory)
    key = (status.st_dev, status.st_ino, place.name)
    with _guard:
        entry = _held.setdefault(key, _Entry())
        entry.users += 1
    try:
        with entry.lock:
            yield
    finally:
        with _guard:
            entry.users -= 1
            if not entry.users:
                del _held[key]
