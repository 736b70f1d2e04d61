"""Tools of a workspace as tools of AgentScope."""

from __future__ import annotations

from typing import Any

from agentscope.message import TextBlock, ToolResultState
from agentscope.permission import PermissionBehavior, PermissionContext, PermissionDecision, PermissionRule
from agentscope.tool import Bash, Edit, Glob, Grep, Read, ToolBase, ToolChunk, Write

from workspaced.tools import ToolInfo
from workspaced.workspace import Workspace

from . import blocks
from .backend import AgentScopeBackend

_STATES = {
    "success": ToolResultState.SUCCESS,
    "interrupted": ToolResultState.INTERRUPTED,
    "denied": ToolResultState.DENIED,
}


class AgentScopeTool(ToolBase):
    """A tool that the server calls. Cancelling the call stops it, and a broken connection does not call it twice.

    Who may call it is decided by ``rules``, AgentScope's own tool of the name, so its permission modes and rules mean
    what they do there. A tool without one is allowed when it only reads, and asked for otherwise.
    """

    is_external_tool = False
    is_state_injected = False

    def __init__(
        self,
        workspace: Workspace,
        tool: ToolInfo,
        *,
        rules: ToolBase | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> None:
        super().__init__()
        self._workspace = workspace
        self._tool = tool
        self._rules = rules
        self._pair: dict[str, Any] = {"agent_id": agent_id, "session_id": session_id}
        self.name = tool.name
        self.description = tool.description
        self.input_schema = dict(tool.input_schema)
        self.is_read_only = tool.read_only
        self.is_concurrency_safe = tool.read_only
        self.is_mcp = tool.kind == "mcp"
        self.mcp_name = tool.source if self.is_mcp else None

    async def call(self, **arguments: Any) -> ToolChunk:
        """Call the tool. An error that it reports is in the chunk's state; raises :class:`WorkspacedError` else."""
        result = await self._workspace.tools.call(self.name, arguments, **self._pair)
        content = blocks.outputs(result.blocks)
        if result.offloaded:
            content.append(TextBlock(text=f"\nThe whole output is in {result.offloaded}"))
        state = ToolResultState.ERROR if result.is_error else _STATES.get(result.state, ToolResultState.SUCCESS)
        structured = {} if result.structured is None else {"structured": dict(result.structured)}
        return ToolChunk(content=content, state=state, metadata=structured)

    async def check_permissions(self, tool_input: dict[str, Any], context: PermissionContext) -> PermissionDecision:
        """As AgentScope decides for its own tool of the name."""
        if self._rules is not None:
            return await self._rules.check_permissions(tool_input, context)
        if self.is_read_only:
            return PermissionDecision(behavior=PermissionBehavior.ALLOW, message=f"{self.name} only reads.")
        return PermissionDecision(behavior=PermissionBehavior.ASK, message=f"{self.name} has to be allowed.")

    async def check_read_only(self, tool_input: dict[str, Any]) -> bool:
        """Whether this call only reads; of a shell command it depends on the command."""
        if self._rules is not None:
            return bool(await self._rules.check_read_only(tool_input))
        return self.is_read_only

    async def match_rule(self, rule_content: str | None, tool_input: dict[str, Any]) -> bool:
        """Whether a permission rule is about this call."""
        if self._rules is not None:
            return bool(await self._rules.match_rule(rule_content, tool_input))
        return bool(await super().match_rule(rule_content, tool_input))

    async def generate_suggestions(self, tool_input: dict[str, Any]) -> list[PermissionRule]:
        """Rules that a user may want to add when asked."""
        if self._rules is not None:
            return list(await self._rules.generate_suggestions(tool_input))
        return list(await super().generate_suggestions(tool_input))


def rules(name: str, backend: AgentScopeBackend, workdir: str) -> ToolBase | None:
    """AgentScope's tool of this name, whose arguments have the same names."""
    if name == "Bash":
        return Bash(cwd=workdir, backend=backend)
    for kind in (Edit, Glob, Grep, Read, Write):
        if kind.name == name:
            return kind(backend=backend)
    return None
