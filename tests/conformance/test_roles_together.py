"""All roles by one agent that dies: MCP servers, skills, tools and offloading, found again by the next process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import workspaced
from tests.conformance.backends import BackendUnderTest
from tests.support.real_parts import AGENTS_IMAGE, mcp_servers
from tests.support.scripted_agent import AGENT, OTHER, SESSION
from tests.support.server import ROOT, ServerProcess

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    directory = tmp_path / "careful"
    directory.mkdir()
    (directory / "SKILL.md").write_text("---\nname: careful\ndescription: works with care\n---\n\nStep 1: look.\n")
    return directory


@asynccontextmanager
async def agent(server: ServerProcess, *arguments: str | Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """The scripted agent in a process of its own, killed when the block is left before its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.scripted_agent", arguments[0], server.address, *arguments[1:],
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


@pytest.mark.parametrize("restart", [False, True], ids=["same-server", "server-killed-too"])
async def test_an_agent_that_is_killed_finds_everything(
    restart: bool, own_server: ServerProcess, backend: BackendUnderTest, skill: Path
) -> None:
    async with workspaced.connect(own_server.address) as client:
        if backend.name == "local":
            ws = await client.initialize(backend="local", env={"PATH": f"{mcp_servers()}:{os.environ['PATH']}"})
        else:
            ws = await client.initialize(backend="docker", image=AGENTS_IMAGE)
        try:
            async with agent(own_server, "begin", ws.id, skill) as process:
                assert await line(process) == "begun"
                assert await line(process) in {"ToolProgress", "ToolLog"}
                process.kill()
            if restart:
                own_server.kill()
                own_server.start()
            async with agent(own_server, "resume", ws.id, skill) as process:
                assert await line(process) == "resumed"
                assert await process.wait() == 0

            # What is purged is one session's, what is reset is everybody's.
            await ws.purge_session(SESSION, agent_id=AGENT)
            assert {item.session_id for item in await ws.offload.list() if item.kind == "context"} == {OTHER}
            assert await ws.mcps.list(agent_id=AGENT, session_id=SESSION) == []
            assert [server.name for server in await ws.mcps.list(agent_id=AGENT, session_id=OTHER)] == ["everything"]
            await ws.reset()
            assert await ws.offload.list() == []
            assert await ws.skills.list(agent_id=AGENT) == []
            assert await ws.mcps.list(agent_id=AGENT, session_id=OTHER) == []
            assert await ws.files.read("letter.txt") == b"Hi Bob,\nall is well.\n"
        finally:
            await ws.delete()
