"""This side of a conversation: the descriptors of standard input and output, and the terminal in raw mode."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import stat
import termios
import tty
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

READ_BYTES = 64 << 10
PIPE_BYTES = select.PIPE_BUF  # a pipe that is writable takes so many without blocking


class Input:
    """A descriptor read without blocking the loop, and without O_NONBLOCK: that would be shared with this shell."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def chunks(self) -> AsyncIterator[bytes]:
        """What arrives, until the end of the file or the terminal's hang-up."""
        while True:
            await self._readable()
            try:
                data = os.read(self._descriptor, READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                return  # the terminal is gone, or was never there
            if not data:
                return
            yield data

    async def _readable(self) -> None:
        await _ready(self._descriptor, "reader")


class OutputPipe:
    """A descriptor written without blocking the loop, so that a reader that pauses does not keep Ctrl-C away."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        mode = os.fstat(descriptor).st_mode
        self._file = stat.S_ISREG(mode) or stat.S_ISBLK(mode)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    async def write(self, data: bytes) -> None:
        """Write all. Raises BrokenPipeError when nobody reads any more. A cancelled write has written a part."""
        view = memoryview(data)
        while view:
            if not self._file and not self._poll.poll(0):
                await _ready(self._descriptor, "writer")
            try:
                view = view[os.write(self._descriptor, view if self._file else view[:PIPE_BYTES]) :]
            except BlockingIOError:
                await _ready(self._descriptor, "writer")


async def _ready(descriptor: int, side: str) -> None:
    """Wait until a descriptor can be read or written; a regular file always can."""
    loop = asyncio.get_running_loop()
    add: Callable[..., None] = getattr(loop, f"add_{side}")
    remove: Callable[[int], bool] = getattr(loop, f"remove_{side}")
    ready = loop.create_future()

    def set_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    try:
        add(descriptor, set_ready)
    except (PermissionError, OSError, ValueError):
        await asyncio.sleep(0)
        return
    try:
        await ready
    finally:
        remove(descriptor)


class Terminal:
    """The terminal of standard input. Raw mode ends with `raw`, whatever ends it short of SIGKILL."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._saved = termios.tcgetattr(descriptor)

    def size(self) -> tuple[int, int]:
        """Columns and rows; 80 by 24 where the terminal does not know."""
        return window_size(self._descriptor)

    @contextmanager
    def raw(self) -> Iterator[None]:
        """Every key goes to the program, as it is."""
        try:
            self._enter()
            yield
        finally:
            self.restore()

    def _enter(self) -> None:
        tty.setraw(self._descriptor, termios.TCSADRAIN)

    def restore(self) -> None:
        """Put the terminal back as it was. Idempotent."""
        # A process in the background that sets the terminal would be stopped by SIGTTOU before it has done so.
        previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._saved)
        except termios.error:
            pass  # the terminal is gone, and its settings with it
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous)

    def suspend(self) -> None:
        """Stop as SIGTSTP would, with the terminal restored meanwhile; returns when continued."""
        self.restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()


def window_size(descriptor: int) -> tuple[int, int]:
    """Columns and rows of a terminal; 80 by 24 where it is none or does not know."""
    try:
        size = os.get_terminal_size(descriptor)
    except OSError:
        return 80, 24
    return (size.columns or 80, size.lines or 24)
