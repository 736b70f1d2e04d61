"""Tools of MCP servers: how they are named here, and calling one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from workspaced.v1 import mcp_pb2, tool_pb2
from workspaced_server.errors import WorkspacedError
from workspaced_server.partitions import Pair
from workspaced_server.tools.names import ServerNames, server_names
from workspaced_server.tools.outcome import Call, Outcome, failed, interrupted, text_block
from workspaced_server.tools.values import protobuf_value, struct_of, valid_text
from workspaced_server.workspaces.handle import Handle

if TYPE_CHECKING:
    import mcp_types as types

T = TypeVar("T")

# Log lines that a caller who reads slowly is behind by at most.
_MAX_LOGS: Final = 1000
_LEVELS: Final = {
    name.lower(): getattr(tool_pb2, f"TOOL_LOG_LEVEL_{name}")
    for name in ("DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY")
}


class McpTool(Protocol):
    """A tool of an MCP server."""

    @property
    def mcp(self) -> str: ...
    @property
    def tool(self) -> types.Tool: ...


class Mcps(Protocol):
    """The MCP servers of all workspaces."""

    async def names(self, handle: Handle, pair: Pair) -> list[str]: ...

    async def tools(
        self, handle: Handle, pair: Pair, only: str = "", *, wait: float | None = None
    ) -> tuple[list[Any], list[mcp_pb2.McpError]]: ...

    async def tools_of(self, handle: Handle, pair: Pair, mcp: str, *, wait: float | None = None) -> list[Any]: ...

    async def call(
        self,
        handle: Handle,
        pair: Pair,
        mcp: str,
        tool: str,
        arguments: dict[str, Any],
        *,
        timeout: float | None = None,
        on_progress: Callable[[float, float | None, str | None], None] | None = None,
        on_log: Callable[[types.LoggingMessageNotificationParams], None] | None = None,
    ) -> types.CallToolResult: ...


class NamedTool:
    """A tool with the name that it has here."""

    __slots__ = ("mcp", "name", "tool")

    def __init__(self, name: str, mcp: str, tool: types.Tool) -> None:
        self.name = name
        self.mcp = mcp
        self.tool = tool

    def message(self) -> tool_pb2.Tool:
        """What ListTools says of it."""
        tool = self.tool
        hints = tool.annotations
        message = tool_pb2.Tool(
            name=self.name,
            description=valid_text(tool.description or ""),
            input_schema=struct_of(tool.input_schema),
            source=self.mcp,
            kind=tool_pb2.TOOL_KIND_MCP,
            original_name=valid_text(tool.name),
            title=valid_text(tool.title or (hints.title if hints is not None and hints.title else "")),
        )
        if tool.output_schema is not None:
            message.output_schema.CopyFrom(struct_of(tool.output_schema))
        if hints is not None:
            message.read_only = bool(hints.read_only_hint)
            message.destructive = bool(hints.destructive_hint)
            message.idempotent = bool(hints.idempotent_hint)
            message.open_world = bool(hints.open_world_hint)
        return message


async def list_tools(
    mcps: Mcps, handle: Handle, pair: Pair, only: str, wait: float | None
) -> tuple[list[NamedTool], list[mcp_pb2.McpError]]:
    """The tools of all MCP servers, or of one, in their order, and what is missing."""
    names = server_names(tuple(await mcps.names(handle, pair)))
    found, errors = await mcps.tools(handle, pair, only, wait=wait)
    return _named(names, found), errors


async def find(mcps: Mcps, handle: Handle, pair: Pair, name: str, wait: float | None) -> NamedTool | None:
    """The tool of that name; asks only servers that it can be of. Raises what the first of them that does not say
    raises: WorkspacedError MCP_UNAVAILABLE, QUOTA_EXCEEDED, MCP_SECRETS_UNREADABLE.
    """
    names = server_names(tuple(await mcps.names(handle, pair)))
    failure: WorkspacedError | None = None
    for server in names.candidates(name):
        try:
            found = await mcps.tools_of(handle, pair, server, wait=wait)
        except WorkspacedError as error:
            failure = failure or error
            continue
        for tool in _named(names, found):
            if tool.name == name:
                return tool
    if failure is not None:
        raise failure
    return None


async def call_tool(mcps: Mcps, tool: NamedTool, call: Call) -> Outcome:
    """Call it, passing progress and log lines on."""
    events = _Events(call)
    try:
        result = await events.around(
            mcps.call(
                call.handle,
                call.pair,
                tool.mcp,
                tool.tool.name,
                call.input,
                timeout=call.timeout,
                on_progress=events.progress,
                on_log=events.log,
            )
        )
    except WorkspacedError as error:
        if error.reason == "MCP_TIMEOUT":
            return interrupted(error.message)
        if error.reason == "MCP_REQUEST_FAILED":
            return failed(error.message)
        raise
    return await _outcome(tool, call, result)


async def _outcome(tool: NamedTool, call: Call, result: types.CallToolResult) -> Outcome:
    from workspaced_server.mcps.content import block
    from workspaced_server.mcps.failures import McpFailure

    outcome = Outcome(is_error=bool(result.is_error), structured=_structured(result))
    try:
        blocks = [block(item) for item in result.content]
    except McpFailure as failure:
        return failed(f"The answer of MCP server {tool.mcp} cannot be used: {failure}")
    for item in blocks:
        if item.WhichOneof("block") == "data":
            item = await call.data(item.data.bytes, item.data.media_type, item.data.name)
        outcome.content.append(item)
    if not outcome.content and outcome.structured is not None:
        # For models, which see nothing else.
        import json

        outcome.content.append(text_block(valid_text(json.dumps(outcome.structured, ensure_ascii=False))))
    return outcome


def _structured(result: types.CallToolResult) -> dict[str, Any] | None:
    value = result.structured_content
    return value if isinstance(value, dict) else None


def _named(names: ServerNames, found: list[McpTool]) -> list[NamedTool]:
    servers: dict[str, list[str]] = {}
    for item in found:
        servers.setdefault(item.mcp, []).append(item.tool.name)
    by_server = {server: names.tools(server, tools) for server, tools in servers.items()}
    seen = set()
    named = []
    for item in found:
        # A server that lists a tool twice has one of that name.
        if (item.mcp, item.tool.name) not in seen:
            seen.add((item.mcp, item.tool.name))
            named.append(NamedTool(by_server[item.mcp][item.tool.name], item.mcp, item.tool))
    return named


class _Events:
    """What an MCP server tells during a call, on its way to a caller who may be slow: of progress the newest."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._logs: deque[tool_pb2.ToolLog] = deque(maxlen=_MAX_LOGS)
        self._progress: tool_pb2.ToolProgress | None = None
        self._some = asyncio.Event()
        self._ended = False

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """The server says how far it is."""
        self._progress = tool_pb2.ToolProgress(progress=progress, total=total, message=valid_text(message or ""))
        self._some.set()

    def log(self, params: types.LoggingMessageNotificationParams) -> None:
        """The server writes a log line."""
        level = _LEVELS.get(params.level, tool_pb2.TOOL_LOG_LEVEL_UNSPECIFIED)
        data = protobuf_value(params.data)
        self._logs.append(tool_pb2.ToolLog(level=level, logger=valid_text(params.logger or ""), data=data))
        self._some.set()

    async def around(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, or its error, when all that came meanwhile has been passed on. It is cancelled when
        nothing can be passed on any more.
        """
        passing = asyncio.ensure_future(self._pass_on())
        working = asyncio.ensure_future(work)
        try:
            await asyncio.wait((working, passing), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                passing.result()
            self._ended = True
            self._some.set()
            await passing
            return await working
        finally:
            for task in (working, passing):
                task.cancel()
            # Both are looked at, so that the loop reports neither.
            await asyncio.gather(working, passing, return_exceptions=True)

    async def _pass_on(self) -> None:
        while not self._ended or self._some.is_set():
            await self._some.wait()
            self._some.clear()
            while self._logs:
                await self._call.emit(tool_pb2.CallToolResponse(log=self._logs.popleft()))
            progress, self._progress = self._progress, None
            if progress is not None:
                await self._call.emit(tool_pb2.CallToolResponse(progress=progress))
