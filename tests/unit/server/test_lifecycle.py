"""Close, reset, delete, use, and a sandbox that is gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from tests.support.fake_driver import FakeChannel, refused
from tests.unit.server.conftest import Harness
from workspaced.v1 import workspace_pb2 as pb
from workspaced_server.api.lifecycle import _page_token, _parse_token, to_message
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.guest.channel import ChannelLost
from workspaced_server.workspaces.record import State
from workspaced_server.workspaces.registry import Query

pytestmark = pytest.mark.anyio

ANY = pb.WorkspaceSpec()


async def wait_for_state(harness: Harness, workspace_id: str, state: State) -> None:
    query = Query(workspace_ids=frozenset({workspace_id}))
    async with asyncio.timeout(5):
        async for snapshot in harness.workspaces.watch(query):
            if snapshot is not None and snapshot.record.state is state:
                return


async def test_close_is_idempotent_and_resumed_by_initialize(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    done = await asyncio.gather(*(harness.workspaces.close("a") for _ in range(5)))
    assert {item.record.state for item in done} == {State.CLOSED}
    assert harness.driver.calls.count("suspend") == 1
    await harness.workspaces.close("a")
    with pytest.raises(WorkspacedError) as caught:
        async with harness.workspaces.use("a"):
            pass
    assert (caught.value.code, caught.value.reason) == (Code.FAILED_PRECONDITION, "WORKSPACE_NOT_READY")
    assert (await harness.workspaces.initialize(ANY, workspace_id="a")).snapshot.record.state is State.READY


async def test_close_that_fails_can_be_repeated(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    harness.driver.fail["suspend"] = refused("PROVIDER_UNAVAILABLE", retryable=True)
    with pytest.raises(WorkspacedError) as caught:
        await harness.workspaces.close("a")
    assert (caught.value.code, caught.value.retry_after) == (Code.UNAVAILABLE, 1.0)
    assert (await harness.workspaces.get("a")).record.state is State.DEGRADED
    harness.driver.fail = {}
    assert (await harness.workspaces.close("a")).record.state is State.CLOSED


async def test_a_cancelled_close_goes_on(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    harness.driver.hold["suspend"] = held = asyncio.Event()
    harness.driver.reached["suspend"] = reached = asyncio.Event()
    task = asyncio.create_task(harness.workspaces.close("a"))
    await reached.wait()
    task.cancel()
    await asyncio.wait([task])
    held.set()
    await harness.settle()
    assert (await harness.workspaces.get("a")).record.state is State.CLOSED


async def test_delete_is_idempotent_where_asked(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    await asyncio.gather(*(harness.workspaces.delete("a") for _ in range(5)))
    assert harness.driver.calls.count("destroy") == 1
    await harness.workspaces.delete("a", allow_missing=True)
    with pytest.raises(WorkspacedError) as caught:
        await harness.workspaces.delete("a")
    assert caught.value.reason == "WORKSPACE_NOT_FOUND"
    assert len(harness.workspaces.entries) == 0


async def test_delete_ends_an_initialization(harness: Harness) -> None:
    harness.driver.hold["provision"] = asyncio.Event()
    harness.driver.reached["provision"] = reached = asyncio.Event()
    task = asyncio.create_task(harness.workspaces.initialize(ANY, workspace_id="a"))
    await reached.wait()
    await harness.workspaces.delete("a")
    with pytest.raises(WorkspacedError) as caught:
        await task
    assert (caught.value.code, caught.value.reason) == (Code.ABORTED, "WORKSPACE_DELETED")
    assert await harness.workspaces.list(Query(), 10) == []


async def test_delete_that_fails_can_be_repeated_and_initialize_waits_for_it(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    harness.driver.fail["destroy"] = refused("PROVIDER_UNAVAILABLE", retryable=True)
    with pytest.raises(WorkspacedError):
        await harness.workspaces.delete("a")
    assert (await harness.workspaces.get("a")).record.state is State.DELETING
    with pytest.raises(WorkspacedError):
        await harness.workspaces.initialize(ANY, workspace_id="a")
    harness.driver.fail = {}
    assert (await harness.workspaces.initialize(pb.WorkspaceSpec(image="new"), workspace_id="a")).created


async def test_reset_removes_what_agents_left(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    (sandbox,) = harness.driver.sandboxes.values()
    sandbox.files |= {"skills", "sessions", "data", ".mcp", "src", "README"}
    sandbox.processes.add("server")
    await harness.workspaces.reset("a")
    assert sandbox.files == {"src", "README"}
    assert sandbox.processes == {"server"}
    await harness.workspaces.reset("a", wipe_files=True, kill_processes=True)
    assert sandbox.files == set()
    assert sandbox.processes == set()
    assert (await harness.workspaces.get("a")).record.state is State.READY
    await harness.workspaces.close("a")
    with pytest.raises(WorkspacedError) as caught:
        await harness.workspaces.reset("a")
    assert caught.value.reason == "WORKSPACE_NOT_READY"


async def test_a_reset_whose_channel_breaks_is_unavailable(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")

    async def broken(*_: object) -> dict[str, Any]:
        raise ChannelLost("the guest hung up")

    monkeypatch.setattr(FakeChannel, "call", broken)
    with pytest.raises(WorkspacedError) as caught:
        await harness.workspaces.reset("a")
    assert caught.value.reason == "WORKSPACE_UNREACHABLE"


async def test_delete_does_not_wait_for_a_reset_that_is_never_answered(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    asked = asyncio.Event()

    async def never(_: object, op: str, params: object) -> dict[str, Any]:
        if op != "guest.shutdown":
            asked.set()
            await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(FakeChannel, "call", never)
    reset = asyncio.create_task(harness.workspaces.reset("a"))
    await asked.wait()
    async with asyncio.timeout(5):
        await harness.workspaces.delete("a")
    with pytest.raises(WorkspacedError) as caught:
        await reset
    assert caught.value.reason == "WORKSPACE_DELETED"
    assert not harness.driver.sandboxes


@pytest.mark.parametrize("entries", [None, "x", [1], [{}], [{"path": 7}]])
async def test_a_list_that_makes_no_sense_is_the_guests_error(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, entries: object
) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")

    async def call(_: object, op: str, params: object) -> dict[str, Any]:
        return {"entries": entries}

    monkeypatch.setattr(FakeChannel, "call", call)
    with pytest.raises(WorkspacedError) as caught:
        await harness.workspaces.reset("a", wipe_files=True)
    assert caught.value.reason == "GUEST_ERROR"


async def test_calls_share_one_channel_and_open_it_again(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    (sandbox,) = harness.driver.sandboxes.values()

    async def guest() -> object:
        async with harness.workspaces.use("a") as handle:
            await asyncio.sleep(0)
            return handle.guest

    assert len({id(item) for item in await asyncio.gather(*(guest() for _ in range(10)))}) == 1
    sandbox.break_channels()
    assert len({id(item) for item in await asyncio.gather(*(guest() for _ in range(10)))}) == 1
    assert harness.driver.calls.count("open_channel") == 2


async def test_a_handle_carries_the_spec(harness: Harness) -> None:
    await harness.workspaces.initialize(pb.WorkspaceSpec(env={"A": "1"}, user="me"), workspace_id="a")
    async with harness.workspaces.use("a") as handle:
        assert (dict(handle.env), handle.user, handle.workdir) == ({"A": "1"}, "me", "/workspace")
        assert (await harness.workspaces.get("a")).expire_time == 0


async def test_a_sandbox_removed_behind_our_back_is_told_and_recovered(harness: Harness) -> None:
    made = await harness.workspaces.initialize(ANY, workspace_id="a")
    harness.driver.remove_behind_our_back(made.snapshot.record.key)
    with pytest.raises(WorkspacedError) as caught:
        async with harness.workspaces.use("a"):
            pass
    assert (caught.value.code, caught.value.reason) == (Code.UNAVAILABLE, "WORKSPACE_UNREACHABLE")
    await wait_for_state(harness, "a", State.DEGRADED)
    with pytest.raises(WorkspacedError) as caught:
        async with harness.workspaces.use("a"):
            pass
    assert caught.value.reason == "WORKSPACE_UNREACHABLE"
    recovered = await harness.workspaces.initialize(ANY, workspace_id="a")
    assert not recovered.created
    assert recovered.snapshot.record.state is State.READY
    async with harness.workspaces.use("a"):
        pass


async def test_a_lost_channel_is_noticed_without_a_call(harness: Harness) -> None:
    made = await harness.workspaces.initialize(ANY, workspace_id="a")
    harness.driver.remove_behind_our_back(made.snapshot.record.key)
    await wait_for_state(harness, "a", State.DEGRADED)
    assert (await harness.workspaces.get("a")).record.state_reason == "removed behind our back"


async def test_a_frozen_guest_loses_its_channel_but_not_its_state(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    (sandbox,) = harness.driver.sandboxes.values()
    async with harness.workspaces.use("a") as handle:
        sandbox.frozen = True
        async with asyncio.timeout(5):
            await handle.guest.wait_closed()
    assert (await harness.workspaces.get("a")).record.state is State.READY
    sandbox.frozen = False
    async with harness.workspaces.use("a") as handle:
        assert not handle.guest.closed


async def test_an_unreachable_provider_is_not_asked_at_every_call(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    (sandbox,) = harness.driver.sandboxes.values()
    harness.driver.fail["open_channel"] = refused("PROVIDER_UNAVAILABLE", retryable=True)
    sandbox.break_channels()
    before = harness.driver.calls.count("open_channel")
    for _ in range(20):
        with pytest.raises(WorkspacedError) as caught:
            async with harness.workspaces.use("a"):
                pass
        assert caught.value.code is Code.UNAVAILABLE
    assert harness.driver.calls.count("open_channel") - before < 5
    harness.driver.fail = {}
    # Initialize does not wait for the back-off.
    assert (await harness.workspaces.initialize(ANY, workspace_id="a")).snapshot.record.state is State.READY


async def test_a_restarted_server_connects_at_first_use(harness: Harness) -> None:
    for number in range(3):
        await harness.workspaces.initialize(ANY, workspace_id=f"w{number}")
    workspaces = await harness.restart()
    before = harness.driver.calls.count("open_channel")
    assert len(await workspaces.list(Query(), 10)) == 3
    assert harness.driver.calls.count("open_channel") == before
    async with workspaces.use("w1"):
        pass
    assert harness.driver.calls.count("open_channel") == before + 1


async def test_watch_tells_the_present_then_changes(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    changes = harness.workspaces.watch(Query())
    first = await anext(changes)
    assert first is not None
    assert first.record.workspace_id == "a"
    assert await anext(changes) is None
    await harness.workspaces.close("a")
    await harness.workspaces.delete("a")
    # A slow reader gets the newest state alone.
    last = await anext(changes)
    assert last is not None
    assert last.record.state is State.DELETED
    assert last.record.revision > first.record.revision
    following = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    assert not following.done()
    following.cancel()
    await asyncio.wait([following])
    await changes.aclose()


async def test_revisions_grow_over_deletion_and_restart(harness: Harness) -> None:
    first = (await harness.workspaces.initialize(ANY, workspace_id="a")).snapshot.record.revision
    await harness.workspaces.delete("a")
    second = (await harness.workspaces.initialize(ANY, workspace_id="a")).snapshot.record.revision
    workspaces = await harness.restart()
    third = (await workspaces.close("a")).record.revision
    assert first < second < third


async def test_an_idle_timeout_past_the_year_9999_can_be_told(harness: Harness) -> None:
    long = pb.WorkspaceSpec(idle_timeout=Duration(seconds=315_576_000_000))
    made = await harness.workspaces.initialize(long, workspace_id="a")
    assert to_message(made.snapshot).expire_time.ToJsonString().startswith("9999-12-31")


async def test_a_page_token_with_a_time_that_no_database_holds_is_refused(harness: Harness) -> None:
    snapshot = (await harness.workspaces.initialize(ANY, workspace_id="a")).snapshot
    record = snapshot.record
    assert _parse_token(_page_token(snapshot, "mark"), "mark") == (record.create_time, record.key)
    for time in (-1, 1 << 63, 10**100):
        token = _page_token(replace(snapshot, record=replace(record, create_time=time)), "mark")
        with pytest.raises(WorkspacedError) as caught:
            _parse_token(token, "mark")
        assert caught.value.code is Code.INVALID_ARGUMENT
