"""A scope that cancels a call ends with it, and nothing of the cancellation gets out: whatever the call waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import grpc
import pytest

import workspaced
from tests.unit.client.fake_server import running


class Silent(grpc.GenericRpcHandler):
    """Takes a call and never says a word, not even headers; what the client asks to tidy up after it is refused."""

    def __init__(self) -> None:
        self.open = 0
        self.arrived: Callable[[], None] | None = None
        self.quiet = asyncio.Event()

    def service(self, details: Any) -> Any:
        """The same for each method."""
        return grpc.stream_stream_rpc_method_handler(self._wait)

    async def _wait(self, requests: Any, context: Any) -> None:
        if self.arrived is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "tidied up")
            return
        self.open += 1
        self.quiet.clear()
        try:
            self.arrived()
            self.arrived = None
            await asyncio.Event().wait()
        finally:
            self.open -= 1
            if not self.open:
                self.quiet.set()


async def each(stream: AsyncIterator[Any]) -> None:
    async for _ in stream:
        pass


async def wait_for_process(ws: workspaced.Workspace) -> None:
    async with ws.exec("true") as process:
        await process.wait()


async def write_to_process(ws: workspaced.Workspace) -> None:
    async with ws.exec("cat", stdin=True) as process:
        await process.write(bytes(4 << 20))


async def tunnel(ws: workspaced.Workspace) -> None:
    async with ws.tunnel(80):
        pass


async def call_tool(ws: workspaced.Workspace) -> None:
    await ws.tools.call("Bash", {"command": "true"})


CALLS: dict[str, Callable[[workspaced.Client, workspaced.Workspace], Awaitable[Any]]] = {
    "initialize": lambda client, ws: client.initialize(backend="local"),
    "acquire": lambda client, ws: client.acquire(policy="per_user", user_id="u"),
    "list": lambda client, ws: client.list(),
    "info": lambda client, ws: ws.info(),
    "reset": lambda client, ws: ws.reset(),
    "exec": lambda client, ws: wait_for_process(ws),
    "stdin": lambda client, ws: write_to_process(ws),
    "run": lambda client, ws: ws.run("true"),
    "start": lambda client, ws: ws.start("true"),
    "attach": lambda client, ws: ws.attach("p"),
    "signal": lambda client, ws: ws.process("p").signal("TERM"),
    "wait": lambda client, ws: ws.process("p").wait(),
    "write": lambda client, ws: ws.files.write("f", b"x"),
    "write a stream": lambda client, ws: ws.files.write("f", bytes(16 << 20)),
    "read": lambda client, ws: ws.files.read("f"),
    "list files": lambda client, ws: ws.files.list(recursive=True),
    "watch files": lambda client, ws: each(ws.files.watch(".")),
    "tunnel": lambda client, ws: tunnel(ws),
    "tool": lambda client, ws: call_tool(ws),
    "tools": lambda client, ws: ws.tools.list(),
    "skills": lambda client, ws: ws.skills.list(),
    "mcps": lambda client, ws: ws.mcps.list(),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_gets_no_answer_is_cancelled_by_its_scope(name: str) -> None:
    silent = Silent()
    async with (
        running(lambda server: server.add_generic_rpc_handlers((silent,))) as target,
        workspaced.connect(target) as client,
    ):
        with anyio.fail_after(30):
            with anyio.CancelScope() as scope:
                silent.arrived = scope.cancel
                await CALLS[name](client, client.workspace("w"))
            assert scope.cancelled_caught
            await silent.quiet.wait()
