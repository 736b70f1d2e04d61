"""Changes of a tree found by comparing what is there with what was: for watching where inotify can't."""

from __future__ import annotations

import os
import stat

from .fault import Fault
from .filestat import type_of
from .parts import is_part
from .tree import TreeCursor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    Change = dict[str, Any]
    Seen = tuple[int, int, int, int, int]  # inode, mode, size, mtime, ctime
    Snapshot = dict[str, Seen]

ENTRY_LIMIT = 200_000


def take(parent: int, name: str, recursive: bool, check: Callable[[], None]) -> Snapshot:
    """What is at `name` in the open directory `parent`, by path relative to it, `.` for itself.

    Raises FileNotFoundError.
    """
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    found: Snapshot = {".": _seen(status)}
    if not stat.S_ISDIR(status.st_mode):
        return found
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    cursor = TreeCursor(os.open(name, flags, dir_fd=parent))
    try:
        levels = [("", iter(os.listdir(cursor.directory)))]
        while levels:
            path, names = levels[-1]
            entry = next(names, None)
            if entry is None:
                levels.pop()
                if levels:
                    cursor.up()
                continue
            check()
            if is_part(entry):
                continue
            below = f"{path}/{entry}" if path else entry
            try:
                status = os.stat(entry, dir_fd=cursor.directory, follow_symlinks=False)
                found[below] = _seen(status)
                if recursive and stat.S_ISDIR(status.st_mode):
                    cursor.down(entry)
                    levels.append((below, iter(os.listdir(cursor.directory))))
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue
            if len(found) > ENTRY_LIMIT:
                raise Fault(
                    "RESOURCE_EXHAUSTED", "LIMIT_REACHED", "too many files to watch by polling", limit=ENTRY_LIMIT
                )
    finally:
        cursor.close()
    return found


def compare(old: Snapshot, new: Snapshot) -> list[Change]:
    """The changes that lead from one snapshot to the other; a file gone and one come with the same inode are a move."""
    changes: list[Change] = []
    come = {path: seen for path, seen in new.items() if path not in old}
    by_inode = {seen[0]: path for path, seen in come.items()}
    for path, seen in old.items():
        if path in new:
            continue
        to = by_inode.get(seen[0])
        if to is not None and to in come and stat.S_IFMT(seen[1]) == stat.S_IFMT(come[to][1]):
            del come[to]
            changes.append({"kind": "moved", "path": path, "to": to, "type": type_of(seen[1])})
        else:
            changes.append({"kind": "deleted", "path": path, "type": type_of(seen[1])})
    for path, seen in come.items():
        changes.append({"kind": "created", "path": path, "type": type_of(seen[1])})
    for path, seen in new.items():
        before = old.get(path)
        if before is not None and before != seen:
            changes.append({"kind": "modified", "path": path, "type": type_of(seen[1])})
    return changes


def _seen(status: os.stat_result) -> Seen:
    if stat.S_ISDIR(status.st_mode):
        # Its times change with every name in it, and those are changes of their own.
        return (status.st_ino, status.st_mode, 0, 0, 0)
    return (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
