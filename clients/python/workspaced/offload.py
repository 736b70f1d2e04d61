"""What does not fit into a model's context, kept in the workspace."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import grpc

from . import errors
from .connection import Connection
from .content import (
    DataBlock,
    Message,
    MessageLike,
    ToolResultBlock,
    block_to_proto,
    data_from_proto,
    message_from_proto,
    message_to_proto,
    result_to_proto,
)
from .file_content import Data, content_of
from .first_status import upload
from .info import when
from .spec import new_id
from .stream import Stream
from .tools import ToolResult
from .v1 import content_pb2, offload_pb2

OffloadKind = Literal["context", "tool_result", "data"]
_KINDS: dict[str | None, offload_pb2.OffloadKind.ValueType] = {
    None: offload_pb2.OFFLOAD_KIND_UNSPECIFIED,
    "context": offload_pb2.OFFLOAD_KIND_CONTEXT,
    "tool_result": offload_pb2.OFFLOAD_KIND_TOOL_RESULT,
    "data": offload_pb2.OFFLOAD_KIND_DATA,
}
_KIND_NAMES: dict[int, OffloadKind] = {
    offload_pb2.OFFLOAD_KIND_CONTEXT: "context",
    offload_pb2.OFFLOAD_KIND_TOOL_RESULT: "tool_result",
    offload_pb2.OFFLOAD_KIND_DATA: "data",
}
ResultLike = ToolResult | ToolResultBlock | Mapping[str, Any] | content_pb2.ToolResultBlock


@dataclass(frozen=True)
class OffloadInfo:
    """Something stored: where the agent's file tools find it, and its ``workspace:///`` URL."""

    kind: OffloadKind
    path: str
    url: str
    size: int
    media_type: str
    session_id: str
    tool_call_id: str
    sha256: str
    update_time: datetime | None

    @classmethod
    def from_proto(cls, offload: offload_pb2.Offload) -> OffloadInfo:
        """From the API."""
        return cls(
            kind=_KIND_NAMES.get(offload.kind, "data"),
            path=offload.path,
            url=offload.url,
            size=offload.size_bytes,
            media_type=offload.media_type,
            session_id=offload.session_id,
            tool_call_id=offload.tool_call_id,
            sha256=offload.sha256,
            update_time=when(offload.update_time),
        )


class Offload:
    """Stores contexts, tool results and data, lists them and reads them back.

    What a method returned is durable. A call that fails or is cancelled before all was sent has stored nothing.
    """

    def __init__(self, connection: Connection, workspace_id: str) -> None:
        self._connection = connection
        self._workspace_id = workspace_id

    async def context(
        self,
        session_id: str,
        messages: Iterable[MessageLike] | AsyncIterable[MessageLike],
        *,
        request_id: str = "",
    ) -> str:
        """Append messages to the context of a session; the path of the file that holds it, one message a line.

        Data blocks with bytes are moved to files of their own. With a ``request_id`` a repeated call appends once. A
        call whose connection breaks is made again, unless ``messages`` is an asynchronous iterator, which gives them
        once: then it is :class:`Unavailable`.
        """
        start = offload_pb2.OffloadContextStart(
            workspace_id=self._workspace_id, session_id=session_id, request_id=request_id or new_id()
        )
        if isinstance(messages, AsyncIterable):
            return await self._append(start, (message_to_proto(message) async for message in messages), None)
        prepared = [message_to_proto(message) for message in messages]
        return await self._connection.repeat(lambda left: self._append(start, _each(prepared), left))

    async def _append(
        self,
        start: offload_pb2.OffloadContextStart,
        messages: AsyncIterable[content_pb2.Message],
        timeout: float | None,
    ) -> str:
        call = self._connection.offload.OffloadContext(metadata=self._connection.metadata, timeout=timeout)

        async def requests() -> AsyncGenerator[offload_pb2.OffloadContextRequest, None]:
            yield offload_pb2.OffloadContextRequest(start=start)
            async for message in messages:
                yield offload_pb2.OffloadContextRequest(message=message)

        response: offload_pb2.OffloadContextResponse = await upload(self._connection, call, requests())
        return response.offload.path

    async def tool_result(self, session_id: str, result: ResultLike, *, request_id: str = "") -> str:
        """Store the output of a tool call; the path of the file."""
        if isinstance(result, ToolResult):
            result = result.block()
        if isinstance(result, ToolResultBlock):
            block = result_to_proto(result)
        elif isinstance(result, Mapping):
            block = block_to_proto({"type": "tool_result", **result}).tool_result
        else:
            block = result
        request = offload_pb2.OffloadToolResultRequest(
            workspace_id=self._workspace_id, session_id=session_id, result=block, request_id=request_id or new_id()
        )
        response = await self._connection.unary(self._connection.offload.OffloadToolResult, request)
        return response.offload.path

    async def data(self, data: Data, *, media_type: str = "", name: str = "", sha256: str = "") -> DataBlock:
        """Store bytes under their hash; a data block that refers to them."""
        content = content_of(data)
        start = offload_pb2.OffloadDataStart(
            workspace_id=self._workspace_id, media_type=media_type, sha256=sha256, name=name
        )
        call = self._connection.offload.OffloadData(metadata=self._connection.metadata)

        async def requests() -> AsyncGenerator[offload_pb2.OffloadDataRequest, None]:
            yield offload_pb2.OffloadDataRequest(start=start)
            async for chunk in content.chunks(0):
                yield offload_pb2.OffloadDataRequest(chunk=chunk)

        response: offload_pb2.OffloadDataResponse = await upload(self._connection, call, requests())
        return data_from_proto(response.data)

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of something stored, by its path or URL. Raises :class:`OffloadNotFound`."""
        async with self.read_stream(path, offset=offset, length=length) as chunks:
            return b"".join([chunk async for chunk in chunks])

    def read_stream(self, path: str, *, offset: int = 0, length: int | None = None) -> Stream[bytes]:
        """The same in chunks."""
        request = offload_pb2.ReadOffloadRequest(
            workspace_id=self._workspace_id, path=path,
            bytes=offload_pb2.OffloadByteRange(offset=offset, length=length),
        )  # fmt: skip
        return Stream(self._bytes(request))

    def messages(self, path: str, *, skip: int = 0, limit: int = 0) -> Stream[Message]:
        """The messages of a context, in order; ``limit`` 0 is up to the end."""
        request = offload_pb2.ReadOffloadRequest(
            workspace_id=self._workspace_id, path=path,
            messages=offload_pb2.OffloadMessageRange(skip=skip, limit=limit),
        )  # fmt: skip
        return Stream(self._messages(request))

    async def list(self, session_id: str | None = None, *, kind: OffloadKind | None = None) -> list[OffloadInfo]:
        """What is stored, by path: everything, or the contexts and tool results of a session."""
        found: list[OffloadInfo] = []
        token = ""
        while True:
            request = offload_pb2.ListOffloadsRequest(
                workspace_id=self._workspace_id, session_id=session_id, kind=_KINDS[kind], page_size=1000,
                page_token=token,
            )  # fmt: skip
            response = await self._connection.unary(self._connection.offload.ListOffloads, request)
            found += map(OffloadInfo.from_proto, response.offloads)
            token = response.next_page_token
            if not token:
                return found

    async def _bytes(self, request: offload_pb2.ReadOffloadRequest) -> AsyncGenerator[bytes, None]:
        async for part in self._parts(request):
            if part.WhichOneof("part") == "chunk":
                yield part.chunk.data

    async def _messages(self, request: offload_pb2.ReadOffloadRequest) -> AsyncGenerator[Message, None]:
        async for part in self._parts(request):
            if part.WhichOneof("part") == "message":
                yield message_from_proto(part.message.message)

    async def _parts(
        self, request: offload_pb2.ReadOffloadRequest
    ) -> AsyncGenerator[offload_pb2.ReadOffloadResponse, None]:
        call = self._connection.offload.ReadOffload(request, metadata=self._connection.metadata)
        try:
            async for part in call:
                self._connection.heard(call)
                yield part
        except grpc.aio.AioRpcError as error:
            raise errors.from_rpc(error) from None
        finally:
            call.cancel()


async def _each(messages: Iterable[content_pb2.Message]) -> AsyncGenerator[content_pb2.Message, None]:
    for message in messages:
        yield message
