"""inotify through ctypes: one instance, its watches, and its events."""

from __future__ import annotations

import errno
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Event = tuple[int, int, int, str]  # watch, mask, cookie, name

MODIFY = 0x2
ATTRIB = 0x4
MOVED_FROM = 0x40
MOVED_TO = 0x80
CREATE = 0x100
DELETE = 0x200
DELETE_SELF = 0x400
MOVE_SELF = 0x800
UNMOUNT = 0x2000
OVERFLOW = 0x4000
IGNORED = 0x8000
ONLYDIR = 0x1000000
EXCL_UNLINK = 0x4000000
ISDIR = 0x40000000

CONTENT = MODIFY | ATTRIB | MOVED_FROM | MOVED_TO | CREATE | DELETE | ONLYDIR | EXCL_UNLINK
_HEADER = struct.Struct("iIII")
_BUFFER_BYTES = 65536
_NONBLOCK = os.O_NONBLOCK
_CLOEXEC = os.O_CLOEXEC
# The system's limits, or no inotify at all.
UNAVAILABLE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.ENOSYS)


class Inotify:
    """One inotify instance. Owns its descriptor."""

    def __init__(self) -> None:
        """Raises OSError, one of `UNAVAILABLE` when the caller should poll instead."""
        import ctypes

        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self._errno = ctypes.get_errno
        try:
            descriptor = self._libc.inotify_init1(_NONBLOCK | _CLOEXEC)
        except AttributeError:
            raise OSError(errno.ENOSYS, "this C library has no inotify") from None
        self.descriptor: int = self._checked(descriptor)

    def add(self, directory: int, mask: int) -> int:
        """Watch an open directory; the watch's number, the same for the same directory. Raises OSError."""
        # By descriptor, so that nobody can put another directory in its place.
        path = f"/proc/self/fd/{directory}".encode()
        return self._checked(self._libc.inotify_add_watch(self.descriptor, path, mask))

    def remove(self, watch: int) -> None:
        """End a watch; one that has ended by itself is none."""
        self._libc.inotify_rm_watch(self.descriptor, watch)

    def read(self) -> Iterator[Event]:
        """The events that wait now; never blocks."""
        try:
            data = os.read(self.descriptor, _BUFFER_BYTES)
        except BlockingIOError:
            return
        position = 0
        while position < len(data):
            watch, mask, cookie, length = _HEADER.unpack_from(data, position)
            position += _HEADER.size
            name = data[position : position + length].rstrip(b"\0")
            position += length
            yield watch, mask, cookie, os.fsdecode(name)

    def close(self) -> None:
        """End all watches."""
        os.close(self.descriptor)

    def _checked(self, result: int) -> int:
        if result < 0:
            number = self._errno()
            raise OSError(number, os.strerror(number))
        return result
