"""Allocation: a workspace by user, agent and session, when it is there already."""

from __future__ import annotations

import statistics
import time

import anyio

import workspaced
from benchmarks.measure import Row
from benchmarks.world import World, running_server

CALLS = 1000
KEYS = 100
CALLERS = 10


async def acquire(world: World) -> Row:
    """1,000 AcquireWorkspace calls on 100 keys, ten at a time."""
    taken: list[float] = []
    with running_server(world.scratch) as server:
        async with workspaced.connect(server.address) as client:
            spread = anyio.CapacityLimiter(CALLERS)

            async def one(number: int, into: list[float]) -> None:
                async with spread:
                    began = time.perf_counter()
                    lease = await client.acquire(
                        policy="per_session", user_id="u", agent_id="a", session_id=f"s{number % KEYS}", backend="local"
                    )
                    into.append(time.perf_counter() - began)
                    await lease.release()
                    workspaces[lease.id] = lease

            workspaces: dict[str, workspaced.Workspace] = {}
            for count, into in ((KEYS, []), (CALLS, taken)):
                async with anyio.create_task_group() as group:
                    for number in range(count):
                        group.start_soon(one, number, into)
            assert len(workspaces) == KEYS
            for workspace in workspaces.values():
                await workspace.delete()
    milliseconds = sorted(1000 * seconds for seconds in taken)
    last = milliseconds[int(0.99 * CALLS)]
    return Row(
        f"AcquireWorkspace, {CALLS} calls on {KEYS} keys, warm, p99", "ms", last, {}, "at most 50 ms", f"{last:.1f} ms",
        last <= 50, notes=f"p50 {statistics.median(milliseconds):.2f} ms; {CALLERS} callers at once", samples=CALLS,
    )  # fmt: skip
