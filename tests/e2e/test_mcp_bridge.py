"""`workspaced mcp --workspace ID` under the official MCP client: the tools, skills and MCP servers of a workspace."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

import workspaced
from tests.support.server import ROOT, ServerProcess

pytestmark = pytest.mark.anyio
MCP_SERVER = ROOT / "tests" / "support" / "mcp_server.py"


@pytest.fixture
async def ws(tmp_path: Path) -> AsyncIterator[tuple[ServerProcess, workspaced.Workspace]]:
    server = ServerProcess(tmp_path / "state")
    server.start()
    async with workspaced.connect(server.address) as client:
        workspace = await client.initialize(backend="local", workspace_id="bridged")
        yield server, workspace
        await workspace.delete(allow_missing=True)
    assert server.stop() == 0


@asynccontextmanager
async def bridged(server: ServerProcess, *arguments: str) -> AsyncIterator[ClientSession]:
    """A session with the command, as an editor starts it."""
    path = os.pathsep.join([str(ROOT / "service"), str(ROOT / "clients/python"), *sys.path])
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "workspaced_server", "mcp", *arguments],
        env={"WORKSPACED_SERVER": server.address, "PYTHONPATH": path},
    )
    async with stdio_client(program) as (reading, writing), ClientSession(reading, writing) as session:
        await session.initialize()
        yield session


def text_of(result: types.CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def test_everything_of_a_workspace_is_there(ws: tuple[ServerProcess, workspaced.Workspace]) -> None:
    server, workspace = ws
    await workspace.skills.add(ROOT / "examples" / "skills" / "greeting", agent_id="a")
    await workspace.mcps.add(name="test", stdio=[sys.executable, str(MCP_SERVER)], agent_id="a", session_id="s")
    async with bridged(server, "--workspace", "bridged", "--agent", "a", "--session", "s") as session:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert {"Bash", "Read", "Write", "Edit", "Glob", "Grep", "Skill"} < tools.keys()
        assert tools["Read"].annotations is not None
        assert tools["Read"].annotations.read_only_hint
        assert any(name.startswith("mcp__test__") for name in tools)
        done = await session.call_tool("Bash", {"command": "echo here > file && cat file"})
        assert "here" in text_of(done)
        assert not done.is_error
        assert await workspace.files.read("file") == b"here\n"
        echoed = await session.call_tool("mcp__test__echo", {"text": "over two bridges"})
        assert "over two bridges" in text_of(echoed)
        told: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            told.append(progress)

        await session.call_tool("mcp__test__slow", {"seconds": 0.2, "steps": 2}, progress_callback=on_progress)
        assert told == [1, 2]
        wrong = await session.call_tool("Read", {"file_path": "missing"})
        assert wrong.is_error
        resources = {str(item.uri): item for item in (await session.list_resources()).resources}
        assert "skill://greeting" in resources
        read = await session.read_resource("skill://greeting")
        assert "Good day" in read.contents[0].text  # type: ignore[union-attr]
        with pytest.raises(MCPError, match="Nope"):
            await session.call_tool("Nope", {})
        with pytest.raises(MCPError):
            await session.read_resource("skill://missing")


async def test_another_agent_sees_its_own(ws: tuple[ServerProcess, workspaced.Workspace]) -> None:
    server, workspace = ws
    await workspace.skills.add(ROOT / "examples" / "skills" / "greeting", agent_id="a")
    async with bridged(server, "--workspace", "bridged", "--agent", "b") as session:
        assert (await session.list_resources()).resources == []
        assert session.instructions is not None
        assert "greeting" not in session.instructions
