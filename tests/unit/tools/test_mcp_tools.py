"""Tools of a real MCP server, listed and called beside the built-in ones."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.support.mcp_server import PNG
from tests.support.real_guest import Handle, RealGuest, reason, serve
from tests.unit.mcps.conftest import record, stdio
from tests.unit.tools.conftest import Caller
from workspaced.v1 import content_pb2, discovery_pb2, mcp_pb2, tool_pb2
from workspaced_server.mcps.mcps import Mcps
from workspaced_server.mcps.settings import McpSettings
from workspaced_server.partitions import Pair
from workspaced_server.principal import LOCAL, bind
from workspaced_server.tools.values import object_of
from workspaced_server.workspaces.registry import Registry

pytestmark = pytest.mark.anyio


@pytest.fixture
async def caller(guest: RealGuest, tmp_path: Path) -> AsyncIterator[Caller]:
    """Calls tools of a workspace in which a server `support` is declared, and one `broken` for agent `b`."""
    bind(LOCAL)
    channel = await guest.connect()
    handle = Handle(channel, workdir=str(guest.workdir))
    registry = await Registry.open(tmp_path / "registry.db")
    await registry.insert(record(handle))
    mcps = Mcps(registry, McpSettings(), tmp_path / "mcp.key", lambda _: "local")
    try:
        await mcps.add(handle, Pair(), stdio("support"))
        broken = mcp_pb2.Mcp(name="broken")
        broken.stdio.command = "false"
        handle.spec.default_mcps.extend([broken, stdio("slow", "--slow", "6"), stdio("support")])
        async with serve(channel, mcps) as server:
            server.workspaces.spec.CopyFrom(handle.spec)
            yield Caller.of(server)
    finally:
        await mcps.aclose()
        await registry.aclose()
        await channel.aclose()


async def listed(caller: Caller, **fields: Any) -> discovery_pb2.ListToolsResponse:
    response: discovery_pb2.ListToolsResponse = await caller.discovery.ListTools(
        discovery_pb2.ListToolsRequest(workspace_id="w", **fields)
    )
    return response


async def test_they_are_listed_behind_the_builtin_ones(caller: Caller) -> None:
    every = await listed(caller)
    assert not every.mcp_errors
    assert [tool.source for tool in every.tools[:7]] == ["BUILTIN"] * 7
    only = await listed(caller, mcp="support")
    assert list(every.tools[7:]) == list(only.tools)
    assert list((await listed(caller, kind=tool_pb2.TOOL_KIND_MCP)).tools) == list(only.tools)
    assert len((await listed(caller, kind=tool_pb2.TOOL_KIND_BUILTIN)).tools) == 7
    by_name = {tool.name: tool for tool in only.tools}
    odd = by_name["mcp__support__t_dot_slash"]
    assert (odd.original_name, odd.source, odd.kind) == ("t.dot/slash", "support", tool_pb2.TOOL_KIND_MCP)
    structured = by_name["mcp__support__structured"]
    assert object_of(structured.output_schema)["properties"]["degrees"]["type"] == "number"
    assert object_of(by_name["mcp__support__echo"].input_schema)["required"] == ["text"]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await listed(caller, mcp="none")
    assert reason(caught.value) == "MCP_NOT_FOUND"


async def test_results_of_every_kind(caller: Caller) -> None:
    assert await caller.text("mcp__support__echo", text="hé") == "hé"
    assert await caller.text("mcp__support__t_dot_slash") == "dotted"
    answer = await caller.call("mcp__support__image")
    [block] = answer.result.content
    assert (block.data.media_type, block.data.bytes) == ("image/png", base64.b64decode(PNG))
    assert answer.events[0].data == block.data
    answer = await caller.call("mcp__support__sound")
    assert [block.WhichOneof("block") for block in answer.result.content] == ["text", "data"]
    assert answer.result.content[1].data.media_type == "audio/wav"
    answer = await caller.call("mcp__support__structured")
    assert object_of(answer.result.structured) == {"degrees": 21.5, "wind": 3}
    assert "21.5" in answer.text
    answer = await caller.call("mcp__support__fail")
    assert (answer.result.is_error, answer.result.state) == (True, content_pb2.TOOL_RESULT_STATE_ERROR)
    assert "it did not work" in answer.text


async def test_input_is_checked_before_the_tool_runs(caller: Caller) -> None:
    assert await caller.text("mcp__support__echo", text=5) == (
        "!The input does not fit mcp__support__echo, which was not run. Correct this and call again:\n"
        "- text: must be of type string, not 5"
    )


async def test_progress_and_log_lines_are_streamed(caller: Caller) -> None:
    answer = await caller.call("mcp__support__slow", {"seconds": 0.5, "steps": 5})
    steps = [event.progress for event in answer.events if event.HasField("progress")]
    assert len(steps) >= 2, "progress comes while the tool runs"
    assert (steps[-1].progress, steps[-1].total, steps[-1].message) == (5, 5, "step 5")
    assert answer.text == "done"
    answer = await caller.call("mcp__support__log", {"text": "here"})
    logs = [event.log for event in answer.events if event.HasField("log")]
    assert [(log.level, log.data.string_value) for log in logs] == [
        (tool_pb2.TOOL_LOG_LEVEL_INFO, "here"),
        (tool_pb2.TOOL_LOG_LEVEL_ERROR, "here!"),
    ]
    assert logs[0].logger == "support"


async def test_cancellation_reaches_the_server(caller: Caller, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    stream = caller.open("mcp__support__slow", {"seconds": 60, "steps": 600, "mark": str(mark)})
    assert (await stream.read()).HasField("progress")
    stream.cancel()
    await _appears(mark)
    assert mark.read_text() == "cancelled"
    assert await caller.text("mcp__support__echo", text="still there") == "still there"


async def test_the_time_of_a_call(caller: Caller, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    given = {"seconds": 60, "steps": 600, "mark": str(mark)}
    started = time.monotonic()
    answer = await caller.call("mcp__support__slow", given, timeout=Duration(nanos=500_000_000))
    assert time.monotonic() - started < 20
    assert answer.result.state == content_pb2.TOOL_RESULT_STATE_INTERRUPTED
    assert answer.text == "MCP server 'support': the call's time of 0.5 s is over"
    await _appears(mark)
    assert mark.read_text() == "cancelled"


async def test_a_server_that_is_starting_is_waited_for_in_the_time_of_the_call(caller: Caller) -> None:
    slow = {"agent_id": "slow", "timeout": Duration(seconds=1)}
    answer = await caller.call("mcp__slow__echo", {"text": "x"}, **slow)
    assert answer.result.state == content_pb2.TOOL_RESULT_STATE_INTERRUPTED
    assert "has been starting" in answer.text
    # The start went on.
    assert (await caller.call("mcp__slow__echo", {"text": "x"}, agent_id="slow")).text == "x"
    started = time.monotonic()
    assert (await caller.call("mcp__support__echo", {"text": "x"}, agent_id="slower")).text == "x"
    assert time.monotonic() - started < 5, "the slow one holds nobody up"


async def test_what_is_too_large(caller: Caller, guest: RealGuest) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await caller.call("mcp__support__big", {"size": 5_000_000})
    assert (caught.value.code(), reason(caught.value)) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "TOOL_RESULT_TOO_LARGE",
    )
    answer = await caller.call("mcp__support__big", {"size": 5_000_000}, offload_over_bytes=1000, call_id="big")
    assert len(answer.text) < 1300
    stored = guest.workdir / answer.result.offloaded.url.removeprefix("workspace:///")
    assert stored.read_text().rstrip("\n") == "x" * 5_000_000


async def test_a_server_that_fails_is_told_and_the_others_work(caller: Caller) -> None:
    every = await listed(caller, agent_id="b")
    assert "broken" in [error.mcp for error in every.mcp_errors]
    assert "mcp__support__echo" in [tool.name for tool in every.tools]
    assert (await caller.call("mcp__support__echo", {"text": "on"}, agent_id="b")).text == "on"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await caller.call("mcp__broken__x", agent_id="b")
    assert (caught.value.code(), reason(caught.value)) == (grpc.StatusCode.UNAVAILABLE, "MCP_UNAVAILABLE")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await caller.call("mcp__support__none", agent_id="b")
    assert reason(caught.value) == "TOOL_NOT_FOUND"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await caller.call("mcp__support__crash")
    assert reason(caught.value) == "MCP_UNAVAILABLE"


async def test_sessions_share_nothing(caller: Caller) -> None:
    async def count(**fields: str) -> str:
        return (await caller.call("mcp__support__counter", {}, **fields)).text

    assert [await count(), await count(), await count(session_id="s"), await count(session_id="s")] == list("1212")
    assert await count(agent_id="a", session_id="s") == "1"


async def _appears(path: Path) -> None:
    async with asyncio.timeout(20):
        while not path.exists():
            await asyncio.sleep(0.05)
