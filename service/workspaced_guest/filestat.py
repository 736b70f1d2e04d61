"""The `stat` object of the protocol: what is known of a file."""

from __future__ import annotations

import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .paths import Place

    Params = dict[str, Any]

# Looking a name up reads a file, or asks a directory service.
_NAMES_KEPT_SECONDS = 10.0
_NAMES_KEPT = 1000

_TYPES = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}

_names: dict[tuple[str, int], tuple[float, str]] = {}


def type_of(mode: int) -> str:
    """The protocol's word for the type in `st_mode`."""
    return _TYPES.get(stat.S_IFMT(mode), "device")


def describe(status: os.stat_result, shown: str, target: str | None = None) -> Params:
    """The `stat` object of what `status` tells; `target` is where a link leads."""
    described: Params = {
        "path": shown,
        "name": os.path.basename(shown) or shown,
        "type": type_of(status.st_mode),
        "size": status.st_size,
        "mode": stat.S_IMODE(status.st_mode),
        "mtime": status.st_mtime_ns / 1e9,
        "mtime_ns": str(status.st_mtime_ns),
        "uid": status.st_uid,
        "gid": status.st_gid,
        "user": user_name(status.st_uid),
        "group": group_name(status.st_gid),
        "inode": status.st_ino,
    }
    if target is not None:
        described["target"] = target
    return described


def describe_entry(directory: int, name: str, shown: str) -> Params:
    """The `stat` object of an entry of an open directory, a link not followed. Raises OSError."""
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    target = os.readlink(name, dir_fd=directory) if stat.S_ISLNK(status.st_mode) else None
    return describe(status, shown, target)


def describe_place(place: Place) -> Params:
    """The `stat` object of what is at `place`. Raises OSError."""
    place.lstat()
    return describe_entry(place.directory, place.name, place.shown)


def user_name(uid: int) -> str:
    """The user's name, or the number as text where there is none."""
    return _name("user", uid)


def group_name(gid: int) -> str:
    """The group's name, or the number as text where there is none."""
    return _name("group", gid)


def _name(kind: str, number: int) -> str:
    now = time.monotonic()
    kept = _names.get((kind, number))
    if kept is not None and now - kept[0] < _NAMES_KEPT_SECONDS:
        return kept[1]
    try:
        if kind == "user":
            import pwd

            name = pwd.getpwuid(number).pw_name
        else:
            import grp

            name = grp.getgrgid(number).gr_name
    except (KeyError, OverflowError):
        name = str(number)
    if len(_names) >= _NAMES_KEPT:
        _names.clear()
    _names[kind, number] = (now, name)
    return name
