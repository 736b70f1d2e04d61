"""All tools of a workspace: listing them, and running a call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from workspaced.v1 import mcp_pb2, tool_pb2
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.partitions import Pair
from workspaced_server.stopping import Stops
from workspaced_server.tools import mcp
from workspaced_server.tools.bash import bash
from workspaced_server.tools.catalogue import BUILTINS, Builtin, by_name
from workspaced_server.tools.edit import edit
from workspaced_server.tools.mcp import Mcps, NamedTool
from workspaced_server.tools.outcome import Call, Emit, Outcome, failed, interrupted
from workspaced_server.tools.overflow import Offloads, Overflow
from workspaced_server.tools.read import read
from workspaced_server.tools.schema import problems
from workspaced_server.tools.search import glob, grep
from workspaced_server.tools.skill import Skills, skill
from workspaced_server.tools.write import write
from workspaced_server.workspaces.handle import Handle

# Tools that end by themselves when their time is up, and tell what they have; this is how late they may be.
_OWN_END_SECONDS: Final = 10.0
_OWN_END: Final = frozenset(("Bash", "Glob", "Grep"))

Run = Callable[[Call], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Request:
    """A call as it was asked for. ``timeout`` and ``wait``, the time that the caller can wait, are in seconds."""

    call_id: str
    name: str
    input: dict[str, Any]
    timeout: float | None
    wait: float | None
    offload_over_bytes: int


class Toolbox:
    """The built-in tools and those of MCP servers."""

    def __init__(self, mcps: Mcps | None, skills: Skills, offloads: Offloads, stops: Stops, message_bytes: int) -> None:
        self._mcps = mcps
        self._skills = skills
        self._offloads = offloads
        self._stops = stops
        self._message_bytes = message_bytes
        self._builtin: Mapping[str, Run] = {
            "Bash": bash,
            "Read": read,
            "Write": write,
            "Edit": edit,
            "Glob": glob,
            "Grep": grep,
            "Skill": lambda call: skill(self._skills, call),
        }

    async def list(
        self,
        handle: Handle,
        pair: Pair,
        *,
        kind: tool_pb2.ToolKind.ValueType = tool_pb2.TOOL_KIND_UNSPECIFIED,
        only: str = "",
        wait: float | None = None,
    ) -> tuple[list[Builtin | NamedTool], list[mcp_pb2.McpError]]:
        """The tools, and the MCP servers whose tools are missing. Raises WorkspacedError, ChannelLost."""
        tools: list[Builtin | NamedTool] = []
        if kind != tool_pb2.TOOL_KIND_MCP and not only:
            tools += BUILTINS
        if kind == tool_pb2.TOOL_KIND_BUILTIN or self._mcps is None:
            return tools, []
        found, errors = await mcp.list_tools(self._mcps, handle, pair, only, wait)
        return [*tools, *found], errors

    async def call(self, handle: Handle, pair: Pair, request: Request, emit: Emit) -> tool_pb2.ToolResult:
        """Run a call; its events go to ``emit``. Raises WorkspacedError, ChannelLost; cancellation stops the tool."""
        overflow = Overflow(
            self._offloads,
            handle,
            pair,
            request.call_id,
            request.name,
            request.offload_over_bytes,
            self._message_bytes,
        )
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            schema, run = await self._find(handle, pair, request)
        except WorkspacedError as error:
            if request.timeout is None or error.metadata.get("mcp_reason") != "MCP_TIMEOUT":
                raise
            return await overflow.result(interrupted(error.message))
        # An MCP server may have been started for the call, in its time.
        timeout = None if request.timeout is None else max(0.1, request.timeout - round(clock() - started, 1))
        wrong = problems(schema, request.input)
        if wrong:
            lines = "\n".join(f"- {line}" for line in wrong)
            text = f"The input does not fit {request.name}, which was not run. Correct this and call again:\n{lines}"
            return await overflow.result(failed(text))

        async def data(content: bytes, media_type: str, name: str) -> Any:
            block = await overflow.data(content, media_type, name)
            await emit(tool_pb2.CallToolResponse(data=block.data))
            return block

        call = Call(
            handle=handle,
            pair=pair,
            call_id=request.call_id,
            input=request.input,
            timeout=timeout,
            whole=request.offload_over_bytes > 0,
            emit=emit,
            data=data,
            stops=self._stops,
        )
        limit = timeout
        if limit is not None and (request.name in _OWN_END or request.name not in by_name()):
            limit += _OWN_END_SECONDS
        try:
            async with asyncio.timeout(limit):
                outcome = await run(call)
        except TimeoutError:
            outcome = interrupted(f"{request.name} was stopped: its time of {request.timeout:g} s was up.")
        return await overflow.result(outcome)

    async def _find(self, handle: Handle, pair: Pair, request: Request) -> tuple[Mapping[str, Any], Run]:
        builtin = by_name().get(request.name)
        if builtin is not None:
            return builtin.schema, self._builtin[request.name]
        mcps = self._mcps
        tool = None if mcps is None else await mcp.find(mcps, handle, pair, request.name, request.wait)
        if mcps is None or tool is None:
            raise WorkspacedError(
                Code.NOT_FOUND,
                "TOOL_NOT_FOUND",
                f"there is no tool {request.name[:200]!r} for this agent and session: ListTools names them",
                {"tool": request.name[:200]},
                resource=("tool", request.name[:200]),
            )
        return tool.tool.input_schema, lambda call: mcp.call_tool(mcps, tool, call)
