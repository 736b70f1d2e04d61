"""Standard input of a process on an Exec call: exactly once, by offset."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

from workspaced.v1 import execution_pb2
from workspaced_server.api import answers
from workspaced_server.api.limits import MAX_CHUNK_BYTES
from workspaced_server.companion import companion
from workspaced_server.errors import Code, FieldViolation, WorkspacedError, invalid
from workspaced_server.guest.channel import GuestChannel
from workspaced_server.guest.faults import renamed
from workspaced_server.guest.stream import GuestStream

# What the guest's faults are called where standard input is written.
NAMES = {"OFFSET_INVALID": "STDIN_OFFSET_INVALID"}


def offset_invalid(expected: int) -> WorkspacedError:
    """Bytes are missing before the ones that came."""
    return WorkspacedError(
        Code.OUT_OF_RANGE,
        "STDIN_OFFSET_INVALID",
        f"standard input continues at offset {expected}: send from there",
        {"expected_offset": str(expected)},
    )


def closed(process_id: str) -> WorkspacedError:
    """Bytes came after the end."""
    return WorkspacedError(
        Code.FAILED_PRECONDITION, "STDIN_CLOSED", "standard input was closed before", {"process_id": process_id}
    )


class StdinWriter:
    """Carries the chunks of one call to the guest over one stream, which it opens with the first of them.

    Owned by the task that reads requests; `acknowledged` and `failed` are called from it and from a companion. Close
    with `aclose`.
    """

    def __init__(
        self,
        guest: GuestChannel,
        process_id: str,
        offset: int,
        acknowledged: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """`offset` is where input stood when the call attached; used for a close before any chunk."""
        self._guest = guest
        self._process_id = process_id
        self._next = offset
        self._acknowledged = acknowledged
        self._failed = failed
        self._resources = AsyncExitStack()
        self._stream: GuestStream | None = None
        self._closed = False

    async def write(self, chunk: execution_pb2.StdinChunk) -> None:
        """Pass a chunk on; bytes that this call has sent before are skipped. Waits for the guest's credit.

        Raises WorkspacedError STDIN_OFFSET_INVALID, STDIN_CLOSED, ARGUMENT_INVALID; ChannelLost.
        """
        if len(chunk.data) > MAX_CHUNK_BYTES:
            raise invalid(FieldViolation("stdin.data", "must have at most 1 MiB: send it in several chunks"))
        stream = await self._open(chunk.offset)
        if chunk.offset > self._next:
            raise offset_invalid(self._next)
        fresh = chunk.data[self._next - chunk.offset :]
        if not fresh:
            return
        if self._closed:
            raise closed(self._process_id)
        self._next += len(fresh)
        await stream.send(fresh)

    async def close(self, request: execution_pb2.CloseStdin) -> None:
        """Close standard input after what was sent, or at the length that the caller names. Idempotent. Raises as
        `write`.
        """
        offset = request.offset if request.HasField("offset") else self._next
        stream = await self._open(offset)
        if offset != self._next:
            raise offset_invalid(self._next)
        if not self._closed:
            self._closed = True
            await stream.message({"close": True})
            stream.end()

    async def aclose(self) -> None:
        """Leave the guest's stream. What it has not put into the pipe by now was never acknowledged."""
        await self._resources.aclose()

    async def _open(self, offset: int) -> GuestStream:
        if self._stream is None:
            params = {"process_id": self._process_id, "offset": offset}
            self._stream = await self._resources.enter_async_context(self._guest.open("process.stdin", params))
            self._next = offset
            await self._resources.enter_async_context(companion(self._listen(self._stream), self._failed))
        return self._stream

    async def _listen(self, stream: GuestStream) -> None:
        try:
            while (item := await stream.receive()) is not None:
                self._acknowledged(answers.integer(answers.message(item), "ack"))
            self._acknowledged(answers.integer(stream.result, "ack"))
        except WorkspacedError as error:
            raise renamed(error, NAMES) from None


async def write_all(stream: GuestStream, data: bytes, *, close: bool) -> int:
    """Write all of `data` on a ``process.stdin`` stream and wait until it is in the pipe; returns the offset after it.

    Raises WorkspacedError STDIN_OFFSET_INVALID, STDIN_CLOSED, PROCESS_NOT_FOUND; ChannelLost.
    """
    await stream.send(data)
    if close:
        await stream.message({"close": True})
    stream.end()
    try:
        while await stream.receive() is not None:
            pass
    except WorkspacedError as error:
        raise renamed(error, NAMES) from None
    return answers.integer(stream.result, "ack")
