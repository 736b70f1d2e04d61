"""The tools of a workspace: its own, and those of its MCP servers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import grpc

from . import errors
from .connection import Connection
from .content import (
    Block,
    DataBlock,
    TextBlock,
    ToolResultBlock,
    ToolResultState,
    blocks_from_proto,
    data_from_proto,
    plain,
    plain_value,
    state_name,
    struct,
)
from .mcps import McpError
from .spec import duration
from .stream import Stream
from .v1 import discovery_pb2, tool_pb2

ToolKind = Literal["builtin", "mcp"]
_KINDS: dict[str | None, tool_pb2.ToolKind.ValueType] = {
    None: tool_pb2.TOOL_KIND_UNSPECIFIED,
    "builtin": tool_pb2.TOOL_KIND_BUILTIN,
    "mcp": tool_pb2.TOOL_KIND_MCP,
}


_LEVELS = {
    number: name.removeprefix("TOOL_LOG_LEVEL_").lower() for name, number in tool_pb2.ToolLogLevel.items() if number
}


@dataclass(frozen=True)
class ToolInfo:
    """A tool, described so that it can be handed to a model: ``name``, ``description``, ``input_schema``."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    kind: ToolKind
    source: str
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    title: str = ""
    original_name: str = ""
    output_schema: Mapping[str, Any] | None = None

    @classmethod
    def from_proto(cls, tool: tool_pb2.Tool) -> ToolInfo:
        """From the API."""
        return cls(
            name=tool.name,
            description=tool.description,
            input_schema=plain(tool.input_schema),
            kind="mcp" if tool.kind == tool_pb2.TOOL_KIND_MCP else "builtin",
            source=tool.source,
            read_only=tool.read_only,
            destructive=tool.destructive,
            idempotent=tool.idempotent,
            open_world=tool.open_world,
            title=tool.title,
            original_name=tool.original_name,
            output_schema=plain(tool.output_schema) if tool.HasField("output_schema") else None,
        )


class ToolList(list[ToolInfo]):
    """The tools, and in ``mcp_errors`` which servers' tools are missing and why."""

    def __init__(self) -> None:
        super().__init__()
        self.mcp_errors: list[McpError] = []


@dataclass(frozen=True)
class ToolProcess:
    """The call runs as this process."""

    process_id: str
    call_id: str


@dataclass(frozen=True)
class ToolText:
    """More text of the output, for display."""

    delta: str


@dataclass(frozen=True)
class ToolData:
    """A data block of the output; it is in the result too."""

    block: DataBlock


@dataclass(frozen=True)
class ToolProgress:
    """How far the tool is, in its own unit; ``total`` is None when unknown."""

    progress: float
    total: float | None = None
    message: str = ""


@dataclass(frozen=True)
class ToolLog:
    """A log line of the tool."""

    level: str
    logger: str
    data: Any


@dataclass(frozen=True)
class ToolResult:
    """What a tool answered. ``text`` is all of its text; ``offloaded`` the path of the whole when it is a part."""

    name: str
    call_id: str
    blocks: tuple[Block, ...]
    is_error: bool
    state: ToolResultState = "success"
    structured: Mapping[str, Any] | None = None
    offloaded: str = ""
    background_process_id: str = ""
    text: str = field(default="", repr=False)

    @classmethod
    def from_proto(cls, name: str, result: tool_pb2.ToolResult) -> ToolResult:
        """From the API."""
        blocks = tuple(blocks_from_proto(result.content))
        return cls(
            name=name,
            call_id=result.call_id,
            blocks=blocks,
            is_error=result.is_error,
            state=state_name(result.state),
            structured=plain(result.structured) if result.HasField("structured") else None,
            offloaded=result.offloaded.path if result.HasField("offloaded") else "",
            background_process_id=result.background_process_id,
            text="\n".join(block.text for block in blocks if isinstance(block, TextBlock)),
        )

    def block(self) -> ToolResultBlock:
        """The result as a block of a message, or for ``offload.tool_result``."""
        return ToolResultBlock(self.call_id, self.name, self.blocks, self.state)


ToolEvent = ToolProcess | ToolText | ToolData | ToolProgress | ToolLog | ToolResult


class Tools:
    """Lists and calls tools, as an agent in a session; without ids as one that no id can name."""

    def __init__(self, connection: Connection, workspace_id: str) -> None:
        self._connection = connection
        self._workspace_id = workspace_id

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        offload_over_bytes: int = 0,
        call_id: str = "",
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> ToolResult:
        """Call a tool and return its result. A tool that reports an error returns it (``is_error``).

        ``timeout`` in seconds stops the tool, and what it gave by then is the result (state ``interrupted``). Text
        beyond ``offload_over_bytes`` is stored in the workspace (0: never). Cancellation stops the tool. Raises
        :class:`ToolNotFound`, :class:`McpUnavailable`. A broken connection is :class:`Unavailable`: whether the tool
        ran is not known, and it is not called again.
        """
        async with self.stream(
            name, arguments, timeout=timeout, offload_over_bytes=offload_over_bytes, call_id=call_id, agent_id=agent_id,
            session_id=session_id,
        ) as events:  # fmt: skip
            async for event in events:
                if isinstance(event, ToolResult):
                    return event
        raise errors.Internal(f"the server ended the call of {name!r} without a result")

    def stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        offload_over_bytes: int = 0,
        call_id: str = "",
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> Stream[ToolEvent]:
        """The events of a call, as :meth:`call` makes it; a :class:`ToolResult` comes last. Leaving the stream before
        stops the tool."""
        request = tool_pb2.CallToolRequest(
            workspace_id=self._workspace_id, agent_id=agent_id, session_id=session_id, name=name, call_id=call_id,
            input=struct(arguments or {}), offload_over_bytes=offload_over_bytes,
            timeout=None if timeout is None else duration(timeout),
        )  # fmt: skip
        return Stream(self._events(request))

    async def list(
        self,
        *,
        kind: ToolKind | None = None,
        mcp: str = "",
        agent_id: str | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> ToolList:
        """The tools that can be called: the built-in ones, then those of the MCP servers, or only a kind, or one
        server's. Starts the servers that it needs."""
        found = ToolList()
        token = ""
        while True:
            request = discovery_pb2.ListToolsRequest(
                workspace_id=self._workspace_id, agent_id=agent_id, session_id=session_id, kind=_KINDS[kind], mcp=mcp,
                page_size=1000, page_token=token,
            )  # fmt: skip
            response = await self._connection.unary(self._connection.discovery.ListTools, request, timeout=timeout)
            found += map(ToolInfo.from_proto, response.tools)
            found.mcp_errors += map(McpError.from_proto, response.mcp_errors)
            token = response.next_page_token
            if not token:
                return found

    async def _events(self, request: tool_pb2.CallToolRequest) -> AsyncGenerator[ToolEvent, None]:
        call = self._connection.execution.CallTool(request, metadata=self._connection.metadata)
        try:
            async for response in call:
                self._connection.heard(call)
                event = _event(request.name, response)
                if event is not None:
                    yield event
        except grpc.aio.AioRpcError as error:
            raise errors.from_rpc(error) from None
        finally:
            call.cancel()


def _event(name: str, response: tool_pb2.CallToolResponse) -> ToolEvent | None:
    kind = response.WhichOneof("event")
    if kind == "process":
        return ToolProcess(response.process.process_id, response.process.call_id)
    if kind == "text":
        return ToolText(response.text.delta)
    if kind == "data":
        return ToolData(data_from_proto(response.data))
    if kind == "progress":
        progress = response.progress
        total = progress.total if progress.HasField("total") else None
        return ToolProgress(progress.progress, total, progress.message)
    if kind == "log":
        level = _LEVELS.get(response.log.level, "info")
        return ToolLog(level, response.log.logger, plain_value(response.log.data))
    if kind == "result":
        return ToolResult.from_proto(name, response.result)
    return None
