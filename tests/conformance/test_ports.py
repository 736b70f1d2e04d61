"""Ports inside a workspace, reached without publishing any."""

from __future__ import annotations

import asyncio

import anyio
import pytest

import workspaced

pytestmark = pytest.mark.anyio

ECHO = """
import socket
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept()
    data = b""
    try:
        while (piece := c.recv(65536)): data += piece
        c.sendall(data[::-1])
    except ConnectionError: pass
    c.close()
"""


async def echo_port(ws: workspaced.Workspace) -> tuple[workspaced.Process, int]:
    process = await ws.start(["python3", "-c", ECHO], process_id="echo")
    event = await anext(aiter(await ws.attach("echo")))
    return process, int(event.data)


async def test_tunnel_carries_bytes_and_half_closes(ws: workspaced.Workspace) -> None:
    _, port = await echo_port(ws)
    data = bytes(range(256)) * 8192
    async with ws.tunnel(port) as stream:
        await stream.send(data)
        await stream.send_eof()
        back = b""
        while piece := await stream.receive():
            back += piece
    assert back == data[::-1]


async def test_a_closed_tunnel_is_an_error_to_whoever_uses_it(ws: workspaced.Workspace) -> None:
    _, port = await echo_port(ws)
    async with ws.tunnel(port) as stream:
        reading = asyncio.create_task(stream.receive())
        await asyncio.sleep(0)
        await stream.aclose()
        for use in (reading, stream.receive(), stream.send(b"x")):
            with pytest.raises(workspaced.Unavailable, match="closed"):
                await use
    async with ws.tunnel(port) as stream:
        with anyio.CancelScope() as scope:
            asyncio.get_running_loop().call_soon(scope.cancel)
            await stream.receive()
        assert scope.cancelled_caught
        with pytest.raises(workspaced.Unavailable, match="closed"):
            await stream.receive()


async def test_ports_are_listed_with_their_process(ws: workspaced.Workspace) -> None:
    _, port = await echo_port(ws)
    listed = {p.port: p.process_id for p in await ws.ports()}
    assert listed[port] == "echo"


async def test_nothing_listens(ws: workspaced.Workspace) -> None:
    with pytest.raises(workspaced.FailedPrecondition) as caught:
        async with ws.tunnel(1) as stream:
            await stream.receive()
    assert caught.value.reason == "PORT_REFUSED"


async def test_forward(ws: workspaced.Workspace) -> None:
    _, port = await echo_port(ws)
    async with (
        ws.forward(port) as forward,
        await anyio.connect_tcp("127.0.0.1", forward.local_port) as connection,
    ):
        await connection.send(b"abc")
        await connection.send_eof()
        assert await connection.receive() == b"cba"
