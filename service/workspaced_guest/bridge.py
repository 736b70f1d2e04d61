"""`connect`: carries bytes between standard input and output and the guest's socket. Imports almost nothing."""

from __future__ import annotations

import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SHUT_WR, SOCK_STREAM, SOL_SOCKET, socket
from _stat import S_ISFIFO
from _struct import pack
from _thread import start_new_thread

_BYTES = 256 * 1024
_MAX_PATH = 100


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
    """Two threads that wait, so that a stalled direction never holds up the other.

    The guest is offered standard output itself (`outlet`). What it sends over the socket all the same is carried: an
    older guest takes no offer, and none is made unless standard output is a pipe.
    """
    start_new_thread(_send, (connection,))
    try:
        _copy(connection)
    except (BrokenPipeError, ConnectionResetError):
        # The other side has gone; the guest sees that too.
        return 0
    return 0


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


def _send(connection: socket) -> None:
    try:
        # It goes with the first bytes, since one of its own would be a byte too many for who takes no offer.
        offer = [(SOL_SOCKET, SCM_RIGHTS, pack("i", 1))] if S_ISFIFO(os.fstat(1).st_mode) else []
        while True:
            data = os.read(0, _BYTES)
            if not data:
                connection.shutdown(SHUT_WR)
                return
            sent = connection.sendmsg([data], offer)
            offer = []
            connection.sendall(data[sent:])
    except OSError:
        # The guest has closed; the other thread sees it and ends the program.
        return
