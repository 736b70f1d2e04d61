"""Reading back what was offloaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from workspaced.v1 import content_pb2, offload_pb2
from workspaced_guest import wire
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.guest import answers
from workspaced_server.guest.stream import GuestStream
from workspaced_server.offload import messages
from workspaced_server.offload.layout import describe, locate, not_found
from workspaced_server.offload.parcel import Workspace

# A longer line is made a message in a thread, so that it holds up nobody else.
_LONG_BYTES: Final = 64 * 1024


class Reading:
    """One offload that is read: `header` says what it is; then either `chunks` or `messages` once."""

    def __init__(self, stream: GuestStream, header: offload_pb2.Offload) -> None:
        self.header = header
        self._stream = stream

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes, at most 256 KiB at a time. Raises WorkspacedError, ChannelLost."""
        while (item := await self._stream.receive()) is not None:
            if not isinstance(item, bytes) or len(item) > wire.MAX_DATA:
                raise answers.malformed()
            yield item

    async def messages(self, first: int, limit: int) -> AsyncIterator[tuple[int, content_pb2.Message]]:
        """Messages with their places, the first of which is on line `first`; 0 is no limit. Blank lines are passed
        over. Raises WorkspacedError OFFLOAD_LINE_INVALID for a line that is no message, and OFFLOAD_MESSAGE_TOO_LARGE
        for one that does not fit into an answer, after those before it.
        """
        index, count = first, 0
        async for line in self._lines():
            if line and not line.isspace():
                if len(line) > messages.MAX_LINE_BYTES:
                    raise _too_large(index)
                try:
                    message = await _decode(line)
                except (ValueError, RecursionError):
                    raise _invalid_line(index) from None
                if message.ByteSize() > messages.MAX_MESSAGE_BYTES:
                    raise _too_large(index)
                yield index, message
                count += 1
                if count == limit:
                    return
            index += 1

    async def _lines(self) -> AsyncIterator[bytes]:
        """Lines without their newline; the last one may lack it."""
        begun: list[bytes] = []
        size = 0
        async for data in self.chunks():
            lines = data.split(b"\n")
            if len(lines) > 1:
                yield b"".join((*begun, lines[0]))
                begun, size = [], 0
                for line in lines[1:-1]:
                    yield line
            if size <= messages.MAX_LINE_BYTES:
                # What is longer is refused: its beginning is enough for that.
                begun.append(lines[-1])
                size += len(lines[-1])
        if size:
            yield b"".join(begun)


@asynccontextmanager
async def reading(workspace: Workspace, path: str, params: dict[str, object]) -> AsyncIterator[Reading]:
    """Open what is stored under a path or URL; `params` are the guest's for the range.

    Raises WorkspacedError OFFLOAD_NOT_FOUND, OFFSET_INVALID, OFFLOAD_NOT_A_CONTEXT; ChannelLost.
    """
    location = locate(workspace, path)
    given = {**params, "session": location.session, "name": location.name}
    async with workspace.guest.open("offload.read", given) as stream:
        try:
            first = answers.message(await stream.receive())
        except WorkspacedError as error:
            if error.reason == "OFFLOAD_NOT_FOUND":
                raise not_found(path) from None
            raise
        yield Reading(stream, describe(workspace, location, answers.record(first, "entry")))


async def _decode(line: bytes) -> content_pb2.Message:
    if len(line) < _LONG_BYTES:
        return messages.decode(line)
    return await asyncio.to_thread(messages.decode, line)


def _too_large(index: int) -> WorkspacedError:
    line = str(index + 1)
    text = f"the message on line {line} of the context is too large to be sent; read the bytes, or skip it"
    return WorkspacedError(Code.RESOURCE_EXHAUSTED, "OFFLOAD_MESSAGE_TOO_LARGE", text, {"line": line})


def _invalid_line(index: int) -> WorkspacedError:
    line = str(index + 1)
    text = f"line {line} of the context is no message; read the bytes to see it, or skip it by its number"
    return WorkspacedError(Code.DATA_LOSS, "OFFLOAD_LINE_INVALID", text, {"line": line})
