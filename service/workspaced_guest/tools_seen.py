"""What each reader, an agent in a session, last read or wrote of which file: the SHA-256 of its content.

Kept in memory only, and of the latest files: whoever is not known here has to read again.
"""

from __future__ import annotations

import os
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .paths import Place

    Key = tuple[str, int, int, str]

_KEPT = 8192

_lock = threading.Lock()
_seen: dict[Key, str] = {}  # the latest last


def remember(reader: str, place: Place, sha256: str) -> None:
    """The reader knows the content of this directory entry."""
    key = _key(reader, place)
    with _lock:
        _seen.pop(key, None)
        _seen[key] = sha256
        if len(_seen) > _KEPT:
            del _seen[next(iter(_seen))]


def recall(reader: str, place: Place) -> str | None:
    """What the reader knows, or None."""
    return _seen.get(_key(reader, place))


def _key(reader: str, place: Place) -> Key:
    # By the entry and not its inode: replacing a file is how it is changed.
    status = os.fstat(place.directory)
    return (reader, status.st_dev, status.st_ino, place.name)
