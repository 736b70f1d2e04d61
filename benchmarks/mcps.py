"""MCP servers: a tool's call, and the first server of a new sandbox."""

from __future__ import annotations

import sys
import time

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from benchmarks.agentscope import ECHO_SERVER, agentscope
from benchmarks.measure import Row, interleaved, medians, quartiles
from benchmarks.world import World
from tests.support.real_parts import AGENTS_IMAGE

COMMAND = ["/usr/bin/python3", ECHO_SERVER.name]
BARE = StdioServerParameters(command=sys.executable, args=[str(ECHO_SERVER)])


async def call(world: World) -> Row:
    """A call of an stdio server in a container; with the bare SDK on the host; through AgentScope's container."""
    workspace = await world.client.initialize(backend="docker", image=AGENTS_IMAGE, workspace_id="mcp-call")
    try:
        await workspace.files.write(ECHO_SERVER.name, ECHO_SERVER.read_bytes())
        await workspace.mcps.add("echo", stdio=COMMAND)
        async with (
            stdio_client(BARE) as (receiving, sending),
            ClientSession(receiving, sending) as session,
            agentscope(world.scratch, docker=True) as peer,
        ):
            await session.initialize()

            async def ours() -> None:
                assert (await workspace.tools.call("mcp__echo__echo", {"text": "hello"})).text == "hello"

            async def bare() -> None:
                assert not (await session.call_tool("echo", {"text": "hello"})).is_error

            async def theirs() -> float:
                return await peer.seconds("mcp_call")

            samples = {"workspaced": ours, "mcp SDK on the host": bare, "AgentScope": theirs}
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
            await workspace.files.write(ECHO_SERVER.name, ECHO_SERVER.read_bytes())
            began = time.perf_counter()
            await workspace.mcps.add("echo", stdio=COMMAND)
            return time.perf_counter() - began
        finally:
            await workspace.delete()

    async def bare() -> float:
        began = time.perf_counter()
        async with stdio_client(BARE) as (receiving, sending), ClientSession(receiving, sending) as session:
            await session.initialize()
            return time.perf_counter() - began

    async with agentscope(world.scratch, docker=True) as peer:

        async def theirs() -> float:
            return await peer.seconds("mcp_ready")

        samples = {"workspaced": ours, "the server's own start": bare, "AgentScope": theirs}
        taken = await interleaved(samples, rounds=7, warmup=1, pause=0.5)
    middle = medians(taken, 1000)
    mine = middle.pop("workspaced")
    more = mine - middle["the server's own start"]
    return Row(
        "first MCP server ready in a new sandbox", "ms", mine, middle, "at most 300 ms over its own start",
        f"{more:+.0f} ms", more <= 300, samples=7, spread=quartiles(taken, 1000),
    )  # fmt: skip
