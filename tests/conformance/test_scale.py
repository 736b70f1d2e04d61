"""Many workspaces on one server."""

from __future__ import annotations

import anyio
import pytest

import workspaced
from tests.support.server import ServerProcess

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_two_hundred_workspaces(own_server: ServerProcess) -> None:
    """On Local: the number is the server's load; containers would load the engine."""
    limiter = anyio.CapacityLimiter(8)
    answers: dict[int, bytes] = {}
    async with workspaced.connect(own_server.address) as client:
        await client.initialize(backend="local", workspace_id="first")
        before = own_server.rss_bytes()

        async def one(number: int) -> None:
            async with limiter:
                ws = await client.initialize(backend="local", workspace_id=f"w{number}")
                answers[number] = (await ws.run(["echo", str(number)])).stdout

        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(one, number)
        assert answers == {n: b"%d\n" % n for n in range(200)}
        per_workspace = (own_server.rss_bytes() - before) / 200
        assert per_workspace < 512 << 10, f"{per_workspace / 1024:.0f} KiB for each workspace"

        async def delete(number: int) -> None:
            async with limiter:
                await client.workspace(f"w{number}").delete()

        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(delete, number)
        await client.workspace("first").delete()
