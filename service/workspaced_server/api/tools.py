"""ListTools and CallTool."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import grpc

from workspaced.v1 import discovery_pb2, tool_pb2
from workspaced_server.api import answers
from workspaced_server.api.access import Access, use
from workspaced_server.api.limits import MAX_REQUEST_BYTES
from workspaced_server.api.pairs import check_id, pair_of
from workspaced_server.api.validation import Violations, page_size, seconds
from workspaced_server.session_calls import SessionCalls
from workspaced_server.stopping import Stops
from workspaced_server.tools.catalogue import Builtin
from workspaced_server.tools.mcp import Mcps, NamedTool
from workspaced_server.tools.overflow import Offloads
from workspaced_server.tools.running import RunningCalls
from workspaced_server.tools.skill import Skills
from workspaced_server.tools.toolbox import Request, Toolbox
from workspaced_server.tools.values import object_of

Context = grpc.aio.ServicerContext[Any, Any]

_MAX_NAME: Final = 256
# Tools that are described without a pause.
_AT_ONCE: Final = 20
# For errors of MCP servers, which are on the first page.
_MARGIN_BYTES: Final = 1 << 20
_MAX_SECONDS: Final = 366 * 86_400.0


class ToolServicer:
    """The RPCs on tools; what each does and its errors are in the protos' comments."""

    def __init__(
        self, workspaces: Access, skills: Skills, offloads: Offloads, calls: SessionCalls, mcps: Mcps | None = None
    ) -> None:
        self._workspaces = workspaces
        self._calls = calls
        self._stops = Stops()
        self._tools = Toolbox(mcps, skills, offloads, self._stops, MAX_REQUEST_BYTES)
        self._running = RunningCalls()

    async def aclose(self) -> None:
        """Wait for the processes of cancelled calls to be stopped; bounded by their grace."""
        await self._stops.aclose()

    async def ListTools(  # noqa: N802
        self, request: discovery_pb2.ListToolsRequest, context: Context
    ) -> discovery_pb2.ListToolsResponse:
        found = Violations()
        if request.kind not in tool_pb2.ToolKind.values():
            found.add("kind", "is no value of ToolKind that this server knows")
        if request.mcp and request.kind == tool_pb2.TOOL_KIND_BUILTIN:
            found.add("mcp", "names no built-in tools: leave it out, or ask for another kind")
        found.check()
        size = page_size(request.page_size)
        after = _after(request.page_token)
        pair = pair_of(request)
        async with use(self._workspaces, request.workspace_id) as handle:
            tools, errors = await self._tools.list(
                handle, pair, kind=request.kind, only=request.mcp, wait=context.time_remaining()
            )
        start = 0
        if after:
            start = next((index for index, tool in enumerate(tools, 1) if tool.name == after), -1)
            if start < 0:
                raise answers.bad_page_token()
        page = [tool async for tool in _messages(tools[start : start + size])]
        more = start + len(page) < len(tools)
        return discovery_pb2.ListToolsResponse(
            tools=page,
            next_page_token=_token(page[-1].name) if more else "",
            mcp_errors=errors if not after else [],
        )

    async def CallTool(self, request: tool_pb2.CallToolRequest, context: Context) -> None:  # noqa: N802
        found = Violations()
        found.require(bool(request.name), "name", "must not be empty: ListTools names the tools")
        found.require(len(request.name) <= _MAX_NAME, "name", f"must have at most {_MAX_NAME} characters")
        timeout = seconds(request.timeout) if request.HasField("timeout") else None
        if timeout is not None and not 0 < timeout <= _MAX_SECONDS:
            found.add("timeout", "must be more than 0 and at most a year: leave it out for the tool's own")
        found.check()
        if request.call_id:
            check_id(request.call_id, "call_id")
        pair = pair_of(request)
        async with use(self._workspaces, request.workspace_id) as handle:
            with (
                self._running.claim(handle.key, pair.session_id, request.call_id) as call_id,
                self._calls.running_for(handle.key, pair),
            ):
                asked = Request(
                    call_id=call_id,
                    name=request.name,
                    input=object_of(request.input),
                    timeout=timeout,
                    wait=_least(timeout, context.time_remaining()),
                    offload_over_bytes=request.offload_over_bytes,
                )
                result = await self._tools.call(handle, pair, asked, context.write)
        await context.write(tool_pb2.CallToolResponse(result=result))


async def _messages(tools: Sequence[Builtin | NamedTool]) -> AsyncIterator[tool_pb2.Tool]:
    """The first of them, as many as a message holds; at least one."""
    room = MAX_REQUEST_BYTES - _MARGIN_BYTES
    for index, tool in enumerate(tools):
        if index % _AT_ONCE == _AT_ONCE - 1:
            # Schemas take their time, and others wait.
            await asyncio.sleep(0)
        message = tool.message()
        room -= message.ByteSize() + 8
        if room < 0 and index:
            return
        yield message


def _least(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _token(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode("ascii").rstrip("=")


def _after(token: str) -> str:
    """The name of the last tool of the page before. Raises WorkspacedError."""
    name = answers.guest_page_token(token)
    if token and not name:
        raise answers.bad_page_token()
    return name
