"""A program on a pseudo-terminal of its own, as somebody at a keyboard would use it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self


class TerminalSession:
    """Runs a program with the terminal as its controlling one. Keep it in a ``with``: leaving it ends the program."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], cols: int = 80, rows: int = 24) -> None:
        self._master, self._slave = pty.openpty()
        self.output = b""
        self._set_size(cols, rows)
        self.settings = self.attributes()
        self.process = subprocess.Popen(
            list(command),
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={"TERM": "xterm", **env},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  (one system call)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)

    def attributes(self) -> list[Any]:
        """The terminal's settings, to compare."""
        return termios.tcgetattr(self._slave)

    @property
    def raw(self) -> bool:
        """Whether keys go to the program as they are."""
        return not self.attributes()[3] & termios.ICANON

    def _set_size(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def resize(self, cols: int, rows: int) -> None:
        """Change the size, as dragging a window's corner does."""
        self._set_size(cols, rows)
        self.process.send_signal(signal.SIGWINCH)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def expect(self, needle: str, seconds: float = 20) -> bytes:
        """Wait for text that comes after what was expected before; returns what came until then, and with it."""
        wanted = needle.encode()
        deadline = time.monotonic() + seconds
        while wanted not in self.output:
            if not self._read(deadline):
                raise AssertionError(f"{needle!r} never came: {self.output!r}")
        seen, _, self.output = self.output.partition(wanted)
        return seen + wanted

    def wait(self, seconds: float = 20) -> int:
        """Wait for the program's end; returns its exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                raise AssertionError(f"it goes on: {self.output!r}")
            self._read(min(deadline, time.monotonic() + 0.05))
        while self._read(time.monotonic()):
            pass
        return self.process.returncode

    def _read(self, deadline: float) -> bool:
        if not select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        self.output += os.read(self._master, 1 << 16)
        return True
