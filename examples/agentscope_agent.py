#!/usr/bin/env python3
"""An agent of AgentScope whose workspace is one of this server's. Its model is scripted; everything else is real.

python examples/agentscope_agent.py [--target 127.0.0.1:7420] [--backend local] [--image IMAGE] [--mcp PROGRAM …]

Needs ``workspaced[agentscope]``. Prints each tool call with its result, and at the end the path of the context that the
agent put aside in the workspace.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from agentscope.agent import Agent
from agentscope.credential import CredentialBase
from agentscope.formatter import OpenAIChatFormatter
from agentscope.mcp import MCPClient, StdioMCPConfig
from agentscope.message import TextBlock, ToolCallBlock, UserMsg
from agentscope.model import ChatModelBase, ChatResponse
from agentscope.permission import PermissionContext, PermissionMode
from agentscope.state import AgentState
from agentscope.tool import Toolkit

import workspaced
from workspaced.agentscope import AgentScopeWorkspace

SKILL = Path(__file__).parent / "skills" / "greeting"
AGENT = "ada"
SCRIPT: list[tuple[str, dict[str, Any]]] = [
    ("Skill", {"skill": "greeting"}),
    ("Write", {"file_path": "letter.txt", "content": "Dear Bob,\nall is well.\n"}),
    ("Edit", {"file_path": "letter.txt", "old_string": "well", "new_string": "very well"}),
    ("Bash", {"command": "cat letter.txt; echo; pwd; exit 3"}),
    ("Grep", {"pattern": "very", "output_mode": "content"}),
]


class ScriptedModel(ChatModelBase):
    """Calls the tools of a script one after the other, then says that it is done."""

    def __init__(self, script: list[tuple[str, dict[str, Any]]]) -> None:
        super().__init__(CredentialBase(), "scripted", self.Parameters(), stream=False)
        self.formatter = OpenAIChatFormatter()
        self._script = list(script)
        self.offered: set[str] = set()

    async def _call_api(self, model_name: str, messages: Any, tools: Any = None, **options: Any) -> ChatResponse:
        self.offered = {tool["function"]["name"] for tool in tools or []}
        if not self._script:
            return ChatResponse(content=[TextBlock(text="Done.")], is_last=True)
        name, arguments = self._script.pop(0)
        call = ToolCallBlock(id=f"call-{len(self._script)}", name=name, input=json.dumps(arguments))
        return ChatResponse(content=[call], is_last=True)


async def run(workspace: AgentScopeWorkspace, mcp: list[str]) -> None:
    """One reply of the agent, with a skill and an MCP server of its own."""
    session = AgentState().session_id
    await workspace.add_skill(str(SKILL), agent_id=AGENT)
    script = list(SCRIPT)
    if mcp:
        config = StdioMCPConfig(command=mcp[0], args=mcp[1:])
        client = MCPClient(name="server", is_stateful=True, mcp_config=config)
        await workspace.add_mcp(client, agent_id=AGENT, session_id=session)
        script.append(("mcp__server__echo", {"text": "through MCP", "message": "through MCP"}))

    model = ScriptedModel(script)
    # The sandbox is what protects the machine, so the agent need not ask.
    permissions = PermissionContext(mode=PermissionMode.BYPASS)
    agent = Agent(
        name=AGENT,
        system_prompt="You write letters.",
        model=model,
        toolkit=Toolkit(
            tools=await workspace.list_tools(),
            skills_or_loaders=await workspace.list_skills(agent_id=AGENT),
            mcps=await workspace.list_mcps(agent_id=AGENT, session_id=session),
        ),
        offloader=workspace,
        state=AgentState(session_id=session, permission_context=permissions),
    )
    await agent.reply(UserMsg(name="bob", content="Write me a letter."))
    print("tools:", *sorted(model.offered))
    for message in agent.state.context:
        for block in message.content:
            if block.type == "tool_result":
                output = block.output if isinstance(block.output, str) else "".join(part.text for part in block.output)
                print(f"--- {block.name}: {block.state}\n{output.rstrip()}")
    print("context:", await workspace.offload_context(session, agent.state.context))


async def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="127.0.0.1:7420")
    parser.add_argument("--backend", default="local")
    parser.add_argument("--image", default="")
    parser.add_argument("--mcp", nargs="+", default=[], help="an MCP server with a tool echo")
    arguments = parser.parse_args()
    async with workspaced.connect(arguments.target) as client:
        workspace = AgentScopeWorkspace(client, backend=arguments.backend, image=arguments.image)
        try:
            async with workspace:
                await run(workspace, arguments.mcp)
        finally:
            await client.workspace(workspace.workspace_id).delete(allow_missing=True)


if __name__ == "__main__":
    asyncio.run(main())
