"""A server that is killed at each named point between two durable steps, and the next one on the same registry."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.server.conftest import Harness
from workspaced.v1 import workspace_pb2 as pb
from workspaced_server.errors import WorkspacedError
from workspaced_server.workspaces import failpoints
from workspaced_server.workspaces.failpoints import Killed
from workspaced_server.workspaces.record import State
from workspaced_server.workspaces.registry import Query

pytestmark = pytest.mark.anyio

ANY = pb.WorkspaceSpec()
CREATION = [
    "create.begun",
    "create.stored",
    "initialize.provision",
    "initialize.provisioned",
    "initialize.stored",
    "initialize.connected",
]
CLOSING = ["close.begun", "close.stopped", "close.suspended"]
DELETION = ["delete.begun", "delete.stopped", "delete.destroyed"]


def kill_at(point: str) -> None:
    def hook(name: str) -> None:
        if name == point:
            raise Killed(name)

    failpoints.install(hook)


async def assert_nothing_is_unowned(harness: Harness) -> None:
    keys = {record.key for record in await harness.registry.page(Query(), 100)}
    assert set(harness.driver.sandboxes) <= keys
    for record in await harness.registry.page(Query(), 100):
        assert record.state in (State.READY, State.CLOSED, State.DEGRADED, State.FAILED)


@pytest.mark.parametrize("point", CREATION)
async def test_killed_while_creating_with_an_id(harness: Harness, point: str) -> None:
    kill_at(point)
    with pytest.raises(Killed):
        await harness.workspaces.initialize(ANY, workspace_id="a")
    workspaces = await harness.restart()
    await harness.settle()
    await assert_nothing_is_unowned(harness)
    # The caller tries again, and gets the one workspace.
    assert (await workspaces.initialize(ANY, workspace_id="a")).snapshot.record.state is State.READY
    assert len(harness.driver.sandboxes) == 1


@pytest.mark.parametrize("point", CREATION)
async def test_killed_while_creating_without_an_id_leaves_nothing(harness: Harness, point: str) -> None:
    kill_at(point)
    with pytest.raises(Killed):
        await harness.workspaces.initialize(ANY)
    await harness.restart()
    await harness.settle()
    assert harness.driver.sandboxes == {}
    assert await harness.registry.page(Query(), 10) == []


@pytest.mark.parametrize("point", CREATION[2:])
async def test_killed_while_resuming(harness: Harness, point: str) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    (sandbox,) = harness.driver.sandboxes.values()
    sandbox.files.add("kept")
    await harness.workspaces.close("a")
    kill_at(point)
    with pytest.raises(Killed):
        await harness.workspaces.initialize(ANY, workspace_id="a")
    workspaces = await harness.restart()
    await harness.settle()
    assert (await workspaces.get("a")).record.state is State.READY
    (sandbox,) = harness.driver.sandboxes.values()
    assert sandbox.files == {"kept"}


@pytest.mark.parametrize("point", CLOSING)
async def test_killed_while_closing(harness: Harness, point: str) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    kill_at(point)
    with pytest.raises(Killed):
        await harness.workspaces.close("a")
    workspaces = await harness.restart()
    await harness.settle()
    assert (await workspaces.get("a")).record.state is State.CLOSED
    assert [sandbox.running for sandbox in harness.driver.sandboxes.values()] == [False]


@pytest.mark.parametrize("point", DELETION)
async def test_killed_while_deleting(harness: Harness, point: str) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    kill_at(point)
    with pytest.raises(Killed):
        await harness.workspaces.delete("a")
    workspaces = await harness.restart()
    await harness.settle()
    assert harness.driver.sandboxes == {}
    with pytest.raises(WorkspacedError):
        await workspaces.get("a")


async def test_killed_while_resetting(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    (sandbox,) = harness.driver.sandboxes.values()
    sandbox.files |= {"skills", "sessions", "data", "src"}
    kill_at("reset.remove")
    with pytest.raises(Killed):
        await harness.workspaces.reset("a")
    workspaces = await harness.restart()
    assert (await workspaces.get("a")).record.state is State.READY
    await workspaces.reset("a")
    assert sandbox.files == {"src"}


async def test_killed_twice(harness: Harness) -> None:
    kill_at("initialize.provisioned")
    with pytest.raises(Killed):
        await harness.workspaces.initialize(ANY, workspace_id="a")
    failpoints.install(None)
    # The second server dies as well, in the middle of its recovery.
    harness.driver.hold["provision"] = asyncio.Event()
    harness.driver.reached["provision"] = reached = asyncio.Event()
    await harness.restart()
    await reached.wait()
    harness.driver.hold.clear()
    workspaces = await harness.restart()
    await harness.settle()
    assert (await workspaces.get("a")).record.state is State.READY
    assert len(harness.driver.sandboxes) == 1


async def test_a_stopped_server_leaves_initializations_to_the_next(harness: Harness) -> None:
    harness.driver.hold["provision"] = asyncio.Event()
    harness.driver.reached["provision"] = reached = asyncio.Event()
    task = asyncio.create_task(harness.workspaces.initialize(ANY, workspace_id="a"))
    await reached.wait()
    await harness.workspaces.aclose()
    with pytest.raises(WorkspacedError) as caught:
        await task
    assert caught.value.reason == "SERVER_DRAINING"
    harness.driver.hold.clear()
    workspaces = await harness.restart()
    await harness.settle()
    assert (await workspaces.get("a")).record.state is State.READY
