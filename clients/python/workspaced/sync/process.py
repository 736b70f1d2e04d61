"""Written by generate_sync.py from workspaced.process; do not edit."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING

from workspaced import process as twin
from workspaced.process_info import Exit, Gap, Output, ProcessInfo

from .portal import call

if TYPE_CHECKING:
    from typing_extensions import Self


class Process:
    """A process, running or ended. Made by :class:`Workspace`: ``exec``, ``start``, ``attach`` and ``process``.

    Iterate over it for its output, once: events come in the order in which the process wrote, each byte once, also
    over broken connections and a restart of the server. Iteration ends when the process has ended. The handle can be
    used as a context manager; leaving it detaches. The process goes on then, unless it was started by ``exec``
    with ``disconnect_policy="kill"``: then its whole tree is killed.

    Output that nobody takes is buffered up to 2 MiB, then kept by the workspace.
    """

    def __init__(self, asynchronous: twin.Process) -> None:
        self._twin = asynchronous

    @property
    def workspace_id(self) -> str:
        """As in the asynchronous face."""
        return self._twin.workspace_id

    @property
    def process_id(self) -> str:
        """As in the asynchronous face."""
        return self._twin.process_id

    def __repr__(self) -> str:
        return self._twin.__repr__()

    def __enter__(self) -> Self:
        call(self._twin.__aenter__())
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        call(self._twin.__aexit__(exc_type, exc, traceback))

    def close(self) -> None:
        """Detach. Idempotent; the process goes on as its ``disconnect_policy`` says."""
        call(self._twin.aclose())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Output | Gap:
        """The next event. Raises :class:`OutputLost` for a gap, after which iteration can go on, unless
        ``gaps="yield"``. Cancellation loses nothing.
        """
        with contextlib.suppress(StopAsyncIteration):
            return call(self._twin.__anext__())
        raise StopIteration

    @property
    def offset(self) -> int:
        """Offset of the next byte that iteration gives: where ``Workspace.attach`` goes on."""
        return self._twin.offset

    @property
    def pid(self) -> int | None:
        """Its pid inside the sandbox, once attached; for people, since pids are used again."""
        return self._twin.pid

    @property
    def existing(self) -> bool:
        """Whether the process existed before this handle started or attached to it."""
        return self._twin.existing

    @property
    def exit(self) -> Exit | None:
        """How it ended, as far as this handle has seen."""
        return self._twin.exit

    @property
    def stdin_offset(self) -> int:
        """How many bytes of standard input were taken by :meth:`write` and accepted before."""
        return self._twin.stdin_offset

    def write(self, data: bytes) -> None:
        """Write to standard input; needs ``stdin=True`` or a pty.

        Returns when the bytes are taken: at most 1 MiB is on its way, else it waits for the process to read. Each byte
        arrives exactly once, also over broken connections. Raises :class:`StdinClosed`. After a cancellation
        ``stdin_offset`` tells how much was taken.
        """
        call(self._twin.write(data))

    def close_stdin(self) -> None:
        """Close standard input after what was written. Idempotent."""
        call(self._twin.close_stdin())

    def resize(self, cols: int, rows: int) -> None:
        """Give the process's terminal this size, in characters."""
        call(self._twin.resize(cols, rows))

    def signal(self, name: str, *, leader_only: bool = False, timeout: float | None = None) -> int:
        """Send a signal, such as ``"TERM"``, to the whole tree or to the leader alone; returns how many got it.

        Raises :class:`ProcessExited`. KILL, TERM, STOP, CONT and WINCH are sent again when the answer is lost; any
        other signal is then :class:`Unavailable`, and may have been sent.
        """
        return call(self._twin.signal(name, leader_only=leader_only, timeout=timeout))

    def info(self) -> ProcessInfo:
        """What the workspace knows of it now. Raises :class:`ProcessNotFound`."""
        return call(self._twin.info())

    def wait(self, *, timeout: float | None = None) -> Exit:
        """Wait for its end, whether or not its output is read; output that was not read can be read afterwards.

        A process that has filled its journal waits for a reader, though, so such output has to be read. ``timeout``
        in seconds bounds the waiting, not the process: :class:`DeadlineExceeded`. Cancellation changes nothing.
        """
        return call(self._twin.wait(timeout=timeout))
