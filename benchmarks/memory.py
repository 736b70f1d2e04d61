"""What lies idle: the server, a workspace, a guest."""

from __future__ import annotations

import anyio

import workspaced
from benchmarks.measure import Row
from benchmarks.world import World, running_server
from tests.support.server import rss_bytes

MIB = 1 << 20
COUNT = 200


async def idle(world: World) -> list[Row]:
    with running_server(world.scratch) as server:
        await anyio.sleep(1)
        alone = server.rss_bytes()
        async with workspaced.connect(server.address) as client:
            first = await client.initialize(backend="local", workspace_id="first")
            await first.run(["true"])
            with_one = server.rss_bytes()
            limiter = anyio.CapacityLimiter(4)

            async def one(number: int) -> None:
                async with limiter:
                    made[number] = await client.initialize(backend="local", workspace_id=f"w{number}")

            made: dict[int, workspaced.Workspace] = {}
            async with anyio.create_task_group() as group:
                for number in range(COUNT):
                    group.start_soon(one, number)
            with_all = server.rss_bytes()
            guest = rss_bytes(int((await first.run("echo $PPID")).stdout))

            async def delete(workspace: workspaced.Workspace) -> None:
                async with limiter:
                    await workspace.delete()

            async with anyio.create_task_group() as group:
                for workspace in [first, *made.values()]:
                    group.start_soon(delete, workspace)
    each = (with_all - with_one) / COUNT / 1024
    return [
        Row("memory of an idle server", "MiB", alone / MIB, {}, "at most 100 MB", f"{alone / 1e6:.0f} MB",
            alone <= 100e6),
        Row("memory of the server for each idle workspace", "KiB", each, {}, "at most 150 KB", f"{each * 1.024:.0f} KB",
            each * 1.024 <= 150, notes=f"{COUNT} Local workspaces"),
        Row("memory of an idle guest", "MiB", guest / MIB, {}, "at most 20 MB", f"{guest / 1e6:.1f} MB", guest <= 20e6),
    ]  # fmt: skip
