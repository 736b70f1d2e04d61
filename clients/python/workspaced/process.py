"""A process in a workspace."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from . import errors
from .attachment import Attachment
from .connection import Connection
from .process_info import Exit, Gap, Output, ProcessInfo
from .spec import duration
from .v1 import execution_pb2, process_pb2

if TYPE_CHECKING:
    from typing_extensions import Self

_REPEATABLE = frozenset({"KILL", "TERM", "STOP", "CONT", "WINCH"})
"""Signals of which two are as good as one, so that they are sent again when an answer is lost."""
_WAIT_SLICE_SECONDS = 30.0


class Process:
    """A process, running or ended. Made by :class:`Workspace`: ``exec``, ``start``, ``attach`` and ``process``.

    Iterate over it for its output, once: events come in the order in which the process wrote, each byte once, also
    over broken connections and a restart of the server. Iteration ends when the process has ended. The handle can be
    used as an async context manager; leaving it detaches. The process goes on then, unless it was started by ``exec``
    with ``disconnect_policy="kill"``: then its whole tree is killed.

    Output that nobody takes is buffered up to 2 MiB, then kept by the workspace.
    """

    def __init__(
        self,
        connection: Connection,
        workspace_id: str,
        process_id: str,
        *,
        start: process_pb2.ProcessSpec | None = None,
        offset: int = 0,
        gaps: Literal["raise", "yield"] = "raise",
        read_only: bool = False,
    ) -> None:
        if gaps not in ("raise", "yield"):
            raise ValueError(f'gaps is "raise" or "yield", not {gaps!r}')
        if offset < 0:
            raise ValueError("an offset is not negative")
        self.workspace_id = workspace_id
        self.process_id = process_id
        self._connection = connection
        self._kill = start is not None and start.disconnect_policy == process_pb2.DISCONNECT_POLICY_KILL
        self._gaps = gaps
        self._exit: Exit | None = None
        self._attachment = Attachment(
            connection, workspace_id, process_id, start=start, offset=offset, read_only=read_only
        )

    def __repr__(self) -> str:
        return f"<workspaced.Process {self.process_id!r} in {self.workspace_id!r}>"

    async def __aenter__(self) -> Self:
        await self._attachment.open()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._kill and self.exit is None and self._attachment.started is not None:
            try:
                await self.signal("KILL", timeout=5)
            except errors.WorkspacedError:
                pass  # already ended, or not to be reached: the server kills it 10 s after the attachment is gone
            finally:
                await self.aclose()
        else:
            await self.aclose()

    async def aclose(self) -> None:
        """Detach. Idempotent; the process goes on as its ``disconnect_policy`` says."""
        await self._attachment.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Output | Gap:
        """The next event. Raises :class:`OutputLost` for a gap, after which iteration can go on, unless
        ``gaps="yield"``. Cancellation loses nothing."""
        if self._attachment.started is None:
            await self._attachment.open()
        event = await self._attachment.next()
        if event is None:
            raise StopAsyncIteration
        if isinstance(event, Gap) and self._gaps == "raise":
            raise errors.OutputLost(event.start, event.end)
        return event

    @property
    def offset(self) -> int:
        """Offset of the next byte that iteration gives: where ``Workspace.attach`` goes on."""
        return self._attachment.offset

    @property
    def pid(self) -> int | None:
        """Its pid inside the sandbox, once attached; for people, since pids are used again."""
        started = self._attachment.started
        return None if started is None else started.pid

    @property
    def existing(self) -> bool:
        """Whether the process existed before this handle started or attached to it."""
        return self._attachment.existing

    @property
    def exit(self) -> Exit | None:
        """How it ended, as far as this handle has seen."""
        return self._attachment.exit or self._exit

    @property
    def stdin_offset(self) -> int:
        """How many bytes of standard input were taken by :meth:`write` and accepted before."""
        return self._attachment.stdin.end

    async def write(self, data: bytes) -> None:
        """Write to standard input; needs ``stdin=True`` or a pty.

        Returns when the bytes are taken: at most 1 MiB is on its way, else it waits for the process to read. Each byte
        arrives exactly once, also over broken connections. Raises :class:`StdinClosed`. After a cancellation
        ``stdin_offset`` tells how much was taken.
        """
        if self._attachment.started is None:
            await self._attachment.open()
        await self._attachment.write(data)

    async def close_stdin(self) -> None:
        """Close standard input after what was written. Idempotent."""
        if self._attachment.started is None:
            await self._attachment.open()
        self._attachment.close_stdin()

    async def resize(self, cols: int, rows: int) -> None:
        """Give the process's terminal this size, in characters."""
        if self._attachment.started is None:
            await self._attachment.open()
        self._attachment.resize(cols, rows)

    async def signal(self, name: str, *, leader_only: bool = False, timeout: float | None = None) -> int:
        """Send a signal, such as ``"TERM"``, to the whole tree or to the leader alone; returns how many got it.

        Raises :class:`ProcessExited`. KILL, TERM, STOP, CONT and WINCH are sent again when the answer is lost; any
        other signal is then :class:`Unavailable`, and may have been sent.
        """
        scope = execution_pb2.SIGNAL_SCOPE_LEADER if leader_only else execution_pb2.SIGNAL_SCOPE_TREE
        request = execution_pb2.SignalProcessRequest(
            workspace_id=self.workspace_id, process_id=self.process_id, signal=name, scope=scope
        )
        method = self._connection.execution.SignalProcess
        if name.upper().removeprefix("SIG") in _REPEATABLE:
            response = await self._connection.unary(method, request, timeout=timeout)
        else:
            response = await self._connection.once(method, request, timeout=timeout or self._connection.timeout)
        return response.signaled

    async def info(self) -> ProcessInfo:
        """What the workspace knows of it now. Raises :class:`ProcessNotFound`."""
        request = execution_pb2.GetProcessRequest(workspace_id=self.workspace_id, process_id=self.process_id)
        response = await self._connection.unary(self._connection.execution.GetProcess, request)
        return ProcessInfo.from_proto(response.process)

    async def wait(self, *, timeout: float | None = None) -> Exit:
        """Wait for its end, whether or not its output is read; output that was not read can be read afterwards.

        A process that has filled its journal waits for a reader, though, so such output has to be read. ``timeout``
        in seconds bounds the waiting, not the process: :class:`DeadlineExceeded`. Cancellation changes nothing.
        """
        if timeout is None:
            return await self._wait()
        try:
            return await asyncio.wait_for(self._wait(), timeout)
        except asyncio.TimeoutError:
            raise errors.DeadlineExceeded(f"the process still runs after {timeout} s") from None

    async def _wait(self) -> Exit:
        if self.exit is None and self._attachment.started is not None and not self._attachment.closed:
            await self._attachment.settle()
        while self.exit is None:
            request = execution_pb2.WaitProcessRequest(
                workspace_id=self.workspace_id, process_id=self.process_id, timeout=duration(_WAIT_SLICE_SECONDS)
            )
            response = await self._connection.unary(
                self._connection.execution.WaitProcess,
                request,
                timeout=_WAIT_SLICE_SECONDS + self._connection.resume_timeout,
                retry_timeout=self._connection.resume_timeout,
            )
            if response.HasField("exit"):
                self._exit = Exit.from_proto(response.exit)
        if self.exit is None:
            raise AssertionError("the loop ends with an exit")
        return self.exit
