"""One attachment to a process: what the guest sends, as events on a gRPC call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from workspaced.v1 import execution_pb2
from workspaced_guest import wire
from workspaced_server.api import answers
from workspaced_server.api.encoding import process_output
from workspaced_server.guest.stream import GuestStream, Nothing
from workspaced_server.processes import STREAM_NAMES, STREAMS, exit_of, process

HEARTBEAT_SECONDS: Final = 10.0
# One message of output to a reader that keeps up. The larger it is, the less a byte costs both sides.
_BULK_BYTES: Final = 4 * wire.MAX_DATA
# So much in one piece has more right behind it; that is waited for.
_BULK_PIECE_BYTES: Final = wire.MAX_DATA // 2
_BULK_WAIT_SECONDS: Final = 0.005

Event = execution_pb2.ProcessEvent
Respond = Callable[[Event], execution_pb2.ExecResponse | execution_pb2.AttachProcessResponse]


class Attachment:
    """The one writer of a call that streams a process.

    Holds the guarantees whatever the guest sends: bytes come in order, once, and without an unsaid hole, or the call
    ends with an error. The guest gets its credit back only as the call's writes complete, so memory is bounded by the
    window.

    `wake` is the event that `output` was opened with.
    """

    def __init__(
        self,
        context: grpc.aio.ServicerContext[Any, Any],
        respond: Respond,
        output: GuestStream,
        wake: asyncio.Event,
        offset: int,
        *,
        follow: bool = True,
    ) -> None:
        self._context = context
        self._respond = respond
        self._output = output
        self._wake = wake
        self._next_offset = offset
        self._follow = follow
        self._gap = False
        self._acknowledged = -1
        self._acknowledged_sent = -1
        self._failure: BaseException | None = None
        self._ahead: bytes | dict[str, Any] | Nothing | None = None
        self._has_ahead = False
        self._loop = asyncio.get_running_loop()
        self._written_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._late_failure: asyncio.TimerHandle | None = None

    async def start(self) -> answers.Answer:
        """Wait until the guest has attached and send `started`; returns the guest's process object.

        Raises WorkspacedError, ChannelLost.
        """
        first = answers.message(await self._output.receive())
        started = answers.record(first, "started")
        await self._write(
            Event(
                started=execution_pb2.ProcessStarted(
                    process=process(started), next_offset=self._next_offset, existing=answers.flag(first, "existing")
                )
            )
        )
        return started

    async def run(self) -> None:
        """Send events until the process has ended or, without following, the journal has.

        Raises WorkspacedError, ChannelLost, and whatever `fail` was given. Cancellation detaches.
        """
        self._tick()
        try:
            while True:
                self._wake.clear()
                if self._failure is not None:
                    raise self._failure
                if self._acknowledged > self._acknowledged_sent:
                    self._acknowledged_sent = self._acknowledged
                    await self._write(Event(stdin_ack=execution_pb2.StdinAck(offset=self._acknowledged)))
                item = self._take()
                if isinstance(item, Nothing):
                    if self._loop.time() - self._written_at >= HEARTBEAT_SECONDS:
                        await self._heartbeat()
                    else:
                        await self._wake.wait()
                elif item is None:
                    return await self._finish()
                elif isinstance(item, bytes):
                    await self._deliver(item)
                else:
                    await self._tell(item)
        finally:
            for timer in (self._timer, self._late_failure):
                if timer is not None:
                    timer.cancel()

    def acknowledge(self, offset: int) -> None:
        """Standard input below `offset` is in the pipe. Only the newest of several is sent."""
        if offset > self._acknowledged:
            self._acknowledged = offset
            self._wake.set()

    def fail(self, error: BaseException) -> None:
        """End the call with `error`, after the write that is under way."""
        if self._failure is None:
            self._failure = error
            self._wake.set()

    def fail_unless_exited(self, error: BaseException, within: float) -> None:
        """End the call with `error` unless the process ends `within` seconds, which then says it all."""
        if self._late_failure is None:
            self._late_failure = self._loop.call_later(within, self.fail, error)

    def _take(self, *, release: bool = True) -> bytes | dict[str, Any] | Nothing | None:
        if self._has_ahead:
            self._has_ahead = False
            return self._ahead
        return self._output.receive_nowait(release=release)

    async def _deliver(self, record: bytes) -> None:
        """Send a record, together with those behind it that continue it: up to 256 KiB, 1 MiB to a fast reader."""
        tag, offset, data = _split(record)
        if offset != self._next_offset:
            raise answers.malformed()
        pieces = [data]
        size = len(data)
        limit = _BULK_BYTES if self._output.wide and size >= _BULK_PIECE_BYTES else wire.MAX_DATA
        deadline = self._loop.time() + _BULK_WAIT_SECONDS
        while size < limit:
            item = self._take(release=False)
            if isinstance(item, Nothing):
                if limit > wire.MAX_DATA and await self._more(deadline):
                    continue
                break
            if isinstance(item, bytes):
                next_tag, next_offset, data = _split(item)
                if next_tag == tag and next_offset == offset + size and size + len(data) <= limit:
                    pieces.append(data)
                    size += len(data)
                    continue
            self._ahead, self._has_ahead = item, True
            break
        await self._context.write(process_output(STREAMS[tag], offset, *pieces))
        self._written_at = self._loop.time()
        self._next_offset = offset + size

    async def _more(self, deadline: float) -> bool:
        """Wait for something to do, until `deadline` by the loop's clock; False when nothing came."""
        self._wake.clear()
        try:
            async with asyncio.timeout_at(deadline):
                await self._wake.wait()
        except TimeoutError:
            return False
        return self._failure is None

    async def _tell(self, message: dict[str, Any]) -> None:
        if "gap" in message:
            gap = answers.record(message, "gap")
            start, end = answers.integer(gap, "from"), answers.integer(gap, "to")
            if start != self._next_offset or end <= start:
                raise answers.malformed()
            self._gap = True
            self._next_offset = end
            event = Event()
            # The field is a word of Python.
            setattr(event.gap, "from", start)
            event.gap.to = end
            await self._write(event)
        elif "eof" in message:
            stream = STREAM_NAMES.get(answers.text(message, "eof"))
            if stream is None:
                raise answers.malformed()
            await self._write(Event(eof=execution_pb2.ProcessEof(stream=stream)))
        else:
            raise answers.malformed()

    async def _finish(self) -> None:
        result = self._output.result
        if result.get("exit") is None:
            if self._follow:
                raise answers.malformed()
            return
        exited = exit_of(answers.record(result, "exit"))
        exited.output_incomplete = exited.output_incomplete or self._gap
        await self._write(Event(exited=exited))

    async def _heartbeat(self) -> None:
        now = Timestamp()
        now.FromNanoseconds(time.time_ns())
        await self._write(Event(heartbeat=execution_pb2.ProcessHeartbeat(next_offset=self._next_offset, time=now)))

    async def _write(self, event: Event) -> None:
        await self._context.write(self._respond(event))
        self._written_at = self._loop.time()

    def _tick(self) -> None:
        """Wake the writer when it may have been silent for too long; one timer for the whole call."""
        idle = self._loop.time() - self._written_at
        if idle >= HEARTBEAT_SECONDS:
            self._wake.set()
            idle = 0.0
        self._timer = self._loop.call_later(HEARTBEAT_SECONDS - idle, self._tick)


def _split(record: bytes) -> tuple[int, int, memoryview]:
    if not wire.RECORD.size <= len(record) <= wire.RECORD.size + wire.MAX_DATA:
        raise answers.malformed()
    tag, offset = wire.RECORD.unpack_from(record)
    if tag not in STREAMS:
        raise answers.malformed()
    return tag, offset, memoryview(record)[wire.RECORD.size :]
