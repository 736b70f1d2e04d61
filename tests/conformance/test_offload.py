"""Offloading: what was answered is kept, once and together, whatever dies; what is read back is what was sent."""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import workspaced
from tests.conformance.backends import BackendUnderTest
from tests.conformance.conftest import Make
from tests.support.server import ServerProcess, rss_bytes

pytestmark = pytest.mark.anyio

CONTEXT = "sessions/s/context.jsonl"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


async def texts(ws: workspaced.Workspace, path: str = CONTEXT) -> list[str]:
    """The text of each message of a context."""
    async with ws.offload.messages(path) as stream:
        return [text_of(message) async for message in stream]


def text_of(message: workspaced.Message) -> str:
    """The text of its first block."""
    block = message.content[0]
    assert isinstance(block, workspaced.TextBlock)
    return block.text


def calls(found: list[str]) -> list[str]:
    """The calls whose entries these are, in order. Asserts that each one's are whole and together."""
    order: list[str] = []
    position = 0
    while position < len(found):
        name, _, count = found[position].split()
        expected = [f"{name} {number} {count}" for number in range(int(count))]
        assert found[position : position + int(count)] == expected
        order.append(name)
        position += int(count)
    return order


def entries(name: str, count: int) -> list[dict[str, Any]]:
    return [user(f"{name} {number} {count}") for number in range(count)]


async def test_fifty_calls_at_once_keep_fifty_entries(ws: workspaced.Workspace) -> None:
    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(ws.offload.context, "s", entries(f"call{number}", number % 5 + 1))
    found = calls(await texts(ws))
    assert sorted(found) == sorted(f"call{number}" for number in range(50))
    raw = await ws.files.read(CONTEXT)
    assert all(json.loads(line)["role"] == "user" for line in raw.splitlines())
    assert raw.endswith(b"\n")


async def test_every_kind_of_content_comes_back(ws: workspaced.Workspace) -> None:
    png = os.urandom(3000)
    sent = {
        "id": "m1",
        "role": "assistant",
        "name": "bot",
        "metadata": {"nested": {"list": [1, 2.5, None, True, "é"]}},
        "content": [
            {"type": "text", "text": "héllo\n\u2028\0"},
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "data", "media_type": "image/png", "data": png, "name": "a.png"},
            {"type": "tool_call", "id": "c1", "name": "Bash", "input": {"command": "ls"}},
            {
                "type": "tool_result",
                "id": "c1",
                "name": "Bash",
                "state": "error",
                "output": [{"type": "text", "text": "no"}, {"type": "data", "media_type": "image/png", "data": png}],
            },
            {"type": "hint", "content": [{"type": "text", "text": "look"}], "source": "system"},
        ],
    }
    path = await ws.offload.context("s", [sent])
    async with ws.offload.messages(path) as stream:
        (message,) = [each async for each in stream]
    assert (message.id, message.role, message.name) == ("m1", "assistant", "bot")
    assert dict(message.metadata) == sent["metadata"]
    blocks: Any = message.content
    text, thinking, data, call, result, hint = blocks
    assert (text.text, thinking.thinking, thinking.signature) == ("héllo\n\u2028\0", "hm", "sig")
    assert (data.media_type, data.name, data.data) == ("image/png", "a.png", None)
    assert (call.id, call.name, dict(call.input)) == ("c1", "Bash", {"command": "ls"})
    assert (result.state, result.output[0].text, result.output[1].url) == ("error", "no", data.url)
    assert (hint.source, hint.content[0].text) == ("system", "look")
    assert await ws.offload.read(data.url) == png
    listed = await ws.offload.list()
    assert [each.kind for each in listed] == ["data", "context"]
    # The agent's own tools find the same files.
    assert (await ws.run(["cat", listed[0].path])).stdout == png
    assert json.loads((await ws.run(["cat", path])).stdout)["id"] == "m1"


async def test_a_server_that_is_killed_loses_nothing_it_answered(
    own_server: ServerProcess, backend: BackendUnderTest
) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    answered: list[str] = []
    async with workspaced.connect(own_server.address) as client:
        await client.initialize(**backend.arguments, workspace_id="offloads")
    stopped = anyio.Event()

    async def writer(number: int) -> None:
        count = 0
        while not stopped.is_set():
            name = f"w{number}-{count}"
            batch = entries(name, dice.randint(1, 6))
            while True:
                try:
                    async with workspaced.connect(own_server.address) as client:
                        ws = client.workspace("offloads")
                        while True:
                            await ws.offload.context("s", batch, request_id=name)
                            answered.append(name)
                            count += 1
                            name = f"w{number}-{count}"
                            batch = entries(name, dice.randint(1, 6))
                            if stopped.is_set():
                                return
                except workspaced.WorkspacedError:
                    await anyio.sleep(0.05)  # the server is away; the same request once more

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(writer, number)
        for _ in range(4):
            await anyio.sleep(dice.uniform(0.2, 1.0))
            await anyio.to_thread.run_sync(own_server.restart)
        goal = len(answered) + 4
        while len(answered) < goal:
            await anyio.sleep(0.05)
        stopped.set()
    async with workspaced.connect(own_server.address) as client:
        ws = await client.initialize(**backend.arguments, workspace_id="offloads")
        found = calls(await texts(ws))
        assert len(set(found)) == len(found), "a repeated request was stored twice"
        assert sorted(found) == sorted(answered)
        await ws.delete()


async def guest_of(ws: workspaced.Workspace) -> str:
    """The process that the guest is; nothing while it dies."""
    return (await ws.run("echo $PPID")).stdout.decode().strip()


async def test_a_guest_that_is_killed_leaves_whole_calls(ws: workspaced.Workspace) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    answered: list[str] = []
    for round_ in range(3):
        guest = await guest_of(ws)
        async with anyio.create_task_group() as group:

            async def kill(guest: str = guest) -> None:
                await ws.start(f"sleep {dice.uniform(0.01, 0.2)}; kill -9 {guest}")

            group.start_soon(kill)
            number = 0
            while await guest_of(ws) == guest:
                name = f"r{round_}-{number}"
                number += 1
                # The client asks again with the same request id until it has an answer.
                await ws.offload.context("s", entries(name, dice.randint(1, 50)), request_id=name)
                answered.append(name)
    assert calls(await texts(ws)) == answered


async def test_a_full_disk_keeps_what_is_there(make: Make, backend: BackendUnderTest) -> None:
    ws = await make(persistent=True)
    if backend.replace_disk is not None:
        replace = await anyio.to_thread.run_sync(backend.replace_disk, ws.id)
        await ws.close()
        await anyio.to_thread.run_sync(replace)
        ws = await make(persistent=True, workspace_id=ws.id)
    else:
        mounted = await ws.run("mkdir sessions; mount -t tmpfs -o size=1m none sessions")
        assert mounted.exit_code == 0, "no small file system to fill: run as root, who can mount one"
    try:
        await ws.offload.context("s", [user("kept")], request_id="first")
        before = await ws.files.read(CONTEXT)
        for size in (900_000, 3_000_000):
            with pytest.raises(workspaced.ResourceExhausted) as full:
                await ws.offload.context("s", [user("x" * 300_000) for _ in range(size // 200_000)])
            assert full.value.reason == "DISK_FULL"
        output = [{"type": "text", "text": "x" * 3_000_000}]
        with pytest.raises(workspaced.ResourceExhausted):
            await ws.offload.tool_result("s", {"id": "t", "name": "Bash", "output": output})
        assert await ws.files.read(CONTEXT) == before
        assert [each.kind for each in await ws.offload.list()] == ["context"]
        await ws.offload.context("s", [user("kept")], request_id="first")
        assert await texts(ws) == ["kept"]
        await ws.offload.context("s", [user("more")])
        assert await texts(ws) == ["kept", "more"]
    finally:
        if backend.replace_disk is None:
            await ws.run("umount sessions")


async def test_a_context_of_100_mb_is_streamed_in_bounded_memory(
    server: ServerProcess, ws: workspaced.Workspace
) -> None:
    line = "x" * 99_700
    await ws.offload.context("s", [user(f"{number} {line}") for number in range(1000)])
    (listed,) = await ws.offload.list("s")
    assert 100_000_000 < listed.size < 110_000_000
    before = rss_bytes(server.pid)
    size = 0
    async with ws.offload.read_stream(CONTEXT) as chunks:
        async for chunk in chunks:
            size += len(chunk)
    assert size == listed.size
    number = 0
    async with ws.offload.messages(CONTEXT) as stream:
        async for message in stream:
            assert text_of(message).startswith(f"{number} ")
            number += 1
    assert number == 1000
    async with ws.offload.messages(CONTEXT, skip=997, limit=2) as stream:
        assert [text_of(message).split()[0] async for message in stream] == ["997", "998"]
    grown = rss_bytes(server.pid) - before
    assert grown < 64 << 20, f"the server grew by {grown >> 20} MiB"
    with pytest.raises(workspaced.WorkspacedError) as beyond:
        await ws.offload.read(CONTEXT, offset=listed.size + 1)
    assert beyond.value.reason == "OFFSET_INVALID"


async def test_tool_results_overwrite_nothing(ws: workspaced.Workspace) -> None:
    result = {"id": "call", "name": "Bash", "output": [{"type": "text", "text": "out"}]}
    found: list[str] = []

    async def store() -> None:
        found.append(await ws.offload.tool_result("s", result))

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(store)
    names = [Path(path).name for path in found]
    assert sorted(names) == sorted(["tool_result-call.txt", *(f"tool_result-call({n}).txt" for n in range(1, 10))])
    assert {each.tool_call_id for each in await ws.offload.list("s")} == {"call"}
    again = [await ws.offload.tool_result("s", result, request_id="r") for _ in range(2)]
    assert again[0] == again[1]
    assert await ws.offload.read(again[0]) == b"out"


async def test_purging_removes_exactly_what_is_a_session_s(ws: workspaced.Workspace) -> None:
    await ws.files.write("project/sessions/s/mine", b"", parents=True)
    for session in ("s", "s2", "S", "default"):
        await ws.offload.context(session, [user("x")])
        await ws.offload.tool_result(session, {"id": "t", "name": "Bash", "output": []})
    data = await ws.offload.data(b"shared", media_type="text/plain")
    await ws.purge_session("s", agent_id="a")
    await ws.purge_session("s")
    await ws.purge_agent("a")
    assert await ws.offload.list("s") == []
    assert {each.session_id for each in await ws.offload.list()} == {"", "s2", "S", "default"}
    assert await ws.offload.read(data.url) == b"shared"
    assert await ws.files.read("project/sessions/s/mine") == b""
    with pytest.raises(workspaced.WorkspacedError) as gone:
        await ws.offload.read(CONTEXT)
    assert gone.value.reason == "OFFLOAD_NOT_FOUND"


async def test_hostile_sessions_and_links_lead_nowhere(ws: workspaced.Workspace) -> None:
    await ws.run("mkdir -p victim sessions; touch victim/file; ln -s ../victim sessions/link")
    for hostile in ("", ".", "..", "../victim", "a/b", "a\\b", ".x", "a\nb", "x" * 201):
        for call in (
            ws.offload.context(hostile, [user("x")]),
            ws.offload.tool_result(hostile, {"id": "t", "name": "Bash", "output": []}),
            ws.offload.tool_result("s", {"id": hostile, "name": "Bash", "output": []}),
            ws.purge_session(hostile),
        ):
            with pytest.raises(workspaced.InvalidArgument):
                await call
    for call in (
        ws.offload.context("link", [user("x")]),
        ws.offload.tool_result("link", {"id": "t", "name": "Bash", "output": []}),
    ):
        with pytest.raises(workspaced.WorkspacedError) as escaped:
            await call
        assert escaped.value.reason == "PATH_ESCAPES"
    await ws.purge_session("link")
    assert (await ws.run("ls victim sessions")).stdout == b"sessions:\n\nvictim:\nfile\n"


async def test_a_reset_forgets_contexts_and_data(ws: workspaced.Workspace) -> None:
    await ws.offload.context("s", [user("x")], request_id="r")
    await ws.offload.data(b"x")
    await ws.reset()
    assert await ws.offload.list() == []
    await ws.offload.context("s", [user("x")], request_id="r")
    assert await texts(ws) == ["x"]


async def test_a_context_is_offloaded_once_though_the_server_dies(
    own_server: ServerProcess, backend: BackendUnderTest
) -> None:
    async with workspaced.connect(own_server.address) as client:
        workspace = await client.initialize(**backend.arguments)
        await workspace.offload.context("s", [{"role": "user", "content": "before"}])
        own_server.kill()
        calls = [
            asyncio.create_task(workspace.offload.context("s", [{"role": "user", "content": f"{number}"}]))
            for number in range(5)
        ]
        own_server.start()
        (path,) = set(await asyncio.gather(*calls))
        async with workspace.offload.messages(path) as messages:
            found = [
                block.text
                async for message in messages
                for block in message.content
                if isinstance(block, workspaced.TextBlock)
            ]
        assert found[0] == "before"
        assert sorted(found[1:]) == ["0", "1", "2", "3", "4"]
        await workspace.delete()
