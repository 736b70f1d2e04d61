"""The size of a pipe that is filled."""

from __future__ import annotations

import fcntl

PIPE_BYTES = 1 << 20
_SET_PIPE_SIZE = 1031


def grow(fd: int) -> None:
    """Makes it hold `PIPE_BYTES`, where the kernel allows it.

    Only for one that is filled: the kernel bounds the pipe memory of a user.
    """
    try:
        fcntl.fcntl(fd, _SET_PIPE_SIZE, PIPE_BYTES)
    except OSError:
        return
