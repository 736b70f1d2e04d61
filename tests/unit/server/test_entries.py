"""Memory, registry and watchers agree, whatever becomes of a write."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable

import pytest
import sqlalchemy as sa

from tests.unit.server.conftest import Harness, slow_writes
from workspaced.v1 import workspace_pb2 as pb
from workspaced_server.errors import WorkspacedError
from workspaced_server.workspaces.entries import Entries, Entry
from workspaced_server.workspaces.record import State
from workspaced_server.workspaces.registry import Query, RegistryUnavailable

pytestmark = pytest.mark.anyio

ANY = pb.WorkspaceSpec()
Write = Callable[[Entries, Entry], Awaitable[None]]


async def save(entries: Entries, entry: Entry) -> None:
    await entries.save(entry, state=State.DEGRADED, state_reason="so")


async def remove(entries: Entries, entry: Entry) -> None:
    await entries.remove(entry, "so")


AFTER: dict[Write, State] = {save: State.DEGRADED, remove: State.DELETED}


def disk_full(*_: object) -> None:
    raise sa.exc.OperationalError("", None, sqlite3.OperationalError("database or disk is full"))


@pytest.mark.parametrize("write", AFTER)
@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_write_changes_everything_or_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, write: Write, cancelled: bool, fails: bool
) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    entries = harness.workspaces.entries
    entry = await entries.resolve("a")
    if fails:
        monkeypatch.setattr(harness.registry._engine, "begin", disk_full)
    with entries.feed.subscribe(Query()) as watcher, slow_writes(harness.registry) as (begun, go):
        task = asyncio.ensure_future(write(entries, entry))
        await begun.wait()
        assert entry.record.state is State.READY
        if cancelled:
            task.cancel()
            await asyncio.sleep(0)
        go.set()
        await asyncio.wait([task])
        told = asyncio.ensure_future(watcher.next())
        await asyncio.sleep(0)
        assert told.done() is not fails
        told.cancel()
    assert task.cancelled() is cancelled
    if not cancelled:
        assert isinstance(task.exception(), RegistryUnavailable if fails else type(None))
    stored = await harness.registry.get(entry.record.key)
    expected = State.READY if fails else AFTER[write]
    assert entry.record.state is expected
    assert (stored.state if stored is not None else State.DELETED) is expected
    assert (entries.get(entry.record.key) is entry) == (stored is not None)


async def test_writes_of_one_workspace_do_not_undo_each_other(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    entries = harness.workspaces.entries
    entry = await entries.resolve("a")
    await asyncio.gather(
        entries.save(entry, workdir="/one"),
        entries.save(entry, state_reason="two"),
        entries.save(entry, state=State.DEGRADED),
    )
    stored = await harness.registry.get(entry.record.key)
    assert stored == entry.record
    assert (stored.workdir, stored.state_reason, stored.state) == ("/one", "two", State.DEGRADED)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_call_that_finds_its_sandbox_gone_and_is_cancelled(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    entry = await harness.workspaces.entries.resolve("a")
    harness.driver.fail["status"] = harness.driver.fail["renew"] = KeyError()
    await harness.workspaces.transitions.drop_channels()
    harness.driver.sandboxes.clear()

    async def use() -> None:
        async with harness.workspaces.use("a"):
            raise AssertionError

    with monkeypatch.context() as patch:
        if fails:
            patch.setattr(harness.registry._engine, "begin", disk_full)
        with slow_writes(harness.registry) as (begun, go):
            task = asyncio.create_task(use())
            await begun.wait()
            task.cancel()
            go.set()
            await asyncio.wait([task])
    stored = await harness.registry.get(entry.record.key)
    assert stored is not None
    assert stored.state is entry.record.state is (State.READY if fails else State.DEGRADED)
    with pytest.raises(WorkspacedError) as caught:
        await use()
    assert caught.value.reason == "WORKSPACE_UNREACHABLE"
    assert entry.record.state is State.DEGRADED
