"""Output of a channel whose other end is a bridge: straight into the pipe that is the bridge's standard output.

The bridge passes that pipe along with the first bytes that it carries (`SCM_RIGHTS`), so that output need not be moved
twice. A guest that does not know of this never sees the descriptor, and the bridge carries what comes over the socket.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct

from .loop import WRITE
from .pipesize import grow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from .loop import Loop, Timer
    from .wire import Buffer

_FD = struct.Struct("i")
# A full pipe is written to again after this long, not when its first page is free: pages one by one would cost all who
# pass them on a turn each. A pipe that has grown holds more than goes out meanwhile.
_DRAIN_SECONDS = 0.001


def receive(connection: socket.socket, size: int) -> tuple[bytes, int]:
    """A read from a non-blocking Unix socket: the bytes, and the pipe that came along, or -1. Raises OSError."""
    room = socket.CMSG_LEN(_FD.size)
    data, ancillary, _, _ = connection.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS and len(content) >= _FD.size:
            (fd,) = _FD.unpack_from(content)
            if _takes_output(fd):
                return data, fd
            os.close(fd)
    return data, -1


def _takes_output(fd: int) -> bool:
    # Anything else, such as a file, could block the loop.
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    return stat.S_ISFIFO(os.fstat(fd).st_mode) and flags & os.O_ACCMODE != os.O_RDONLY


class Outlet:
    """The write end of a pipe; owns it."""

    def __init__(self, loop: Loop, fd: int, on_writable: Callable[[], None]) -> None:
        self._loop = loop
        self._fd = fd
        self._on_writable = on_writable
        self._grown = False
        self._timer: Timer | None = None
        self._stuck = False  # nothing went out since the last wait
        self._watched = False
        os.set_blocking(fd, False)

    def send(self, buffers: list[Buffer]) -> int:
        """How many bytes of `buffers` the pipe took. Raises BlockingIOError, OSError."""
        sent = os.writev(self._fd, buffers)
        self._stuck = False
        return sent

    def wait(self, wanted: bool) -> None:
        """Calls `on_writable` when it is worth while to go on; `wanted` is False when nothing is left to be sent."""
        if self._watched:
            self._watched = False
            self._loop.remove(self._fd)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not wanted:
            return
        if not self._grown:
            self._grown = True
            grow(self._fd)
        if self._stuck:
            self._watched = True
            self._loop.add(self._fd, WRITE, self._ready)
        else:
            self._stuck = True
            self._timer = self._loop.call_later(_DRAIN_SECONDS, self._on_writable)

    def close(self) -> None:
        """Gives the pipe up. Idempotent."""
        if self._fd >= 0:
            self.wait(False)
            os.close(self._fd)
            self._fd = -1

    def _ready(self, events: int) -> None:
        self._on_writable()
