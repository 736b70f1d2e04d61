"""Real MCP servers in a workspace: the npm ones, and one by the Python SDK, over stdio and HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import trustme

import workspaced
from tests.conformance.backends import BackendUnderTest
from tests.conformance.conftest import Make
from tests.support.real_parts import AGENTS_IMAGE, mcp_servers
from tests.support.server import ServerProcess

pytestmark = pytest.mark.anyio

_SUPPORT = Path(__file__).parents[1] / "support"


@dataclass(frozen=True)
class Place:
    """A workspace that has MCP servers to run, and how to run ours."""

    ws: workspaced.Workspace
    python: str

    def server(self, *arguments: str) -> list[str]:
        """The command of the Python server."""
        return [self.python, "mcp_server.py", *arguments]

    async def call(self, mcp: str, tool: str, session_id: str | None = None, **arguments: object) -> str:
        """The text that a tool answers."""
        result = await self.ws.tools.call(f"mcp__{mcp}__{tool}", arguments, session_id=session_id)
        assert not result.is_error, result.text
        return result.text


NewPlace = Callable[[], Awaitable[Place]]


@pytest.fixture
def new_place(make: Make, backend: BackendUnderTest) -> NewPlace:
    async def new() -> Place:
        if backend.name == "docker":
            place = Place(await make(image=AGENTS_IMAGE), "python3")
        else:
            path = f"{mcp_servers()}:{os.environ['PATH']}"
            place = Place(await make(env={"PATH": path}), sys.executable)
        for name in ("mcp_server.py", "hostile_mcp_server.py"):
            await place.ws.files.write(name, (_SUPPORT / name).read_bytes())
        return place

    return new


@pytest.fixture
async def place(new_place: NewPlace) -> Place:
    return await new_place()


async def running(ws: workspaced.Workspace) -> list[str]:
    return [process.process_id for process in await ws.processes(state="running")]


async def content(ws: workspaced.Workspace, path: str) -> bytes | None:
    try:
        return await ws.files.read(path)
    except workspaced.FileNotFound:
        return None


async def first_line(process: workspaced.Process, ws: workspaced.Workspace) -> str:
    """What the process writes first to its standard output."""
    async for event in await ws.attach(process.process_id):
        if event.stream == "stdout":
            return event.data.decode().strip()
    raise AssertionError("it wrote nothing")


async def none_runs(ws: workspaced.Workspace) -> None:
    async with asyncio.timeout(20):
        while await running(ws):
            await asyncio.sleep(0.05)


async def test_everything(place: Place) -> None:
    info = await place.ws.mcps.add("everything", stdio=["npx", "-y", "@modelcontextprotocol/server-everything"])
    assert info.state == "ready"
    assert info.server_name
    assert await place.call("everything", "echo", message="hi") == "Echo: hi"
    tools = {tool.original_name for tool in await place.ws.tools.list(mcp="everything")}
    assert {"echo", "get-sum"} <= tools or {"echo", "add"} <= tools
    assert await place.ws.mcps.resources("everything")
    assert await place.ws.mcps.prompts("everything")


async def test_filesystem_beside_it(place: Place) -> None:
    await place.ws.files.write("hello.txt", b"from the workspace")
    workdir = (await place.ws.info()).workdir
    await asyncio.gather(
        place.ws.mcps.add("files", stdio=["mcp-server-filesystem", workdir]),
        place.ws.mcps.add("everything", stdio=["mcp-server-everything"]),
    )
    assert await place.call("files", "read_text_file", path=f"{workdir}/hello.txt") == "from the workspace"
    assert await place.call("everything", "echo", message="too") == "Echo: too"


async def test_streamed_progress_and_logs_through_the_api(place: Place) -> None:
    await place.ws.mcps.add("m", stdio=place.server())
    async with place.ws.tools.stream("mcp__m__slow", {"seconds": 0.3}) as events:
        progress = [event.progress async for event in events if isinstance(event, workspaced.ToolProgress)]
    assert progress == sorted(progress)
    assert progress[-1] == 5
    async with place.ws.tools.stream("mcp__m__log", {"text": "hi"}) as events:
        lines = [event.data async for event in events if isinstance(event, workspaced.ToolLog)]
    assert lines == ["hi", "hi!"]


async def test_a_cancelled_call_is_cancelled_in_the_server(place: Place) -> None:
    await place.ws.mcps.add("m", stdio=place.server())
    async with place.ws.tools.stream("mcp__m__slow", {"seconds": 60, "mark": "mark"}) as events:
        async for event in events:
            if isinstance(event, workspaced.ToolProgress):
                break
    async with asyncio.timeout(10):
        while await content(place.ws, "mark") != b"cancelled":
            await asyncio.sleep(0.05)
    assert await place.call("m", "echo", text="usable") == "usable"


async def test_sessions_share_nothing(place: Place) -> None:
    for session in ("one", "two"):
        await place.ws.mcps.add("m", stdio=place.server(), session_id=session)
    for count in ("1", "2"):
        for session in ("one", "two"):
            assert await place.call("m", "counter", session_id=session) == count


async def test_secrets_are_not_read_back(place: Place) -> None:
    await place.ws.mcps.add("m", stdio=place.server(), env={"TOKEN": "hush-hush"})
    (info,) = await place.ws.mcps.list()
    assert dict(info.spec.stdio.env) == {"TOKEN": "[redacted]"}
    for process in await place.ws.processes():
        assert "hush-hush" not in repr(process)
    assert await place.call("m", "environment", name="TOKEN") == "hush-hush"


@pytest.mark.parametrize("kind", ["streamable", "sse"])
async def test_http_inside_the_workspace(place: Place, kind: Literal["streamable", "sse"]) -> None:
    transport, path = ("sse", "sse") if kind == "sse" else ("streamable-http", "mcp")
    server = await place.ws.start(place.server("--transport", transport), process_id="server")
    port = await first_line(server, place.ws)
    await place.ws.mcps.add("m", http=f"http://localhost:{port}/{path}", kind=kind)
    assert await place.call("m", "echo", text="over HTTP") == "over HTTP"
    await server.signal("KILL")


async def test_slow_and_fast(place: Place) -> None:
    slow = asyncio.create_task(place.ws.mcps.add("slow", stdio=place.server("--slow", "8"), timeout=60))
    async with asyncio.timeout(10):
        while not await running(place.ws):
            await asyncio.sleep(0.05)
    began = time.monotonic()
    await place.ws.mcps.add("fast", stdio=[place.python, "hostile_mcp_server.py", "patient"])
    assert [tool.source for tool in await place.ws.tools.list(kind="mcp")] == ["fast"]
    assert time.monotonic() - began < 5
    assert (await slow).state == "ready"
    assert await place.call("slow", "echo", text="after all") == "after all"


async def test_a_failed_or_late_add_leaves_the_name_free_and_no_process(place: Place) -> None:
    command = [place.python, "hostile_mcp_server.py", "exits"]
    with pytest.raises(workspaced.McpStartFailed) as caught:
        await place.ws.mcps.add("m", stdio=command, env={"SECRET": "hush-hush"})
    assert caught.value.metadata["stderr_tail"] == "no licence for [redacted]"
    with pytest.raises(workspaced.FailedPrecondition) as refused:
        await place.ws.mcps.add("m", stdio=["no-such-program"])
    assert refused.value.reason == "MCP_START_FAILED"
    with pytest.raises(workspaced.DeadlineExceeded):
        await place.ws.mcps.add("m", stdio=[place.python, "hostile_mcp_server.py", "silent"], timeout=1.0)
    assert await place.ws.mcps.list() == []
    await none_runs(place.ws)
    assert (await place.ws.mcps.add("m", stdio=place.server())).state == "ready"


async def test_close_ends_instances_and_keeps_declarations(place: Place, client: workspaced.Client) -> None:
    await place.ws.mcps.add("m", stdio=["mcp-server-everything"])
    await place.ws.close()
    again = await client.initialize(workspace_id=place.ws.id)
    (info,) = await again.mcps.list(start=False)
    assert (info.name, info.state) == ("m", "idle")
    result = await again.tools.call("mcp__m__echo", {"message": "again"})
    assert result.text == "Echo: again"


async def test_reset_forgets_declarations(place: Place) -> None:
    await place.ws.mcps.add("m", stdio=place.server())
    await place.ws.reset()
    assert await place.ws.mcps.list() == []
    await none_runs(place.ws)


async def test_a_crash_and_the_next_call(place: Place) -> None:
    await place.ws.mcps.add("m", stdio=place.server())
    first = json.loads(await place.call("m", "where"))["pid"]
    with pytest.raises(workspaced.McpUnavailable):
        await place.ws.tools.call("mcp__m__crash", {})
    assert json.loads(await place.call("m", "where"))["pid"] != first


async def test_a_server_that_was_killed_connects_again(
    own_server: ServerProcess, backend: BackendUnderTest, tmp_path: Path
) -> None:
    arguments = dict(backend.arguments)
    command = [sys.executable, "hostile_mcp_server.py", "patient"]
    if backend.name == "docker":
        arguments["image"] = AGENTS_IMAGE
        command[0] = "python3"
    async with workspaced.connect(own_server.address) as client:
        ws = await client.initialize(**arguments, workspace_id="mcp-restart")
        await ws.files.write("hostile_mcp_server.py", (_SUPPORT / "hostile_mcp_server.py").read_bytes())
        await ws.mcps.add("m", stdio=command, env={"TOKEN": "hush-hush"}, session_id="s")
    own_server.kill()
    own_server.start()
    async with workspaced.connect(own_server.address) as client:
        ws = await client.initialize(workspace_id="mcp-restart")
        (info,) = await ws.mcps.list(start=False, session_id="s")
        assert (info.name, info.state) == ("m", "idle")
        assert [tool.original_name for tool in await ws.tools.list(kind="mcp", session_id="s")] == ["go"]
        async with asyncio.timeout(20):
            while len(await running(ws)) != 1:  # the one of the killed server ends with its channel
                await asyncio.sleep(0.05)
        await ws.delete()


async def test_a_remote_server_with_a_private_authority(
    backend: BackendUnderTest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("localhost").private_key_and_cert_chain_pem.bytes()
    server = ServerProcess(
        tmp_path_factory.mktemp("tls") / "state", config=f'[mcp]\nca_file = "{tmp_path / "ca.pem"}"\n'
    )
    server.start()
    try:
        async with workspaced.connect(server.address) as client:
            arguments, python = dict(backend.arguments), sys.executable
            if backend.name == "docker":
                arguments["image"], python = AGENTS_IMAGE, "python3"
            ws = await client.initialize(**arguments, workspace_id="mcp-tls")
            await ws.files.write("mcp_server.py", (_SUPPORT / "mcp_server.py").read_bytes())
            await ws.files.write("server.pem", certificate)
            place = Place(ws, python)
            remote = place.server("--transport", "streamable-http", "--certificate", "server.pem")
            port = await first_line(await ws.start(remote, process_id="remote"), ws)
            await ws.mcps.add("m", http=f"https://localhost:{port}/mcp", headers={"Authorization": "Bearer hush-hush"})
            assert await place.call("m", "echo", text="sealed") == "sealed"
            await ws.delete()
    finally:
        assert server.stop() == 0
