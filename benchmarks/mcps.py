"""MCP servers: a tool's call, and the first server of a new sandbox."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from benchmarks.agentscope import agentscope
from benchmarks.measure import Row, interleaved, medians, quartiles
from benchmarks.world import World
from tests.support.real_parts import AGENTS_IMAGE

ECHO_SERVER = Path(__file__).parent / "echo_server.py"
LIGHT_SERVER = Path(__file__).parent / "light_server.py"
COMMAND = ["/usr/bin/python3", "server.py"]


def bare(server: Path) -> StdioServerParameters:
    """The server on the host."""
    return StdioServerParameters(command=sys.executable, args=[str(server)])


async def call(world: World) -> Row:
    """A call of an stdio server in a container; with the bare SDK on the host; through AgentScope's container."""
    workspace = await world.client.initialize(backend="docker", image=AGENTS_IMAGE, workspace_id="mcp-call")
    try:
        await workspace.files.write("server.py", ECHO_SERVER.read_bytes())
        await workspace.mcps.add("echo", stdio=COMMAND)
        async with (
            stdio_client(bare(ECHO_SERVER)) as (receiving, sending),
            ClientSession(receiving, sending) as session,
            agentscope(world.scratch, docker=True) as peer,
        ):
            await session.initialize()

            async def ours() -> None:
                assert (await workspace.tools.call("mcp__echo__echo", {"text": "hello"})).text == "hello"

            async def by_sdk() -> None:
                assert not (await session.call_tool("echo", {"text": "hello"})).is_error

            async def theirs() -> float:
                return await peer.seconds("mcp_call", server=str(ECHO_SERVER))

            samples = {"workspaced": ours, "mcp SDK on the host": by_sdk, "AgentScope": theirs}
            taken = await interleaved(samples, rounds=30, block=5)
    finally:
        await workspace.delete()
    middle = medians(taken, 1000)
    mine = middle.pop("workspaced")
    more, times = mine - middle["mcp SDK on the host"], middle["AgentScope"] / mine
    return Row(
        "MCP tool call, stdio, Docker", "ms", mine, middle,
        "at most 5 ms over the bare SDK, 30 times faster than AgentScope",
        f"{more:+.2f} ms, {times:.0f} times", more <= 5 and times >= 30, samples=150, spread=quartiles(taken, 1000),
    )  # fmt: skip


async def first_ready(world: World) -> Row:
    """AddMcp in a new sandbox; the same server's start on the host; AgentScope's gateway, then the server in it."""

    async def ours() -> float:
        workspace = await world.client.initialize(backend="docker", image=AGENTS_IMAGE)
        try:
            await workspace.files.write("server.py", LIGHT_SERVER.read_bytes())
            began = time.perf_counter()
            await workspace.mcps.add("echo", stdio=COMMAND)
            return time.perf_counter() - began
        finally:
            await workspace.delete()

    async def by_itself() -> float:
        began = time.perf_counter()
        async with (
            stdio_client(bare(LIGHT_SERVER)) as (receiving, sending),
            ClientSession(receiving, sending) as session,
        ):
            await session.initialize()
            return time.perf_counter() - began

    async with agentscope(world.scratch, docker=True) as peer:

        async def theirs() -> float:
            return await peer.seconds("mcp_ready", server=str(LIGHT_SERVER))

        samples = {"workspaced": ours, "the server's own start": by_itself, "AgentScope": theirs}
        taken = await interleaved(samples, rounds=7, warmup=1, pause=0.5)
    middle = medians(taken, 1000)
    mine = middle.pop("workspaced")
    more = mine - middle["the server's own start"]
    return Row(
        "first MCP server ready in a new sandbox", "ms", mine, middle, "at most 300 ms over its own start",
        f"{more:+.0f} ms", more <= 300, samples=7, spread=quartiles(taken, 1000),
    )  # fmt: skip
