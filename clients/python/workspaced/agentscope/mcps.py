"""MCP servers of a workspace as MCP clients of AgentScope."""

from __future__ import annotations

from typing import Any

from agentscope.mcp import HttpMCPConfig, MCPClient, StdioMCPConfig
from agentscope.tool import ToolBase
from pydantic import PrivateAttr

from workspaced.mcps import McpInfo
from workspaced.workspace import Workspace

from .tools import AgentScopeTool


class AgentScopeMcp(MCPClient):
    """An MCP server that the workspace runs or dials. What is connected is the server's business: ``connect`` and
    ``close`` do nothing, and a server that fails is started again when its tools are next asked for.
    """

    _workspace: Workspace = PrivateAttr()
    _pair: dict[str, Any] = PrivateAttr()

    @property
    def is_connected(self) -> bool:
        """It can be asked at any time."""
        return True

    def model_post_init(self, context: Any, /) -> None:
        """The server has validated the declaration."""

    def bind(self, workspace: Workspace, agent_id: str | None, session_id: str | None) -> AgentScopeMcp:
        """Whose instance of the server it is."""
        self._workspace = workspace
        self._pair = {"agent_id": agent_id, "session_id": session_id}
        return self

    async def connect(self) -> None:
        """Nothing: see the class."""

    async def close(self, ignore_errors: bool = True) -> None:
        """Nothing: see the class. ``remove_mcp`` ends the server."""

    async def list_tools(self) -> list[ToolBase]:
        """The tools that are enabled. Raises :class:`RuntimeError` with the reason when the server cannot be used."""
        found = await self._workspace.tools.list(kind="mcp", mcp=self.name, **self._pair)
        for error in found.mcp_errors:
            raise RuntimeError(f"MCP server {self.name!r}: {error.message}")
        return [AgentScopeTool(self._workspace, tool, **self._pair) for tool in found]

    async def get_tool(self, name: str) -> ToolBase:
        """A tool by the name that the server itself gives it. Raises :class:`ValueError` when there is none."""
        for tool in await self._workspace.tools.list(kind="mcp", mcp=self.name, **self._pair):
            if tool.original_name == name:
                return AgentScopeTool(self._workspace, tool, **self._pair)
        raise ValueError(f"MCP server {self.name!r} has no tool {name!r}")

    async def list_raw_tools(self) -> list[Any]:
        """The tools as MCP describes them."""
        from mcp.types import Tool

        found = await self._workspace.tools.list(kind="mcp", mcp=self.name, **self._pair)
        return [
            Tool(name=tool.original_name, description=tool.description, input_schema=dict(tool.input_schema))
            for tool in found
        ]

    async def set_runtime_headers(self, headers: dict[str, str]) -> None:
        """Not to be had: headers are part of the declaration."""
        raise NotImplementedError("headers of an MCP server are declared by add_mcp; remove it and add it again")


def from_info(info: McpInfo) -> AgentScopeMcp:
    """A declaration; its secrets (``env``, ``headers``) are redacted."""
    spec = info.spec
    if spec.WhichOneof("transport") == "stdio":
        stdio = spec.stdio
        config: Any = StdioMCPConfig(
            command=stdio.command, args=list(stdio.args), env=dict(stdio.env) or None, cwd=stdio.cwd or None
        )
    else:
        config = HttpMCPConfig(url=spec.http.url, headers=dict(spec.http.headers) or None)
    return AgentScopeMcp(
        name=spec.name,
        is_stateful=not spec.stateless,
        mcp_config=config,
        enable_tools=list(spec.enabled_tools) or None,
        disable_tools=list(spec.disabled_tools) or None,
        execution_timeout=spec.call_timeout.ToMilliseconds() / 1000 if spec.HasField("call_timeout") else None,
    )


def declaration(client: MCPClient) -> dict[str, Any]:
    """The arguments of ``Mcps.add`` for a client of AgentScope."""
    config = client.mcp_config
    found: dict[str, Any] = {
        "enabled_tools": client.enable_tools or (),
        "disabled_tools": client.disable_tools or (),
        "call_timeout": client.execution_timeout,
        "stateless": not client.is_stateful,
    }
    if isinstance(config, StdioMCPConfig):
        found.update(stdio=[config.command, *(config.args or ())], env=config.env, cwd=str(config.cwd or ""))
    else:
        path = config.url.split("?", 1)[0]
        kind = "sse" if path.endswith(("/sse", "/messages/")) else "streamable"
        found.update(http=config.url, headers=config.headers, kind=kind)
    return found
