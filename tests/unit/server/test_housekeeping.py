"""Idle workspaces are closed, those in use are not, and leftovers are swept."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from tests.support.fake_driver import FakeChannel, FakeSandbox, refused
from tests.unit.server.conftest import Harness
from workspaced.v1 import workspace_pb2 as pb
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.workspaces import expiry, transitions
from workspaced_server.workspaces.expiry import Housekeeping
from workspaced_server.workspaces.record import State
from workspaced_server.workspaces.sweep import Sweep

pytestmark = pytest.mark.anyio

HOUR = pb.WorkspaceSpec(idle_timeout=Duration(seconds=3600))


async def let_idle(harness: Harness, workspace_id: str, seconds: int) -> None:
    """Move its last use into the past."""
    entry = await harness.workspaces.entries.resolve(workspace_id)
    entry.used_time = entry.record.last_used_time - seconds * 1_000_000
    entry.record = replace(entry.record, last_used_time=entry.used_time)
    await harness.registry.touch({entry.record.key: entry.used_time})


async def state(harness: Harness, workspace_id: str) -> State:
    return (await harness.workspaces.get(workspace_id)).record.state


async def test_an_idle_workspace_is_closed_after_its_timeout(harness: Harness) -> None:
    made = await harness.workspaces.initialize(HOUR, workspace_id="a")
    assert made.snapshot.expire_time == made.snapshot.record.last_used_time + 3600 * 1_000_000
    await harness.workspaces.initialize(pb.WorkspaceSpec(), workspace_id="never")
    keeping = Housekeeping(harness.workspaces)
    await let_idle(harness, "a", 3599)
    await let_idle(harness, "never", 100_000)
    await keeping.expire()
    assert await state(harness, "a") is State.READY
    await let_idle(harness, "a", 3600)
    await keeping.expire()
    assert await state(harness, "a") is State.CLOSED
    assert await state(harness, "never") is State.READY


async def test_use_keeps_a_workspace_open(harness: Harness) -> None:
    await harness.workspaces.initialize(HOUR, workspace_id="a")
    keeping = Housekeeping(harness.workspaces)
    async with harness.workspaces.use("a"):
        await let_idle(harness, "a", 4000)
        await keeping.expire()
        await keeping.renew()
        assert await state(harness, "a") is State.READY
        assert "renew" in harness.driver.calls
    await keeping.expire()
    assert await state(harness, "a") is State.READY


async def test_a_running_process_keeps_a_workspace_open_unless_told(harness: Harness) -> None:
    await harness.workspaces.initialize(HOUR, workspace_id="a")
    (sandbox,) = harness.driver.sandboxes.values()
    sandbox.processes.add("server")
    await let_idle(harness, "a", 4000)
    await Housekeeping(harness.workspaces).expire()
    assert await state(harness, "a") is State.READY
    await harness.restart(idle_counts_processes=False)
    await let_idle(harness, "a", 8000)
    await Housekeeping(harness.workspaces).expire()
    assert await state(harness, "a") is State.CLOSED


async def test_an_mcp_server_that_nobody_calls_keeps_no_workspace_open(harness: Harness) -> None:
    await harness.workspaces.initialize(HOUR, workspace_id="a")
    (sandbox,) = harness.driver.sandboxes.values()
    sandbox.processes.add("mcp-everything-1")
    await let_idle(harness, "a", 4000)
    await Housekeeping(harness.workspaces).expire()
    assert await state(harness, "a") is State.CLOSED


async def test_idleness_outlives_a_restart(harness: Harness) -> None:
    await harness.workspaces.initialize(HOUR, workspace_id="a")
    await let_idle(harness, "a", 4000)
    workspaces = await harness.restart()
    await Housekeeping(workspaces).expire()
    assert await state(harness, "a") is State.CLOSED


async def test_a_guest_that_cannot_be_asked_is_not_closed(harness: Harness) -> None:
    await harness.workspaces.initialize(HOUR, workspace_id="a")
    (sandbox,) = harness.driver.sandboxes.values()
    sandbox.break_channels()
    harness.driver.fail["open_channel"] = refused("PROVIDER_UNAVAILABLE", retryable=True)
    await let_idle(harness, "a", 4000)
    await Housekeeping(harness.workspaces).expire()
    assert await state(harness, "a") is State.READY


async def test_a_leftover_is_reported_then_destroyed(harness: Harness) -> None:
    await harness.workspaces.initialize(pb.WorkspaceSpec(), workspace_id="a")
    harness.driver.sandboxes["ff" * 16] = FakeSandbox("ff" * 16, "")
    sweep = Sweep(harness.workspaces)
    assert [ref.key for ref in await sweep.once()] == ["ff" * 16]
    assert len(harness.driver.sandboxes) == 2
    workspaces = await harness.restart(sweep_grace_seconds=0.0)
    sweep = Sweep(workspaces)
    await sweep.once()
    assert len(harness.driver.sandboxes) == 1
    assert await sweep.once() == []


async def test_a_leftover_is_only_reported_when_so_configured(harness: Harness) -> None:
    workspaces = await harness.restart(sweep="report", sweep_grace_seconds=0.0)
    harness.driver.sandboxes["ff" * 16] = FakeSandbox("ff" * 16, "")
    sweep = Sweep(workspaces)
    await sweep.once()
    assert len(await sweep.once()) == 1
    assert len(harness.driver.sandboxes) == 1


async def test_a_guest_that_does_not_answer_holds_up_no_other(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.workspaces.initialize(HOUR, workspace_id="deaf")
    await let_idle(harness, "deaf", 4000)

    async def never(*_: object) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(FakeChannel, "call", never)
    monkeypatch.setattr(expiry, "_ANSWER_SECONDS", 0.01)
    async with asyncio.timeout(5):
        await Housekeeping(harness.workspaces).expire()
    assert await state(harness, "deaf") is State.READY


async def test_a_backend_that_hangs_holds_up_nothing_else(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    workspaces, driver = await harness.restart(housekeeping_seconds=0.0), harness.driver
    await workspaces.initialize(HOUR, workspace_id="used")
    for number in range(6):
        await workspaces.initialize(HOUR, workspace_id=f"idle{number}")
        await let_idle(harness, f"idle{number}", 4000)
    driver.hold["suspend"] = held = asyncio.Event()
    driver.reached["suspend"] = suspending = asyncio.Event()
    driver.reached["renew"] = renewing = asyncio.Event()
    driver.hold["renew"] = asyncio.Event()
    monkeypatch.setattr(expiry, "_RENEW_SECONDS", 0.0)
    monkeypatch.setattr(expiry, "_CLOSE_SECONDS", 0.01)
    monkeypatch.setattr(expiry, "_ANSWER_SECONDS", 0.01)
    async with workspaces.use("used"):
        task = asyncio.create_task(Housekeeping(workspaces).run())
        async with asyncio.timeout(10):
            await suspending.wait()
            while driver.calls.count("suspend") < 6:
                suspending.clear()
                await suspending.wait()
            await renewing.wait()
            renewing.clear()
            await renewing.wait()
        task.cancel()
        await asyncio.wait([task])
    held.set()
    await harness.settle()
    assert [await state(harness, f"idle{number}") for number in range(6)] == [State.CLOSED] * 6


async def test_a_suspension_that_never_ends_is_given_up(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    await harness.workspaces.initialize(HOUR, workspace_id="a")
    harness.driver.hold["suspend"] = asyncio.Event()
    monkeypatch.setattr(transitions, "_SUSPEND_SECONDS", 0.01)
    with pytest.raises(WorkspacedError) as caught:
        await harness.workspaces.close("a")
    assert (caught.value.code, caught.value.reason) == (Code.UNAVAILABLE, "PROVIDER_UNAVAILABLE")
    assert await state(harness, "a") is State.DEGRADED
    harness.driver.hold.clear()
    await harness.workspaces.close("a")
    assert await state(harness, "a") is State.CLOSED


async def test_what_nobody_expected_ends_no_later_round(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.workspaces.settings = replace(
        harness.workspaces.settings, housekeeping_seconds=0.0, sweep_seconds=0.0, sweep="report"
    )
    monkeypatch.setattr(expiry, "_RENEW_SECONDS", 0.0)
    keeping, sweep = Housekeeping(harness.workspaces), Sweep(harness.workspaces)
    periodic: list[tuple[Housekeeping | Sweep, str]] = [
        (keeping, "store"),
        (keeping, "expire"),
        (keeping, "renew"),
        (sweep, "once"),
    ]
    for work, name in periodic:
        again = asyncio.Event()
        rounds = iter((False, True))

        async def once(rounds: Any = rounds, again: asyncio.Event = again) -> None:
            if next(rounds):
                again.set()
                await asyncio.Event().wait()
            raise KeyError("a driver's surprise")

        monkeypatch.setattr(work, name, once)
        task = asyncio.create_task(work.run())
        async with asyncio.timeout(5):
            await again.wait()
        task.cancel()
        await asyncio.wait([task])
