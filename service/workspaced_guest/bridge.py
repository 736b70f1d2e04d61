"""`connect`: carries bytes between standard input and output and the guest's socket. Imports almost nothing."""

from __future__ import annotations

import os
import sys
from _socket import AF_UNIX, SHUT_WR, SOCK_STREAM, socket
from _thread import start_new_thread
from fcntl import fcntl

_BYTES = 256 * 1024
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
    """Two threads that block, so that a stalled direction never holds up the other."""
    start_new_thread(_send, (connection,))
    _grow_output()
    buffer = bytearray(_BYTES)
    view = memoryview(buffer)
    try:
        while True:
            count = connection.recv_into(buffer)
            if not count:
                return 0
            rest = view[:count]
            while rest:
                rest = rest[os.write(1, rest) :]
    except (BrokenPipeError, ConnectionResetError):
        # The other side has gone; the guest sees that too.
        return 0


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
