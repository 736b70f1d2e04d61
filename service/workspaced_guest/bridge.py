"""`connect`: carries bytes between standard input and output and the guest's socket. Imports almost nothing."""

from __future__ import annotations

import errno
import os
import sys
from _socket import AF_UNIX, SHUT_WR, SOCK_STREAM, socket
from _thread import start_new_thread
from fcntl import fcntl

_BYTES = 256 * 1024
_SPLICE_BYTES = 1 << 20
_SPLICE_NONBLOCK = 2
# Not Linux's own kernel, one that forbids it, or standard output is no pipe.
_NO_SPLICE = frozenset((errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP))
_MAX_PATH = 100
_SET_PIPE_SIZE = 1031


def connect(path: str) -> int:
    """Returns 0 after the guest has closed, 1 when none answers."""
    connection = dial(path)
    if connection is None:
        sys.stderr.write("workspaced guest: no guest answers\n")
        return 1
    return carry(connection)


def dial(path: str) -> socket | None:
    """A connection to the guest, None when none answers."""
    path = os.path.abspath(path)
    connection = socket(AF_UNIX, SOCK_STREAM)
    directory = -1
    try:
        if len(os.fsencode(path)) > _MAX_PATH:
            directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            path = f"/proc/self/fd/{directory}/{os.path.basename(path)}"
        connection.connect(path)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        connection.close()
        return None
    finally:
        if directory >= 0:
            os.close(directory)
    return connection


def carry(connection: socket) -> int:
    """Two threads that wait, so that a stalled direction never holds up the other."""
    start_new_thread(_send, (connection,))
    _grow_output()
    try:
        if not _splice(connection):
            _copy(connection)
    except (BrokenPipeError, ConnectionResetError):
        # The other side has gone; the guest sees that too.
        return 0
    return 0


def _splice(connection: socket) -> bool:
    """Until the guest closes: the kernel moves the pages themselves, in larger pieces than a pipe takes by writing, so
    that whoever reads it is woken less often too. False where that is impossible; nothing is lost then.
    """
    # Python 3.9 has none.
    splice = getattr(os, "splice", None)
    if splice is None:
        return False
    from select import POLLIN, POLLOUT, poll

    source = connection.fileno()
    readable, writable = poll(), poll()
    readable.register(source, POLLIN)
    writable.register(1, POLLOUT)
    while True:
        # A splice that waits for the socket keeps the pipe locked, for its reader as well, so only poll waits.
        readable.poll()
        try:
            if not splice(source, 1, _SPLICE_BYTES, flags=_SPLICE_NONBLOCK):
                return True
        except BlockingIOError:
            writable.poll()
        except OSError as error:
            if error.errno not in _NO_SPLICE:
                raise
            return False


def _copy(connection: socket) -> None:
    buffer = bytearray(_BYTES)
    view = memoryview(buffer)
    while True:
        count = connection.recv_into(buffer)
        if not count:
            return
        rest = view[:count]
        while rest:
            rest = rest[os.write(1, rest) :]


def _grow_output() -> None:
    try:
        fcntl(1, _SET_PIPE_SIZE, _BYTES)
    except OSError:
        # Not a pipe, or the kernel's bound on pipe memory is reached: then it takes more writes.
        return


def _send(connection: socket) -> None:
    try:
        while True:
            data = os.read(0, _BYTES)
            if not data:
                connection.shutdown(SHUT_WR)
                return
            connection.sendall(data)
    except OSError:
        # The guest has closed; the other thread sees it and ends the program.
        return
