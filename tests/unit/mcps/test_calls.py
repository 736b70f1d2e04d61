"""Calls of tools, resources and prompts of a real server over stdio."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.support.real_guest import Handle
from tests.unit.mcps.conftest import HOSTILE, Start, stdio, with_defaults
from workspaced.v1 import mcp_pb2
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.mcps.mcps import Mcps
from workspaced_server.partitions import Pair

pytestmark = pytest.mark.anyio
PAIR = Pair("a", "s")


def text(result: types.CallToolResult) -> str:
    (item,) = result.content
    assert isinstance(item, types.TextContent)
    return item.text


async def call(mcps: Mcps, handle: Handle, tool: str, pair: Pair = PAIR, **arguments: Any) -> str:
    return text(await mcps.call(handle, pair, "m", tool, arguments))


async def test_add_then_call(mcps: Mcps, handle: Handle) -> None:
    status, existing = await mcps.add(handle, PAIR, stdio("m"))
    assert not existing
    assert status.state == mcp_pb2.MCP_STATE_READY
    assert (status.server_name, status.server_version, status.instructions) == ("support", "1.2", "For tests.")
    assert status.tool_count > 10
    assert status.has_resources
    assert status.has_prompts
    assert status.process_id.startswith("mcp-m-")
    assert await call(mcps, handle, "echo", text="hällo\n") == "hällo\n"


async def test_the_working_directory_and_the_environment(mcps: Mcps, handle: Handle, tmp_path: Path) -> None:
    mcp = stdio("m")
    mcp.stdio.cwd = "sub"
    mcp.stdio.env["SECRET"] = "hush-hush"
    (Path(handle.workdir) / "sub").mkdir()
    await mcps.add(handle, PAIR, mcp)
    found = json.loads(await call(mcps, handle, "where"))
    assert found["cwd"] == str(Path(handle.workdir) / "sub")
    assert await call(mcps, handle, "environment", name="SECRET") == "hush-hush"


async def test_progress_in_order(mcps: Mcps, handle: Handle) -> None:
    await mcps.add(handle, PAIR, stdio("m"))
    seen: list[tuple[float, float | None, str | None]] = []
    result = await mcps.call(
        handle, PAIR, "m", "slow", {"seconds": 0.2}, on_progress=lambda *progress: seen.append(progress)
    )
    assert text(result) == "done"
    assert seen == [(float(n), 5.0, f"step {n}") for n in range(1, 6)]


async def test_log_lines(mcps: Mcps, handle: Handle) -> None:
    await mcps.add(handle, PAIR, stdio("m"))
    seen: list[tuple[str, str | None, object]] = []
    await mcps.call(
        handle, PAIR, "m", "log", {"text": "hi"}, on_log=lambda line: seen.append((line.level, line.logger, line.data))
    )
    assert seen == [("info", "support", "hi"), ("error", None, "hi!")]


async def test_a_cancelled_call_is_cancelled_in_the_server_which_stays_usable(
    mcps: Mcps, handle: Handle, tmp_path: Path
) -> None:
    await mcps.add(handle, PAIR, stdio("m"))
    before = json.loads(await call(mcps, handle, "where"))["pid"]
    began = asyncio.Event()
    mark = tmp_path / "mark"
    arguments = {"seconds": 60, "mark": str(mark)}
    task = asyncio.create_task(mcps.call(handle, PAIR, "m", "slow", arguments, on_progress=lambda *_: began.set()))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(5):
        while not mark.exists() or mark.read_text() != "cancelled":
            await asyncio.sleep(0.01)
    assert json.loads(await call(mcps, handle, "where"))["pid"] == before


async def test_call_timeout_and_the_callers_own(mcps: Mcps, handle: Handle) -> None:
    mcp = stdio("m", "patient", program=HOSTILE)
    mcp.call_timeout.FromSeconds(3)
    await mcps.add(handle, PAIR, mcp)
    mark = Path(handle.workdir) / "cancelled"
    for timeout, expected in ((None, "x"), (0.2, "xx")):
        with pytest.raises(WorkspacedError) as caught:
            await mcps.call(handle, PAIR, "m", "go", {}, timeout=timeout)
        assert (caught.value.code, caught.value.reason) == (Code.DEADLINE_EXCEEDED, "MCP_TIMEOUT")
        async with asyncio.timeout(5):
            while not mark.exists() or mark.read_text() != expected:
                await asyncio.sleep(0.01)
    (status,) = await mcps.statuses(handle, PAIR, start=False)
    assert status.state == mcp_pb2.MCP_STATE_READY


async def test_kinds_of_results(mcps: Mcps, handle: Handle) -> None:
    await mcps.add(handle, PAIR, stdio("m"))
    (image,) = (await mcps.call(handle, PAIR, "m", "image", {})).content
    assert isinstance(image, types.ImageContent)
    assert image.mime_type == "image/png"
    words, sound = (await mcps.call(handle, PAIR, "m", "sound", {})).content
    assert isinstance(words, types.TextContent)
    assert isinstance(sound, types.AudioContent)
    assert (await mcps.call(handle, PAIR, "m", "structured", {})).structured_content == {"degrees": 21.5, "wind": 3}
    assert len(await call(mcps, handle, "big", size=3_000_000)) == 3_000_000
    failed = await mcps.call(handle, PAIR, "m", "fail", {})
    assert failed.is_error
    assert "it did not work" in text(failed)
    assert await call(mcps, handle, "t.dot/slash") == "dotted"
    assert await call(mcps, handle, "echo", text="y" * 2_000_000) == "y" * 2_000_000


async def test_what_a_server_asks_of_a_client_is_declined_with_the_reason(mcps: Mcps, handle: Handle) -> None:
    await mcps.add(handle, PAIR, stdio("m"))
    assert "refused" in await call(mcps, handle, "ask_user")
    assert "refused" in await call(mcps, handle, "ask_model")


async def test_a_changed_list_of_tools_is_seen(mcps: Mcps, handle: Handle) -> None:
    await mcps.add(handle, PAIR, stdio("m"))
    tools, errors = await mcps.tools(handle, PAIR)
    assert errors == []
    assert "later" not in [item.tool.name for item in tools]
    await call(mcps, handle, "add_tool", name="later")
    tools, _ = await mcps.tools(handle, PAIR)
    assert "later" in [item.tool.name for item in tools]
    assert await call(mcps, handle, "later") == "I am later"


async def test_enabled_and_disabled_tools(mcps: Mcps, handle: Handle) -> None:
    mcp = stdio("m", enabled_tools=["echo", "counter"], disabled_tools=["counter"])
    status, _ = await mcps.add(handle, PAIR, mcp)
    assert status.tool_count == 1
    assert [item.tool.name for item in (await mcps.tools(handle, PAIR))[0]] == ["echo"]
    with pytest.raises(WorkspacedError) as caught:
        await mcps.call(handle, PAIR, "m", "counter", {})
    assert caught.value.reason == "TOOL_NOT_FOUND"


async def test_nothing_is_shared_between_sessions(start: Start, handle: Handle) -> None:
    mcps = await start()
    shared = with_defaults(handle, stdio("m"))
    pairs = [Pair("a", "s"), Pair("a", "t"), Pair("b", "s"), Pair(None, None), Pair("a", None)]
    for turn in ("1", "2"):
        counts = await asyncio.gather(*(call(mcps, shared, "counter", pair) for pair in pairs))
        assert counts == [turn] * len(pairs)


async def test_resources(mcps: Mcps, handle: Handle) -> None:
    await mcps.add(handle, PAIR, stdio("m"))
    found, errors = await mcps.resources(handle, PAIR)
    assert errors == []
    assert {name for name, _ in found} == {"m"}
    assert {item.name for _, item in found} == {"one", "picture", "note"}
    (part,) = (await mcps.read_resource(handle, PAIR, "m", "note://x")).contents
    assert isinstance(part, types.TextResourceContents)
    assert part.text == "note x"
    with pytest.raises(WorkspacedError) as caught:
        await mcps.read_resource(handle, PAIR, "m", "memo://nothing")
    assert caught.value.reason == "MCP_RESOURCE_NOT_FOUND"


async def test_prompts(mcps: Mcps, handle: Handle) -> None:
    await mcps.add(handle, PAIR, stdio("m"))
    found, errors = await mcps.prompts(handle, PAIR)
    assert errors == []
    assert [item.name for _, item in found] == ["greet"]
    result = await mcps.get_prompt(handle, PAIR, "m", "greet", {"name": "Ada"})
    content = result.messages[0].content
    assert isinstance(content, types.TextContent)
    assert content.text == "Greet Ada in a friendly way."
    for name, reason in (("other", "MCP_PROMPT_NOT_FOUND"), ("greet", "ARGUMENT_INVALID")):
        with pytest.raises(WorkspacedError) as caught:
            await mcps.get_prompt(handle, PAIR, "m", name, {})
        assert caught.value.reason == reason


async def test_an_answer_that_is_too_large_ends_nothing(start: Start, handle: Handle) -> None:
    mcps = await start(max_message_bytes=2 << 20)
    await mcps.add(handle, PAIR, stdio("m"))
    assert await call(mcps, handle, "counter") == "1"
    for _ in range(2):
        with pytest.raises(WorkspacedError) as caught:
            await mcps.call(handle, PAIR, "m", "big", {"size": 3_000_000})
        assert "2097152 bytes" in caught.value.message
        assert caught.value.code is not Code.UNAVAILABLE
    assert await call(mcps, handle, "counter") == "2"
