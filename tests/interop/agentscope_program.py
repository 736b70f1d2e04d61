"""Runs in the environment of AgentScope, and of nothing else: drives its LocalWorkspace as a program of its would.

    python agentscope_program.py write DIRECTORY    fill a workspace, then print what AgentScope itself sees in it
    python agentscope_program.py read DIRECTORY     print what AgentScope sees in a workspace

What it sees is one JSON object; the agents and sessions to look for come as JSON on stdin.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from agentscope.mcp import HttpMCPConfig, MCPClient, StdioMCPConfig
from agentscope.message import (
    AssistantMsg,
    Base64Source,
    DataBlock,
    HintBlock,
    Msg,
    SystemMsg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    URLSource,
    UserMsg,
)
from agentscope.workspace import LocalWorkspace

PICTURE = bytes(range(256)) * 4
AGENT, SESSION = "researcher", "session-1"


def skill(parent: Path, name: str, description: str, *, script: str = "") -> str:
    """A directory with a skill, as a person writes it."""
    directory = parent / name
    directory.mkdir()
    text = f"---\nname: {name}\ndescription: {description}\n---\n\n# {name}\n\nDo it with care: ü, 漢字, 🙂.\n"
    (directory / "SKILL.md").write_text(text, encoding="utf-8")
    if script:
        (directory / "scripts").mkdir()
        program = directory / "scripts/run.sh"
        program.write_text(script)
        program.chmod(0o755)
    return str(directory)


def picture(name: str) -> DataBlock:
    """An image in a message."""
    data = base64.b64encode(PICTURE).decode("ascii")
    return DataBlock(source=Base64Source(data=data, media_type="image/png"), name=name)


def messages() -> list[Msg]:
    """A conversation with a block of every kind."""
    url = URLSource(url="https://example.org/a%20b.wav?q=1", media_type="audio/wav")
    output = [TextBlock(text="three files\n"), picture("screen.png")]
    content = [
        ThinkingBlock(thinking="It is a directory.", signature="opaque=="),
        ToolCallBlock(id="call-1", name="Bash", input='{"command": "ls -l", "count": 12345678901234567890}'),
        ToolResultBlock(id="call-1", name="Bash", output=output, state="success"),
        ToolResultBlock(id="call-2", name="Read", output="only text", state="error"),
        HintBlock(hint="Be brief.", source="team"),
        HintBlock(hint=[TextBlock(text="See:"), picture("hint.png")]),
        TextBlock(text="There are three files: ü, 漢字, 🙂, \u2028 and \\n."),
    ]
    return [
        SystemMsg(name="system", content="You are careful."),
        UserMsg(name="ann", content=[TextBlock(text="What is this?"), picture("photo.png"), DataBlock(source=url)]),
        AssistantMsg(name="bot", content=content, metadata={"depth": {"a": [1, None, True, "x"]}}),
    ]


async def write(directory: str, node_path: str) -> None:
    """Use each role once: skills, MCP servers, offloading."""
    with tempfile.TemporaryDirectory() as name:
        parent = Path(name)
        seed = skill(parent, "seeded", "comes with the workspace")
        async with LocalWorkspace(workdir=directory, skill_paths=[seed]) as workspace:
            await workspace.add_skill(skill(parent, "for-nobody", '"no agent\'s: # in quotes"'))
            runs = skill(parent, "runs", "has a program", script="#!/bin/sh\necho ran\n")
            await workspace.add_skill(runs, agent_id=AGENT)
            await workspace.list_skills(agent_id="another")

            await workspace.offload_context(SESSION, messages())
            await workspace.offload_context(SESSION, [UserMsg(name="ann", content="Thank you.")])
            await workspace.offload_context("other session", [UserMsg(name="bo", content="Hello.")])
            output = [TextBlock(text="line 1\n"), TextBlock(text="line 2\n"), picture("plot.png")]
            for _ in range(2):
                block = ToolResultBlock(id="call-9", name="Bash", output=output, state="success")
                await workspace.offload_tool_result(SESSION, block)

            env = {"PATH": node_path, "KEY": "s3cret"}
            everything = StdioMCPConfig(command="mcp-server-everything", args=["stdio"], env=env)
            files = StdioMCPConfig(command="mcp-server-filesystem", args=[directory], env=env, cwd=directory)
            remote = HttpMCPConfig(url="https://mcp.example.org/v1/mcp", headers={"Authorization": "Bearer t0ken"})
            older = HttpMCPConfig(url="http://127.0.0.1:9/sse?k=v", timeout=None)
            clients = [
                MCPClient(name="everything", is_stateful=True, mcp_config=everything, execution_timeout=7.5),
                MCPClient(name="remote", is_stateful=False, mcp_config=remote, enable_tools=["search"]),
                MCPClient(name="older", is_stateful=False, mcp_config=older, disable_tools=["rm", "mv"]),
            ]
            for client in clients:
                await workspace.add_mcp(client, agent_id=AGENT, session_id=SESSION)
            await workspace.add_mcp(MCPClient(name="files", is_stateful=True, mcp_config=files))
            await workspace.add_mcp(MCPClient(name="gone", is_stateful=False, mcp_config=older), agent_id="another")
            await workspace.remove_mcp("gone", agent_id="another")


async def seen(directory: str, agents: list[str | None], sessions: list[str]) -> dict[str, Any]:
    """What AgentScope finds in the directory."""
    async with LocalWorkspace(workdir=directory) as workspace:
        skills = {
            agent or "": [
                {"name": found.name, "description": found.description, "dir": found.dir, "markdown": found.markdown}
                for found in await workspace.list_skills(agent_id=agent)
            ]
            for agent in agents
        }
        declared = await workspace._restore_mcp_specs()
    contexts = {}
    for session in sessions:
        lines = (Path(directory) / "sessions" / session / "context.jsonl").read_bytes().splitlines()
        contexts[session] = [Msg.model_validate_json(line).model_dump(mode="json") for line in lines]
    return {
        "skills": skills,
        "contexts": contexts,
        "mcps": [
            {"agent": agent, "session": session, "mcps": [client.model_dump(mode="json") for client in clients]}
            for (agent, session), clients in declared.items()
        ],
    }


async def main() -> None:
    action, directory = sys.argv[1:]
    job = json.load(sys.stdin)
    if action == "write":
        await write(directory, job["path"])
    json.dump(await seen(directory, job["agents"], job["sessions"]), sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
