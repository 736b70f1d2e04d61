"""One unbroken view of a process's journal and standard input, over as many calls as it takes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeAlias

import grpc

from . import errors
from .backoff import Backoff
from .connection import Connection
from .first_status import FirstStatus, leave
from .process_info import Exit, Gap, Output, ProcessInfo
from .stdin_buffer import CHUNK_BYTES, StdinBuffer
from .v1 import execution_pb2, process_pb2

_Call: TypeAlias = (
    "grpc.aio.StreamStreamCall[execution_pb2.ExecRequest, execution_pb2.ExecResponse]"
    " | grpc.aio.UnaryStreamCall[execution_pb2.AttachProcessRequest, execution_pb2.AttachProcessResponse]"
)

_STREAMS = {
    process_pb2.STREAM_STDOUT: "stdout",
    process_pb2.STREAM_STDERR: "stderr",
    process_pb2.STREAM_PTY: "pty",
}
BUFFER_BYTES = 2 << 20
"""Output that is read ahead of the program; then the stream waits, and in the end the process."""
SILENCE_SECONDS = 25.0
"""The server sends a heartbeat after 10 s without output, so a stream silent for this long is dead."""


class Attachment:
    """Reads in a task of its own until the process has ended, re-attaching when a connection breaks.

    Nothing runs before :meth:`open`; :meth:`aclose` ends the task and the call, which detaches from the process.
    """

    def __init__(
        self,
        connection: Connection,
        workspace_id: str,
        process_id: str,
        *,
        start: process_pb2.ProcessSpec | None,
        offset: int,
        read_only: bool,
    ) -> None:
        self._connection = connection
        self._workspace_id = workspace_id
        self._process_id = process_id
        self._start = start
        self._read_only = read_only
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        # Output that was read and not yet taken.
        self._events: deque[Output | Gap] = deque()
        self._buffered = 0
        self._next_read = offset
        self._readable = asyncio.Event()
        self._space = asyncio.Event()
        # The state of the process, as this attachment saw it.
        self.started: ProcessInfo | None = None
        self.existing = False
        self.exit: Exit | None = None
        self.offset = offset
        self._error: BaseException | None = None
        self._finished = False
        self._opened = asyncio.Event()
        self._changed = asyncio.Event()
        # Standard input and the terminal.
        self.stdin = StdinBuffer()
        self.stdin_closed = False
        self._stdin_broken: errors.WorkspacedError | None = None
        self._size: tuple[int, int] | None = None
        self._wake = asyncio.Event()
        # The connection.
        self._reading_since: float | None = None
        self._silent = False
        self._lost_at: float | None = None
        self._unreachable_at: float | None = None
        self._backoff = Backoff()

    async def open(self) -> None:
        """Attach, and wait until it stands. Raises what the server answered. Cancellation closes the attachment."""
        if self._closing:
            raise RuntimeError("the process handle is closed")
        if self._task is None:
            self._connection.open()
            self._task = asyncio.create_task(self._run(), name=f"workspaced attachment {self._process_id}")
        try:
            await self._opened.wait()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if self._error is not None and self.started is None:
            raise self._error

    async def aclose(self) -> None:
        """Detach. Idempotent. What was read and not taken is dropped."""
        self._closing = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._events.clear()

    @property
    def closed(self) -> bool:
        """Whether :meth:`aclose` was called."""
        return self._closing

    async def next(self) -> Output | Gap | None:
        """The next event; ``None`` when the process has ended. Cancellation loses nothing."""
        while not self._events:
            if self._finished or self._closing:
                if self._error is not None:
                    raise self._error
                return None
            self._readable.clear()
            await self._readable.wait()
        event = self._events.popleft()
        if isinstance(event, Output):
            size = len(event.data)
            self._buffered -= size
            self.offset = event.offset + size
            if self._buffered <= BUFFER_BYTES // 2:
                self._space.set()
        else:
            self.offset = event.end
        return event

    async def settle(self) -> Exit | None:
        """Wait for the exit; ``None`` when it cannot come because output that nobody takes is in its way."""
        while not self._finished and self._buffered < BUFFER_BYTES:
            self._changed.clear()
            await self._changed.wait()
        if self.exit is None and self._error is not None:
            raise self._error
        return self.exit

    async def write(self, data: bytes) -> None:
        """Take bytes for standard input, waiting while 1 MiB is on its way.

        Raises :class:`StdinClosed`. After a cancellation, ``stdin.end`` tells how many bytes were taken.
        """
        if self._read_only:
            raise errors.StdinClosed("the process was attached to only for reading", reason="STDIN_CLOSED")
        view = memoryview(data)
        position = 0
        while True:
            self._check_stdin()
            size = min(self.stdin.room, CHUNK_BYTES, len(view) - position)
            if size > 0:
                self.stdin.append(bytes(view[position : position + size]))
                position += size
                self._wake.set()
            if position == len(view):
                return
            if self.stdin.room <= 0:
                self._changed.clear()
                await self._changed.wait()

    def close_stdin(self) -> None:
        """Close standard input after what was written. Idempotent."""
        self.stdin_closed = True
        self._wake.set()

    def resize(self, cols: int, rows: int) -> None:
        """Give the terminal this size; the last one counts."""
        self._size = (cols, rows)
        self._wake.set()

    def _check_stdin(self) -> None:
        if self._stdin_broken is not None:
            raise errors.StdinClosed(self._stdin_broken.message, reason="STDIN_CLOSED")
        if self.exit is not None:
            raise errors.StdinClosed("the process has ended", reason="STDIN_CLOSED")
        if self._error is not None:
            raise self._error
        if self.stdin_closed or self._closing:
            raise errors.StdinClosed("standard input is closed", reason="STDIN_CLOSED")

    # The task.

    async def _run(self) -> None:
        try:
            while not await self._attach_once():
                pass
        except asyncio.CancelledError:
            if not self._closing:
                self._error = errors.Cancelled("the event loop is being stopped")
            raise
        except Exception as error:  # noqa: BLE001 (it is raised to whoever reads)
            self._error = error
        finally:
            self._finished = True
            self._opened.set()
            self._readable.set()
            self._changed.set()

    async def _attach_once(self) -> bool:
        """One call, from its start to its end. True when the process has ended; waits before it says False."""
        call = self._call()
        status = FirstStatus(call)
        try:
            await self._converse(call)
            if self.exit is not None:
                return True
            error: errors.WorkspacedError = errors.Unavailable("the stream ended before the process did")
        except grpc.aio.AioRpcError as broken:
            if self.exit is not None:
                return True  # the exit is the last event: how the call ended after it means nothing
            error = await status.error(broken)
        except asyncio.CancelledError:
            if self._closing or not self._silent:
                raise
            error = errors.Unavailable("the stream fell silent")
        finally:
            leave(call)  # one that is only dropped goes on at the server; after its status was asked for
        if self.started is not None and isinstance(error, errors.StdinClosed):
            # Nobody reads standard input any more, but the output goes on: attach without it.
            self._stdin_broken = error
            self.stdin.clear()
            self._changed.set()
            return False
        await self._pause(error)
        return False

    async def _pause(self, error: errors.WorkspacedError) -> None:
        """Wait before the next attempt, or raise the error when there is none."""
        now = asyncio.get_running_loop().time()
        if self._lost_at is None:
            self._lost_at = now
        limit = self._connection.retry_limit(error, self._connection.resume_timeout)
        since = self._lost_at
        if isinstance(error, errors.Unreachable):
            if self._unreachable_at is None:
                self._unreachable_at = now
            since = self._unreachable_at
        delay = self._backoff.next(error.retry_after)
        if limit == 0 or now + delay > since + limit:
            raise error from None
        await asyncio.sleep(delay)

    async def _converse(self, call: _Call) -> None:
        sender: asyncio.Task[None] | None = None
        watchdog = asyncio.get_running_loop().call_later(SILENCE_SECONDS / 2, self._watch, call)
        self._silent = False
        try:
            if not self._read_only:
                await self._send_first(call)
            while True:
                self._reading_since = asyncio.get_running_loop().time()
                response = await call.read()
                self._reading_since = None
                if not isinstance(response, (execution_pb2.ExecResponse, execution_pb2.AttachProcessResponse)):
                    return
                event = response.event
                kind = event.WhichOneof("event")
                if kind == "output":
                    await self._output(event.output)
                elif kind == "started":
                    self._connection.heard(call)
                    self._on_started(event.started)
                    if not self._read_only and sender is None:
                        sender = asyncio.create_task(self._send(call))
                elif kind == "stdin_ack":
                    if self.stdin.acknowledge(event.stdin_ack.offset):
                        self._progress()
                        self._changed.set()
                elif kind == "gap":
                    self._gap(getattr(event.gap, "from"), event.gap.to)
                elif kind == "heartbeat":
                    self._progress()
                elif kind == "exited" and self.exit is None:
                    self.exit = Exit.from_proto(event.exited)
                    self._finished = True
                    self._readable.set()
                    self._changed.set()
        finally:
            self._reading_since = None
            self._watchdog_cancel(watchdog)
            if sender is not None:
                sender.cancel()
                await asyncio.wait([sender])

    def _call(self) -> _Call:
        execution, metadata = self._connection.execution, self._connection.metadata
        if not self._read_only:
            return execution.Exec(metadata=metadata)
        return execution.AttachProcess(
            execution_pb2.AttachProcessRequest(
                workspace_id=self._workspace_id, process_id=self._process_id, offset=self._next_read
            ),
            metadata=metadata,
        )

    async def _send_first(self, call: _Call) -> None:
        request = execution_pb2.ExecRequest()
        if self._start is not None and self.started is None:
            # Also when an answer was lost: the id is ours, so the same start again attaches to what it started.
            request.start.workspace_id = self._workspace_id
            request.start.process_id = self._process_id
            request.start.spec.CopyFrom(self._start)
        else:
            request.attach.workspace_id = self._workspace_id
            request.attach.process_id = self._process_id
            request.attach.offset = self._next_read
        await self._write(call, request)

    async def _send(self, call: _Call) -> None:
        """What goes to the process on one call: the size, input from the first unacknowledged byte, the close."""
        sent, closed, size = self.stdin.acked, False, None
        while True:
            self._wake.clear()
            # Before input that may have been written after it; for a terminal, to have its size early is no harm.
            if self._size is not None and self._size != size:
                size = self._size
                request = execution_pb2.ExecRequest()
                request.resize.cols, request.resize.rows = size
                if not await self._write(call, request):
                    return
            if self._stdin_broken is None:
                for offset, chunk in self.stdin.chunks(sent):
                    request = execution_pb2.ExecRequest()
                    request.stdin.offset, request.stdin.data = offset, chunk
                    if not await self._write(call, request):
                        return
                    sent = offset + len(chunk)
            if self.stdin_closed and not closed and sent == self.stdin.end and self._stdin_broken is None:
                closed = True
                request = execution_pb2.ExecRequest()
                request.close_stdin.offset = self.stdin.end
                if not await self._write(call, request):
                    return
            await self._wake.wait()

    @staticmethod
    async def _write(call: _Call, request: execution_pb2.ExecRequest) -> bool:
        """False when the call has ended; reading it tells how."""
        if not isinstance(call, grpc.aio.StreamStreamCall):
            raise TypeError("only Exec carries input")
        try:
            await call.write(request)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return False
        return True

    def _watch(self, call: _Call) -> None:
        loop = asyncio.get_running_loop()
        if call.done():
            return
        if self._reading_since is not None and loop.time() - self._reading_since > SILENCE_SECONDS:
            self._silent = True
            call.cancel()
            return
        self._watchdog = loop.call_later(SILENCE_SECONDS / 4, self._watch, call)

    _watchdog: asyncio.TimerHandle | None = None

    def _watchdog_cancel(self, first: asyncio.TimerHandle) -> None:
        first.cancel()
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None

    def _progress(self) -> None:
        self._lost_at = self._unreachable_at = None
        self._backoff.reset()

    def _on_started(self, started: execution_pb2.ProcessStarted) -> None:
        first = self.started is None
        self.started = ProcessInfo.from_proto(started.process)
        self._lost_at = self._unreachable_at = None
        if first:
            self.existing = started.existing
            self.stdin.begin(started.process.stdin_offset)
            self._opened.set()
        elif self.stdin.acknowledge(started.process.stdin_offset):
            self._changed.set()

    async def _output(self, output: execution_pb2.ProcessOutput) -> None:
        data, offset = output.data, output.offset
        expected = self._next_read
        if offset != expected:
            if offset > expected:
                raise errors.Internal(f"output at offset {offset} where {expected} was due", reason="STREAM_DISORDERED")
            data, offset = data[expected - offset :], expected
            if not data:
                return  # delivered before
        self._next_read = offset + len(data)
        if self._lost_at is not None or self._unreachable_at is not None:
            self._progress()
        self._events.append(Output(_STREAMS.get(output.stream, "stdout"), data, offset))
        self._buffered += len(data)
        self._readable.set()
        if self._buffered >= BUFFER_BYTES:
            self._changed.set()
            while self._buffered >= BUFFER_BYTES:
                self._space.clear()
                await self._space.wait()

    def _gap(self, start: int, end: int) -> None:
        start = max(start, self._next_read)
        if end > start:
            self._next_read = end
            self._events.append(Gap(start, end))
            self._readable.set()
