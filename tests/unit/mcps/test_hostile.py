"""Servers that do it wrong: a clear error, bounded memory, nothing left behind."""

from __future__ import annotations

import asyncio
import resource
import time

import pytest

from tests.support.real_guest import Handle
from tests.unit.mcps.conftest import HOSTILE, Start, stdio
from workspaced.v1 import mcp_pb2
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.mcps.mcps import Mcps
from workspaced_server.partitions import Pair

pytestmark = pytest.mark.anyio
PAIR = Pair()


def hostile(way: str, **fields: object) -> mcp_pb2.Mcp:
    return stdio("m", way, program=HOSTILE, **fields)


async def running(handle: Handle) -> list[str]:
    """Ids of processes of MCP servers that run in the workspace."""
    answer = await handle.guest.call("process.list", {"state": "running", "page_size": 1000, "page_token": ""})
    return [item["process_id"] for item in answer["processes"]]


async def none_runs(handle: Handle) -> None:
    async with asyncio.timeout(10):
        while await running(handle):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("way", "reason", "message"),
    [
        ("endless_line", "MCP_PROTOCOL_ERROR", "a line of more than 1048576 bytes"),
        ("garbage", "MCP_PROTOCOL_ERROR", "no JSON-RPC"),
        ("exits", "MCP_START_FAILED", "exited with code 7 before it was ready"),
        ("endless_list", "MCP_PROTOCOL_ERROR", "has no end"),
    ],
)
async def test_an_add_says_what_is_wrong(mcps: Mcps, handle: Handle, way: str, reason: str, message: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    mcp = hostile(way)
    mcp.stdio.env["SECRET"] = "hush-hush"
    with pytest.raises(WorkspacedError) as caught:
        await mcps.add(handle, PAIR, mcp)
    assert (caught.value.code, caught.value.reason) == (Code.FAILED_PRECONDITION, reason)
    assert message in caught.value.message
    if way == "exits":
        assert caught.value.metadata["stderr_tail"] == "no licence for [redacted]"
    assert await mcps.statuses(handle, PAIR) == []
    await none_runs(handle)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024
    await mcps.add(handle, PAIR, stdio("m"))


@pytest.mark.parametrize("way", ["silent", "chatty"])
async def test_one_that_never_answers_ends_by_its_call_timeout(mcps: Mcps, handle: Handle, way: str) -> None:
    mcp = hostile(way)
    mcp.call_timeout.FromMilliseconds(1500)
    began = time.monotonic()
    with pytest.raises(WorkspacedError) as caught:
        await mcps.add(handle, PAIR, mcp)
    assert (caught.value.code, caught.value.reason) == (Code.DEADLINE_EXCEEDED, "MCP_TIMEOUT")
    assert ("'Server is ready.'" in caught.value.message) == (way == "chatty")
    assert caught.value.metadata.get("stderr_tail") == ("sulking" if way == "silent" else None)
    assert time.monotonic() - began < 8
    await none_runs(handle)


async def test_a_cancelled_add_leaves_no_process_and_a_free_name(mcps: Mcps, handle: Handle) -> None:
    task = asyncio.create_task(mcps.add(handle, PAIR, hostile("silent")))
    async with asyncio.timeout(10):
        while not await running(handle):
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await none_runs(handle)
    assert await mcps.statuses(handle, PAIR) == []
    await mcps.add(handle, PAIR, stdio("m"))


async def test_a_flood_of_notifications_delays_nobody_else(mcps: Mcps, handle: Handle) -> None:
    await mcps.add(handle, PAIR, stdio("fast"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await mcps.add(handle, PAIR, hostile("flood"))
    slowest = 0.0
    for _ in range(50):
        began = time.monotonic()
        await mcps.call(handle, PAIR, "fast", "echo", {"text": "x"})
        slowest = max(slowest, time.monotonic() - began)
        await asyncio.sleep(0.01)
    assert slowest < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024
    await mcps.remove(handle, PAIR, "m")
    await mcps.remove(handle, PAIR, "fast")
    await none_runs(handle)


async def test_an_answer_without_end_ends_the_server_only(start: Start, handle: Handle) -> None:
    mcps = await start(max_message_bytes=4 << 20)
    await mcps.add(handle, PAIR, hostile("endless_result"))
    with pytest.raises(WorkspacedError) as caught:
        await mcps.call(handle, PAIR, "m", "go", {})
    assert (caught.value.code, caught.value.reason) == (Code.UNAVAILABLE, "MCP_UNAVAILABLE")
    assert caught.value.metadata["mcp_reason"] == "MCP_PROTOCOL_ERROR"
    (status,) = await mcps.statuses(handle, PAIR, start=False)
    assert status.state == mcp_pb2.MCP_STATE_FAILED
    assert "4194304 bytes" in status.error.message


async def test_one_that_does_not_read_is_given_up_within_bounds(mcps: Mcps, handle: Handle) -> None:
    await mcps.add(handle, PAIR, hostile("deaf"))
    for _ in range(3):
        with pytest.raises(WorkspacedError) as caught:
            await mcps.call(handle, PAIR, "m", "go", {"text": "x" * 3_000_000}, timeout=0.3)
        assert caught.value.reason == "MCP_TIMEOUT"
    await mcps.remove(handle, PAIR, "m")
    await none_runs(handle)


async def test_a_stubborn_one_is_killed(mcps: Mcps, handle: Handle) -> None:
    await mcps.add(handle, PAIR, hostile("stubborn"))
    began = time.monotonic()
    assert await mcps.remove(handle, PAIR, "m")
    assert time.monotonic() - began < 6
    await none_runs(handle)
