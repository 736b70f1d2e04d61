"""What a result may hold: the rest is stored in the workspace, or the call fails."""

from __future__ import annotations

from typing import Final, Protocol

from workspaced.v1 import content_pb2, offload_pb2, tool_pb2
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.partitions import Pair
from workspaced_server.tools.outcome import Outcome, text_block
from workspaced_server.tools.values import struct_of
from workspaced_server.workspaces.handle import Handle

# For what is around a result in a message.
_MARGIN_BYTES: Final = 16 << 10


class Offloads(Protocol):
    """Where what overflows is stored."""

    async def tool_result(
        self, handle: Handle, session_id: str | None, block: content_pb2.ToolResultBlock
    ) -> offload_pb2.Offload:
        """Store the output of a call. Raises WorkspacedError."""
        ...

    async def data(
        self, handle: Handle, data: bytes, media_type: str, name: str = ""
    ) -> tuple[offload_pb2.Offload, content_pb2.DataBlock]:
        """Store bytes under their hash. Raises WorkspacedError."""
        ...


class Overflow:
    """The rule of one call. ``limit`` is its ``offload_over_bytes``, 0 for never; ``message_bytes`` is what a message
    may have.
    """

    def __init__(
        self,
        offloads: Offloads,
        handle: Handle,
        pair: Pair,
        call_id: str,
        tool: str,
        limit: int,
        message_bytes: int,
    ) -> None:
        self._offloads = offloads
        self._handle = handle
        self._pair = pair
        self._call_id = call_id
        self._tool = tool
        self._limit = limit
        self._most = message_bytes - _MARGIN_BYTES

    async def data(self, data: bytes, media_type: str, name: str) -> content_pb2.ContentBlock:
        """A data block: with its bytes, or stored. Raises WorkspacedError TOOL_RESULT_TOO_LARGE."""
        if self._limit and len(data) > self._limit:
            _, stored = await self._offloads.data(self._handle, data, media_type, name)
            return content_pb2.ContentBlock(data=stored)
        if len(data) > self._most:
            raise self._too_large(len(data))
        return content_pb2.ContentBlock(data=content_pb2.DataBlock(media_type=media_type, bytes=data, name=name))

    async def result(self, outcome: Outcome) -> tool_pb2.ToolResult:
        """The result, its text stored where there is too much. Raises WorkspacedError TOOL_RESULT_TOO_LARGE."""
        state = outcome.state
        if state == content_pb2.TOOL_RESULT_STATE_UNSPECIFIED:
            state = content_pb2.TOOL_RESULT_STATE_ERROR if outcome.is_error else content_pb2.TOOL_RESULT_STATE_SUCCESS
        result = tool_pb2.ToolResult(
            content=outcome.content,
            is_error=outcome.is_error,
            state=state,
            background_process_id=outcome.background_process_id,
            call_id=self._call_id,
        )
        if outcome.structured is not None:
            result.structured.CopyFrom(struct_of(outcome.structured))
        if self._limit:
            await self._store_text(result, state)
            await self._store_data(result)
        size = result.ByteSize()
        if size > self._most:
            raise self._too_large(size)
        return result

    async def _store_text(self, result: tool_pb2.ToolResult, state: content_pb2.ToolResultState.ValueType) -> None:
        texts = [block.text.text for block in result.content if block.WhichOneof("block") == "text"]
        whole = "\n".join(texts).encode()
        if len(whole) <= self._limit:
            return
        block = content_pb2.ToolResultBlock(
            id=self._call_id, name=self._tool, output=[text_block("\n".join(texts))], state=state
        )
        stored = await self._offloads.tool_result(self._handle, self._pair.session_id, block)
        others = [block for block in result.content if block.WhichOneof("block") != "text"]
        del result.content[:]
        result.content.extend([text_block(_shorten(whole, self._limit, stored.path)), *others])
        result.offloaded.CopyFrom(
            content_pb2.OffloadedContent(
                path=stored.path, url=stored.url, size_bytes=stored.size_bytes, media_type=stored.media_type
            )
        )

    async def _store_data(self, result: tool_pb2.ToolResult) -> None:
        """Data blocks that fit a message one by one but not together, the largest first; then structured output."""
        inline = [block for block in result.content if block.data.WhichOneof("source") == "bytes"]
        for block in sorted(inline, key=lambda block: -len(block.data.bytes)):
            if result.ByteSize() <= self._most:
                return
            data = block.data
            _, stored = await self._offloads.data(self._handle, data.bytes, data.media_type, data.name)
            block.data.CopyFrom(stored)
        if result.ByteSize() > self._most and result.HasField("structured"):
            result.ClearField("structured")
            result.content.append(text_block("[the structured output is too large for a message and is left out]"))

    def _too_large(self, size: int) -> WorkspacedError:
        return WorkspacedError(
            Code.RESOURCE_EXHAUSTED,
            "TOOL_RESULT_TOO_LARGE",
            f"the result has {size} bytes, at most {self._most} fit a message: set offload_over_bytes",
            {"size_bytes": str(size), "limit_bytes": str(self._most)},
        )


def _shorten(whole: bytes, limit: int, path: str) -> str:
    head = whole[: limit // 2].decode("utf-8", "ignore")
    tail = whole[len(whole) - limit // 2 :].decode("utf-8", "ignore")
    left_out = len(whole) - len(head.encode()) - len(tail.encode())
    note = f"[{left_out} bytes left out here. The whole output is in {path}: use Read or Grep on it.]"
    return "\n".join(part for part in (head, note, tail) if part)
