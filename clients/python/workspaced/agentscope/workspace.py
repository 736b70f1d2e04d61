"""A workspace of this server, as AgentScope's agents, toolkits and application use theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

from agentscope.mcp import MCPClient
from agentscope.message import DataBlock, Msg, ToolResultBlock
from agentscope.skill import Skill
from agentscope.tool import ToolBase
from agentscope.workspace import WorkspaceBase

from workspaced import errors
from workspaced.client import Client
from workspaced.skills import SkillInfo
from workspaced.workspace import Workspace

from . import blocks, mcps
from .backend import AgentScopeBackend
from .tools import AgentScopeTool, rules

_TAKEN = (errors.McpExists, errors.SkillExists, errors.InvalidArgument)


class AgentScopeWorkspace(WorkspaceBase):
    """``initialize`` makes the workspace, or goes on with the one of that id; ``close`` suspends it, as
    ``Workspace.close`` does. The client stays the caller's.

    ``options`` are those of ``Client.initialize`` (``backend``, ``image``, ``template``, ``env``, …); without any, a
    workspace of this id has to exist, for example one that was acquired.

    What AgentScope does on its own side happens on the server here: tools run in the workspace, MCP servers live
    there for each (agent, session), offloaded context is appended there. Methods raise what AgentScope's raise
    (:class:`ValueError` for a name that is taken, :class:`KeyError` for a skill that is not there), and
    :class:`WorkspacedError` for the rest.
    """

    def __init__(self, client: Client, *, workspace_id: str | None = None, **options: Any) -> None:
        super().__init__(workspace_id=workspace_id)
        self.workdir = ""
        self._client = client
        self._options = options
        self._handle: Workspace | None = None
        self._backend: AgentScopeBackend | None = None

    @property
    def handle(self) -> Workspace:
        """The workspace in this library's terms. Raises :class:`RuntimeError` before ``initialize``."""
        if self._handle is None:
            raise RuntimeError("the workspace is not initialized")
        return self._handle

    async def initialize(self) -> None:
        """Idempotent, also for several at once."""
        handle = await self._client.initialize(workspace_id=self.workspace_id, **self._options)
        self.workdir = (await handle.info()).workdir
        self._backend = AgentScopeBackend(handle, self.workdir)
        self._handle = handle
        self.is_alive = True

    async def close(self) -> None:
        """End its processes and MCP sessions, and suspend it. Idempotent."""
        handle, self._handle = self._handle, None
        self._backend = None
        self.is_alive = False
        if handle is not None:
            await handle.close()

    async def reset(self) -> None:
        """Remove MCP servers, skills, sessions and data; project files and processes stay."""
        await self.handle.reset()

    async def get_instructions(self) -> str:
        """What an agent has to know of its place, for the system prompt."""
        return await self.handle.instructions()

    # What an agent has.

    async def list_tools(self) -> list[ToolBase]:
        """Bash, Edit, Glob, Grep, Read and Write. AgentScope's toolkit has a skill viewer of its own."""
        return [
            AgentScopeTool(self.handle, tool, rules=rules(tool.name, self.get_backend(), self.workdir))
            for tool in await self.handle.tools.list(kind="builtin")
            if tool.name != "Skill"
        ]

    async def list_mcps(self, *, agent_id: str | None = None, session_id: str | None = None) -> list[MCPClient]:
        """The declared servers of an agent in a session. They start when their tools are asked for."""
        declared = await self.handle.mcps.list(start=False, agent_id=agent_id, session_id=session_id)
        return [mcps.from_info(info).bind(self.handle, agent_id, session_id) for info in declared]

    async def list_skills(self, *, agent_id: str | None = None) -> list[Skill]:
        """The skills of an agent with their text."""
        handle = self.handle

        async def read(info: SkillInfo) -> Skill:
            detail = await handle.skills.get(info.name, agent_id=agent_id)
            updated = info.update_time.timestamp() if info.update_time is not None else 0.0
            return Skill(info.name, info.description, info.path, detail.markdown, updated)

        return list(await asyncio.gather(*map(read, await handle.skills.list(agent_id=agent_id))))

    # What a user changes.

    async def add_mcp(
        self, mcp_client: MCPClient, *, agent_id: str | None = None, session_id: str | None = None
    ) -> MCPClient:
        """Declare a server and connect to it from the workspace. Raises :class:`ValueError` for a taken name."""
        declared = mcps.declaration(mcp_client)
        try:
            info = await self.handle.mcps.add(mcp_client.name, agent_id=agent_id, session_id=session_id, **declared)
        except _TAKEN as error:
            raise ValueError(error.message) from error
        return mcps.from_info(info).bind(self.handle, agent_id, session_id)

    async def remove_mcp(self, name: str, *, agent_id: str | None = None, session_id: str | None = None) -> None:
        """Forget a server and end it; nothing when there is none."""
        await self.handle.mcps.remove(name, allow_missing=True, agent_id=agent_id, session_id=session_id)

    async def add_skill(self, skill_path: str, *, agent_id: str | None = None) -> None:
        """Install a skill from a local directory. Raises :class:`ValueError` for one that is none or is taken."""
        await self._add_skill(skill_path, agent_id=agent_id)

    async def add_skill_archive(
        self,
        stream: AsyncIterator[bytes],
        fmt: Literal["zip", "tar", "tar.gz"],
        dir_name: str,
        max_extracted_bytes: int = 500 << 20,
        *,
        agent_id: str | None = None,
    ) -> None:
        """The same from an archive. The server finds out its format, and names the directory after the skill."""
        archive = b"".join([chunk async for chunk in stream])
        await self._add_skill(archive, agent_id=agent_id, max_expanded_bytes=max_extracted_bytes)

    async def _add_skill(self, source: str | bytes, **options: Any) -> None:
        try:
            await self.handle.skills.add(source, **options)
        except _TAKEN as error:
            raise ValueError(error.message) from error

    async def remove_skill(self, name: str, *, agent_id: str | None = None) -> None:
        """Remove a skill. Raises :class:`KeyError` when there is none."""
        try:
            await self.handle.skills.remove(name, agent_id=agent_id)
        except errors.SkillNotFound as error:
            raise KeyError(name) from error

    # What an agent puts aside.

    async def offload_context(self, session_id: str, msgs: list[Msg]) -> str:
        """Append messages to the context of a session; the path of the file, one message a line."""
        return await self.handle.offload.context(session_id, map(blocks.message, msgs))

    async def offload_tool_result(self, session_id: str, tool_result: ToolResultBlock) -> str:
        """Store a tool's output; the path of the file."""
        return await self.handle.offload.tool_result(session_id, blocks.result(tool_result))

    async def offload_data_block(self, block: DataBlock) -> DataBlock:
        """Store a block's bytes; the same block with a ``workspace:`` URL. One that has a URL comes back as it is."""
        ours = blocks.data(block)
        if ours.data is None:
            return block
        stored = await self.handle.offload.data(ours.data, media_type=ours.media_type, name=ours.name)
        return blocks.their_data(stored, block_id=block.id)

    # What the system removes.

    async def purge_session(self, *, agent_id: str | None = None, session_id: str) -> None:
        """Remove what an agent and a session declared, and what the session put aside."""
        await self.handle.purge_session(session_id, agent_id=agent_id)

    async def purge_agent(self, *, agent_id: str) -> None:
        """Remove the skills and MCP servers of an agent."""
        await self.handle.purge_agent(agent_id)
