"""Waiting for less than a millisecond, which event loops round up to one."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import time
from collections.abc import Callable
from typing import Any

_NANOSECONDS = 1_000_000_000


class _TimerSpec(ctypes.Structure):
    """``struct itimerspec``."""

    _fields_ = (
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


class Pause:
    """The same short wait again and again, by a timer of the kernel (``timerfd``); for one task at a time.

    Where there is no such timer, as outside Linux, or none is left, it is the event loop's, which takes longer.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        whole, fraction = divmod(seconds, 1)
        self._spec = _TimerSpec(0, 0, int(whole), int(fraction * _NANOSECONDS))
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] | None = None
        self._set_time, self._fd = _make_timer()
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._expired)

    async def wait(self) -> None:
        """Wait once. After a cancellation it can be used again."""
        if self._fd < 0 or self._set_time(self._fd, 0, ctypes.byref(self._spec), None):
            await asyncio.sleep(self._seconds)
            return
        self._over = self._loop.create_future()
        await self._over

    def close(self) -> None:
        """Give the timer back. Idempotent; who waits goes on."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        self._end()

    def _expired(self) -> None:
        # It may have been set anew since.
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)
            self._end()

    def _end(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)


def _make_timer() -> tuple[Callable[..., int], int]:
    """The function that sets it, and the descriptor; negative when there is none."""
    library: Any = ctypes.CDLL(None)
    try:
        # Non-blocking and closed by exec: its flags are those of open.
        fd = library.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    except AttributeError:
        return _no_timer, -1
    return library.timerfd_settime, fd


def _no_timer(*arguments: object) -> int:
    return -1
