"""Offloaded contexts: what appending to a long one costs."""

from __future__ import annotations

from benchmarks.agentscope import agentscope
from benchmarks.measure import Row, interleaved, medians, quartiles
from benchmarks.world import World

SIZE = 100_000_000
LINE = 500_000
MESSAGE = {"role": "user", "name": "u", "content": "x" * 1000}


async def append(world: World) -> list[Row]:
    """A message of 1 KB, appended durably to a session of 100 MB and to one of a few."""
    filling = {**MESSAGE, "content": "x" * LINE}
    for workspace in (world.docker, world.local):
        for _ in range(SIZE // LINE // 20):
            await workspace.offload.context("long", [filling] * 20)

    async def docker_long() -> None:
        await world.docker.offload.context("long", [MESSAGE])

    async def docker_short() -> None:
        await world.docker.offload.context("short", [MESSAGE])

    async def local_long() -> None:
        await world.local.offload.context("long", [MESSAGE])

    async with agentscope(world.scratch) as peer:
        await peer.do("fill", size=SIZE, line=LINE)

        async def theirs() -> float:
            return await peer.seconds("append", session="long")

        ours = {"Docker": docker_long, "Docker, short session": docker_short, "Local": local_long}
        taken = await interleaved(ours, rounds=60)
        taken |= await interleaved({"AgentScope, Local": theirs}, rounds=8, warmup=1)
    middle, spread = medians(taken, 1000), quartiles(taken, 1000)
    longer = middle["Docker"] - middle["Docker, short session"]
    peers = {"AgentScope, Local": middle["AgentScope, Local"]}
    rows = []
    for kind in ("Docker", "Local"):
        mine = middle[kind]
        rows.append(
            Row(
                f"OffloadContext to a session of 100 MB, {kind}", "ms", mine, peers, "at most 10 ms", f"{mine:.1f} ms",
                mine <= 10, samples=60, spread=spread,
            )
        )  # fmt: skip
    rows.append(
        Row(
            "OffloadContext, what 100 MB before it cost", "ms", longer, {}, "nothing: at most 1 ms",
            f"{longer:+.2f} ms", longer <= 1, samples=60,
        )
    )  # fmt: skip
    return rows
