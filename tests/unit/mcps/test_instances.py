"""Instances: started when used, once for all, restarted with back-off, closed when there are too many or nobody needs
them.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.support.real_guest import Handle, RealGuest
from tests.unit.mcps.conftest import HOSTILE, Start, stdio, with_defaults
from tests.unit.mcps.test_hostile import none_runs, running
from workspaced.v1 import mcp_pb2
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.guest.channel import ChannelLost
from workspaced_server.mcps.mcps import Mcps
from workspaced_server.partitions import Pair

pytestmark = pytest.mark.anyio
PAIR = Pair("a", "s")


def quick(name: str, **fields: object) -> mcp_pb2.Mcp:
    return stdio(name, "patient", program=HOSTILE, **fields)


async def call(mcps: Mcps, handle: Handle, tool: str, name: str = "m", pair: Pair = PAIR, **arguments: Any) -> str:
    (item,) = (await mcps.call(handle, pair, name, tool, arguments)).content
    assert isinstance(item, types.TextContent)
    return item.text


async def states(mcps: Mcps, handle: Handle, pair: Pair = PAIR) -> dict[str, int]:
    return {status.mcp.name: status.state for status in await mcps.statuses(handle, pair, start=False)}


async def test_nothing_runs_before_the_first_use(mcps: Mcps, handle: Handle) -> None:
    handle = with_defaults(handle, quick("m"))
    assert await states(mcps, handle) == {"m": mcp_pb2.MCP_STATE_IDLE}
    assert await running(handle) == []


async def test_concurrent_uses_are_one_start(mcps: Mcps, handle: Handle, tmp_path: Path) -> None:
    handle = with_defaults(handle, stdio("m", "--started", str(tmp_path / "started")))
    answers = await asyncio.gather(
        *(call(mcps, handle, "echo", text=str(n)) for n in range(8)), mcps.tools(handle, PAIR)
    )
    assert answers[:8] == [str(n) for n in range(8)]
    assert len((tmp_path / "started").read_text().splitlines()) == 1


async def test_a_start_goes_on_when_its_caller_leaves(mcps: Mcps, handle: Handle, tmp_path: Path) -> None:
    handle = with_defaults(handle, stdio("m", "--slow", "1", "--started", str(tmp_path / "started")))
    with pytest.raises(WorkspacedError) as caught:
        await mcps.call(handle, PAIR, "m", "echo", {"text": "x"}, timeout=0.2)
    assert caught.value.reason == "MCP_TIMEOUT"
    assert await call(mcps, handle, "echo", text="y") == "y"
    assert len((tmp_path / "started").read_text().splitlines()) == 1


async def test_a_call_waits_for_a_start_that_listings_gave_up(start: Start, handle: Handle) -> None:
    mcps = await start(list_wait_seconds=0.3)
    handle = with_defaults(handle, stdio("m", "--slow", "2"))
    for wait in (None, 20):
        tools, (error,) = await mcps.tools(handle, PAIR, wait=wait)
        assert tools == []
        assert error.reason == "MCP_TIMEOUT"
        assert "has been starting" in error.message
    assert "echo" in [item.tool.name for item in await mcps.tools_of(handle, PAIR, "m", wait=20)]


async def test_what_a_call_is_told_of_a_server_that_has_no_tools_to_call(start: Start, handle: Handle) -> None:
    mcps = await start(max_instances_per_owner=1)
    handle = with_defaults(handle, quick("m"), quick("n"), stdio("crashed", "exits", program=HOSTILE))
    assert await mcps.tools_of(handle, PAIR, "m")
    for name, code, reason_ in (
        ("n", Code.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED"),
        ("other", Code.NOT_FOUND, "MCP_NOT_FOUND"),
    ):
        with pytest.raises(WorkspacedError) as caught:
            await mcps.tools_of(handle, PAIR, name)
        assert (caught.value.code, caught.value.reason) == (code, reason_)
    await mcps.purge(handle, PAIR)
    for _ in range(2):
        with pytest.raises(WorkspacedError) as caught:
            await mcps.tools_of(handle, PAIR, "crashed")
        assert (caught.value.code, caught.value.reason) == (Code.UNAVAILABLE, "MCP_UNAVAILABLE")
        assert caught.value.metadata["mcp_reason"] == "MCP_START_FAILED"
        assert "no licence" in caught.value.metadata["stderr_tail"]


async def test_a_server_that_lists_no_more_costs_its_time_once(
    mcps: Mcps, handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workspaced_server.mcps.listings._FRESH_SECONDS", 0.0)
    handle = with_defaults(handle, quick("m", call_timeout=Duration(seconds=1)))
    for fastest, slowest in ((0.9, 10.0), (0.0, 0.5), (0.0, 0.5)):
        began = time.monotonic()
        tools, (error,) = await mcps.tools(handle, PAIR)
        assert fastest <= time.monotonic() - began <= slowest
        assert tools == []
        assert (error.reason, error.message) == ("MCP_TIMEOUT", "it did not answer within 1 s")


async def test_a_slow_server_delays_nobody_else(start: Start, handle: Handle) -> None:
    mcps = await start(list_wait_seconds=0.5)
    slow = asyncio.create_task(mcps.add(handle, PAIR, stdio("slow", "--slow", "6")))
    async with asyncio.timeout(10):
        while not await running(handle):
            await asyncio.sleep(0.02)
    began = time.monotonic()
    await mcps.add(handle, PAIR, quick("fast"))
    tools, errors = await mcps.tools(handle, PAIR)
    assert [item.mcp for item in tools] == ["fast"]
    assert errors == []
    assert time.monotonic() - began < 4
    assert not slow.done()
    await slow
    assert await call(mcps, handle, "echo", name="slow", text="after all") == "after all"


async def test_forty_of_which_one_is_dead(start: Start, handle: Handle) -> None:
    mcps = await start(list_wait_seconds=8.0, max_instances_per_workspace=50)
    alive = [quick(f"m{n}") for n in range(39)]
    handle = with_defaults(handle, *alive[:20], stdio("dead", "silent", program=HOSTILE), *alive[20:])
    began = time.monotonic()
    tools, errors = await mcps.tools(handle, PAIR)
    first = time.monotonic() - began
    assert len(tools) == 39, errors
    assert [item.mcp for item in tools] == [mcp.name for mcp in alive]
    assert [(error.mcp, error.reason) for error in errors] == [("dead", "MCP_TIMEOUT")]
    assert first < 20
    for _ in range(3):
        began = time.monotonic()
        tools, errors = await mcps.tools(handle, PAIR)
        assert time.monotonic() - began < 1
        assert (len(tools), len(errors)) == (39, 1)
    assert (await states(mcps, handle))["dead"] == mcp_pb2.MCP_STATE_CONNECTING


async def test_a_listing_answers_before_its_caller_stops_waiting(mcps: Mcps, handle: Handle) -> None:
    handle = with_defaults(handle, quick("m"), stdio("dead", "silent", program=HOSTILE))
    began = time.monotonic()
    tools, errors = await mcps.tools(handle, PAIR, wait=6.0)
    assert time.monotonic() - began < 6
    assert [item.mcp for item in tools] == ["m"]
    assert [error.mcp for error in errors] == ["dead"]


async def test_a_crash_is_seen_at_once_and_the_next_use_starts_it_again(mcps: Mcps, handle: Handle) -> None:
    await mcps.add(handle, PAIR, stdio("m"))
    assert await call(mcps, handle, "counter") == "1"
    waiting = asyncio.create_task(call(mcps, handle, "slow", seconds=60))
    await asyncio.sleep(0.1)
    with pytest.raises(WorkspacedError) as caught:
        await call(mcps, handle, "crash")
    assert (caught.value.code, caught.value.reason) == (Code.UNAVAILABLE, "MCP_UNAVAILABLE")
    assert caught.value.metadata["mcp_reason"] == "MCP_CRASHED"
    assert "exited with code 3" in caught.value.message
    assert "about to crash" in caught.value.metadata["stderr_tail"]
    with pytest.raises(WorkspacedError) as caught:
        await waiting
    assert caught.value.metadata["mcp_reason"] == "MCP_CRASHED"
    (status,) = await mcps.statuses(handle, PAIR, start=False)
    assert status.state == mcp_pb2.MCP_STATE_FAILED
    assert (status.error.reason, status.error.attempts) == ("MCP_CRASHED", 1)
    assert await call(mcps, handle, "counter") == "1"


async def test_back_off(start: Start, handle: Handle) -> None:
    mcps = await start(retry_first_seconds=0.4)
    handle = with_defaults(handle, stdio("m", "exits", program=HOSTILE))
    for attempt in (1, 2):
        _, (error,) = await mcps.tools(handle, PAIR)
        assert (error.reason, error.attempts) == ("MCP_START_FAILED", attempt)
        (status,) = await mcps.statuses(handle, PAIR, start=False)
        wait = status.next_retry_time.ToMicroseconds() / 1e6 - time.time()
        assert 0 < wait <= 0.4 * 2 ** (attempt - 1)
        began = time.monotonic()
        with pytest.raises(WorkspacedError) as caught:
            await mcps.call(handle, PAIR, "m", "go", {})
        assert time.monotonic() - began < 0.1
        assert (caught.value.code, caught.value.reason) == (Code.UNAVAILABLE, "MCP_UNAVAILABLE")
        assert caught.value.retry_after is not None
        await asyncio.sleep(wait + 0.01)


async def test_the_least_recently_used_makes_room_but_never_one_in_a_call(start: Start, handle: Handle) -> None:
    mcps = await start(max_instances_per_workspace=2)
    pairs = [Pair("a", str(n)) for n in range(3)]
    handle = with_defaults(handle, stdio("m"))
    assert await call(mcps, handle, "counter", pair=pairs[0]) == "1"
    assert await call(mcps, handle, "counter", pair=pairs[1]) == "1"
    began = asyncio.Event()
    busy = asyncio.create_task(
        mcps.call(handle, pairs[1], "m", "slow", {"seconds": 60}, on_progress=lambda *_: began.set())
    )
    await began.wait()
    assert await call(mcps, handle, "counter", pair=pairs[0]) == "2"  # later than the other, which is in a call
    assert await call(mcps, handle, "counter", pair=pairs[2]) == "1"
    assert await states(mcps, handle, pairs[0]) == {"m": mcp_pb2.MCP_STATE_IDLE}
    assert not busy.done()
    tools, errors = await mcps.tools(handle, pairs[0])  # known without a start
    assert tools
    assert errors == []
    assert await states(mcps, handle, pairs[0]) == {"m": mcp_pb2.MCP_STATE_IDLE}
    assert await call(mcps, handle, "counter", pair=pairs[0]) == "1"
    assert await states(mcps, handle, pairs[2]) == {"m": mcp_pb2.MCP_STATE_IDLE}
    busy.cancel()
    with pytest.raises(asyncio.CancelledError):
        await busy


async def test_with_all_in_calls_the_next_one_waits(start: Start, handle: Handle) -> None:
    mcps = await start(max_instances_per_workspace=1)
    handle = with_defaults(handle, stdio("m"))
    first = asyncio.create_task(call(mcps, handle, "slow", pair=Pair("a"), seconds=2))
    async with asyncio.timeout(20):
        while await states(mcps, handle, Pair("a")) != {"m": mcp_pb2.MCP_STATE_READY}:
            await asyncio.sleep(0.02)
    assert await call(mcps, handle, "echo", pair=Pair("b"), text="at last") == "at last"
    assert first.done()


async def test_stateless_ones_are_not_counted_while_idle(start: Start, handle: Handle) -> None:
    mcps = await start(max_instances_per_workspace=1)
    handle = with_defaults(handle, quick("free", stateless=True), quick("bound"))
    await mcps.tools(handle, PAIR, "free")
    await mcps.tools(handle, PAIR, "bound")
    assert set((await states(mcps, handle)).values()) == {mcp_pb2.MCP_STATE_READY}


async def test_the_quota_of_a_principal(start: Start, handle: Handle) -> None:
    mcps = await start(max_instances_per_owner=1)
    await mcps.add(handle, PAIR, quick("one"))
    with pytest.raises(WorkspacedError) as caught:
        await mcps.add(handle, Pair("b"), quick("two"))
    assert (caught.value.code, caught.value.reason) == (Code.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
    assert caught.value.quota is not None
    assert await states(mcps, handle, Pair("b")) == {}
    _, (error,) = await mcps.tools(with_defaults(handle, quick("three")), Pair("c"))
    assert error.reason == "QUOTA_EXCEEDED"
    await mcps.remove(handle, PAIR, "one")
    await mcps.add(handle, Pair("b"), quick("two"))


async def test_idle_ones_are_closed(start: Start, handle: Handle) -> None:
    mcps = await start(idle_close_seconds=0.3)
    await mcps.add(handle, PAIR, quick("m"))
    async with asyncio.timeout(10):
        while await states(mcps, handle) != {"m": mcp_pb2.MCP_STATE_IDLE}:
            await asyncio.sleep(0.02)
    await none_runs(handle)


async def test_calls_that_run_are_told_why_they_ended(mcps: Mcps, handle: Handle) -> None:
    async def ends(name: str, end: Any) -> tuple[Code, str]:
        await mcps.add(handle, PAIR, quick(name))
        task = asyncio.create_task(mcps.call(handle, PAIR, name, "go", {}))
        await asyncio.sleep(0.1)
        await end()
        with pytest.raises(WorkspacedError) as caught:
            await task
        return caught.value.code, caught.value.reason

    unavailable = (Code.UNAVAILABLE, "MCP_UNAVAILABLE")
    assert await ends("a", lambda: mcps.remove(handle, PAIR, "a")) == unavailable
    assert await ends("b", lambda: mcps.purge(handle, PAIR)) == (Code.ABORTED, "SESSION_PURGED")
    assert await ends("c", lambda: mcps.purge_agent(handle, "a")) == (Code.ABORTED, "SESSION_PURGED")
    assert await ends("d", lambda: mcps.resetting(handle.key)) == unavailable
    assert await ends("e", lambda: mcps.closing(handle.key)) == unavailable
    assert await ends("f", mcps.aclose) == unavailable
    await none_runs(handle)


async def test_an_add_ends_with_the_workspace(mcps: Mcps, handle: Handle) -> None:
    task = asyncio.create_task(mcps.add(handle, PAIR, stdio("m", "silent", program=HOSTILE)))
    async with asyncio.timeout(10):
        while not await running(handle):
            await asyncio.sleep(0.02)
    await mcps.closing(handle.key)
    with pytest.raises(WorkspacedError) as caught:
        await task
    assert caught.value.code is Code.UNAVAILABLE
    assert await mcps.statuses(handle, PAIR) == []
    await none_runs(handle)


async def test_a_lost_channel_ends_instances_which_are_started_again_on_the_next(
    mcps: Mcps, guest: RealGuest, handle: Handle
) -> None:
    from dataclasses import replace

    lost = await guest.connect()
    before = replace(handle, guest=lost)
    await mcps.add(before, PAIR, stdio("m"))
    assert await call(mcps, before, "counter") == "1"
    task = asyncio.create_task(call(mcps, before, "slow", seconds=60))
    await asyncio.sleep(0.1)
    await lost.aclose()
    with pytest.raises(ChannelLost):
        await task
    assert await states(mcps, handle) == {"m": mcp_pb2.MCP_STATE_IDLE}
    assert await call(mcps, handle, "counter") == "1"


async def test_one_declared_anew_is_another_instance(mcps: Mcps, handle: Handle) -> None:
    await mcps.add(handle, PAIR, stdio("m"))
    assert await call(mcps, handle, "counter") == "1"
    await mcps.remove(handle, PAIR, "m")
    again = stdio("m")
    again.stdio.env["X"] = "1"
    await mcps.add(handle, PAIR, again)
    assert await call(mcps, handle, "counter") == "1"
    assert len(await running(handle)) == 1
