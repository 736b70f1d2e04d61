"""Ports inside a workspace, reached without publishing any."""

from __future__ import annotations

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
    while (piece := c.recv(65536)): data += piece
    c.sendall(data[::-1]); c.close()
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
