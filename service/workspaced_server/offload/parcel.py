"""What an offload call sends to the guest: its text and its data files as one row of items, which the guest gathers
before anything takes effect (`docs/guest-protocol.md`).
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from workspaced.v1 import content_pb2 as pb
from workspaced_guest import wire
from workspaced_server.guest import answers
from workspaced_server.guest.stream import GuestStream, Nothing
from workspaced_server.offload.media import extension_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from workspaced_server.guest.channel import GuestChannel

HEADER: Final = struct.Struct(">cHQ")
# A call that sends less occupies the guest only when all of it is there.
_HELD_BYTES: Final = 512 * 1024
_LARGE_BYTES: Final = 256 * 1024


class Workspace(Protocol):
    """What offloading needs of a workspace."""

    @property
    def guest(self) -> GuestChannel: ...
    @property
    def workdir(self) -> str: ...
    @property
    def key(self) -> str: ...


class Parcel:
    """Sends the items of one call, and gets its answer. As a context manager: leaving it early cancels the call."""

    def __init__(self, workspace: Workspace, op: str, params: dict[str, object]) -> None:
        self._opening = workspace.guest.open(op, params)
        self._stream: GuestStream | None = None
        self._stack = AsyncExitStack()
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._blobs: set[str] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def text(self, data: bytes) -> None:
        """Add text. Raises WorkspacedError when the guest has refused the call already, ChannelLost."""
        await self._add(HEADER.pack(b"L", 0, len(data)), data)

    async def move(self, blocks: Iterable[pb.DataBlock]) -> None:
        """Add the bytes of data blocks as data files, and put their URLs into the blocks. Raises as `text`."""
        for block in blocks:
            data = block.bytes
            name = await _sha256(data) + extension_of(block.media_type)
            block.url = f"workspace:///data/{name}"
            if name not in self._blobs:
                self._blobs.add(name)
                await self._add(HEADER.pack(b"B", len(name), len(data)) + name.encode("ascii"), data)

    async def deliver(self, about: dict[str, object]) -> dict[str, Any]:
        """End the parcel; the guest's answer. Raises WorkspacedError, ChannelLost."""
        last = wire.encode_json(about)
        self._held.append(HEADER.pack(b"E", len(last), 0) + last)
        stream = await self._flush()
        stream.end()
        if await stream.receive() is not None:
            raise answers.malformed()
        return stream.result

    async def _add(self, *pieces: bytes) -> None:
        self._held += pieces
        self._held_bytes += sum(map(len, pieces))
        if self._held_bytes > _HELD_BYTES:
            stream = await self._flush()
            if not isinstance(stream.receive_nowait(), Nothing):
                raise answers.malformed()

    async def _flush(self) -> GuestStream:
        if self._stream is None:
            self._stream = await self._stack.enter_async_context(self._opening)
        held, self._held, self._held_bytes = self._held, [], 0
        await self._stream.send(b"".join(held))
        return self._stream


async def _sha256(data: bytes) -> str:
    # In a thread where it would hold up others.
    digest = hashlib.sha256(data) if len(data) < _LARGE_BYTES else await asyncio.to_thread(hashlib.sha256, data)
    return digest.hexdigest()


def inline_blocks(blocks: Iterable[pb.ContentBlock]) -> list[pb.DataBlock]:
    """The data blocks that hold bytes, those in tool results and hints too."""
    found: list[pb.DataBlock] = []
    for block in blocks:
        match block.WhichOneof("block"):
            case "data":
                if block.data.WhichOneof("source") == "bytes":
                    found.append(block.data)
            case "tool_result":
                found += inline_blocks(block.tool_result.output)
            case "hint":
                found += inline_blocks(block.hint.content)
    return found
