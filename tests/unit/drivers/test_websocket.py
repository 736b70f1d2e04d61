"""The byte stream over WebSocket: whatever the borders of messages, and what the other side may do wrong."""

from __future__ import annotations

import asyncio
import hashlib
import http
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from workspaced_server.drivers import websocket
from workspaced_server.drivers.streams import connect_unix
from workspaced_server.guest import bundle
from workspaced_server.guest.channel import ChannelLost, GuestChannel

pytestmark = pytest.mark.anyio

TOKEN = "0123456789abcdef0123456789abcdef"
Behaviour = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def serving(behaviour: Behaviour) -> AsyncIterator[str]:
    async with serve(behaviour, "127.0.0.1", 0, max_size=None, close_timeout=1) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/v1/channel"


async def echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a guest that runs from its bundle."""
    state, program = tmp_path / "state", tmp_path / "guest.pyz"
    state.mkdir(mode=0o700)
    (state / "token").write_text(TOKEN)
    program.write_bytes(bundle.build().data)
    options: list[str | Path] = [
        "--socket",
        tmp_path / "s",
        "--state",
        state,
        "--workdir",
        tmp_path / "w",
        "--listen",
        "127.0.0.1:0",
    ]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", program, "serve", "--foreground", *options, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    channel = await GuestChannel.connect(await connect_unix(tmp_path / "s"), TOKEN)
    address = (await channel.call("guest.info", {}))["listen"]
    await channel.aclose()
    yield f"ws://{address}/v1/channel"
    process.terminate()
    await process.communicate()


async def test_a_channel_over_it(guest: str) -> None:
    channel = await GuestChannel.connect(await websocket.connect(guest, {"X-Access": "secret"}), TOKEN)
    try:
        data = os.urandom(3_000_000)
        async with channel.open("file.write", {"path": "data"}) as stream:
            await stream.send(data)
            stream.end()
            while (await stream.receive()) is not None:
                pass
            assert stream.result["sha256"] == hashlib.sha256(data).hexdigest()
        read = bytearray()
        async with channel.open("file.read", {"path": "data"}) as stream:
            while (item := await stream.receive()) is not None:
                read += item if isinstance(item, bytes) else b""
        assert bytes(read) == data
        await channel.call("guest.shutdown", {"grace": 1})
        await channel.wait_closed()
    finally:
        await channel.aclose()


async def test_a_wrong_token(guest: str) -> None:
    with pytest.raises(ChannelLost, match="TOKEN"):
        await GuestChannel.connect(await websocket.connect(guest), "x" * 32)


async def test_borders_of_messages_mean_nothing() -> None:
    async def behaviour(connection: ServerConnection) -> None:
        await connection.send(b"")
        await connection.send([b"one ", b"", b"two "])
        await connection.send(b"three")
        await connection.wait_closed()

    async with serving(behaviour) as url:
        stream = await websocket.connect(url)
        found = b""
        while len(found) < 13:
            part = await stream.receive(3)
            assert 1 <= len(part) <= 3
            found += part
        assert found == b"one two three"
        await stream.aclose()
        await stream.aclose()
        with pytest.raises(OSError, match="closed"):
            await stream.send(b"x")
        with pytest.raises(OSError, match="closed"):
            await stream.receive()


async def test_a_large_send_arrives_whole() -> None:
    async with serving(echo) as url:
        stream = await websocket.connect(url)
        data = os.urandom(5_000_000)
        found = bytearray()
        async with asyncio.TaskGroup() as group:
            group.create_task(stream.send(memoryview(data)))
            while len(found) < len(data):
                found += await stream.receive()
        assert bytes(found) == data
        await stream.aclose()


async def test_a_cancelled_receive_loses_nothing() -> None:
    async with serving(echo) as url:
        stream = await websocket.connect(url)
        found = b""
        for number in range(50):
            task = asyncio.create_task(stream.receive())
            await asyncio.sleep(0)
            await stream.send(bytes([number]))
            task.cancel()
            try:
                found += await task
            except asyncio.CancelledError:
                continue
        while len(found) < 50:
            found += await stream.receive()
        assert found == bytes(range(50))
        await stream.aclose()


async def test_the_end_and_a_break() -> None:
    async def orderly(connection: ServerConnection) -> None:
        await connection.send(b"last")

    async def broken(connection: ServerConnection) -> None:
        connection.transport.abort()

    async def text(connection: ServerConnection) -> None:
        await connection.send("text")
        await connection.wait_closed()

    async with serving(orderly) as url:
        stream = await websocket.connect(url)
        assert [await stream.receive(), await stream.receive()] == [b"last", b""]
        await stream.aclose()
    for behaviour in (broken, text):
        async with serving(behaviour) as url:
            stream = await websocket.connect(url)
            with pytest.raises(OSError, match=r"broke|text"):
                await stream.receive()
            await stream.aclose()


async def test_a_reader_that_does_not_read_holds_the_sender_back() -> None:
    sent = 0

    async def behaviour(connection: ServerConnection) -> None:
        nonlocal sent
        for _ in range(1000):
            await connection.send(bytes(256 * 1024))
            sent += 1

    async with serving(behaviour) as url:
        stream = await websocket.connect(url)
        total = len(await stream.receive(1))
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.3)
        assert sent < 200
        while data := await stream.receive():
            total += len(data)
        assert total == 1000 * 256 * 1024
        await stream.aclose()


@pytest.mark.parametrize("status", [301, 401, 404, 502])
async def test_an_answer_that_is_no_websocket(status: int) -> None:
    asked: list[str] = []

    def answer(connection: ServerConnection, request: Request) -> Response:
        asked.append(request.headers["Authorization"])
        return Response(status, http.HTTPStatus(status).phrase, Headers(Location="ws://127.0.0.1:1/elsewhere"), b"")

    async with serve(echo, "127.0.0.1", 0, process_request=answer) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        with pytest.raises(websocket.WebSocketRefused) as caught:
            await websocket.connect(f"ws://127.0.0.1:{port}/", {"Authorization": "Bearer t"})
    assert caught.value.status == status
    assert asked == ["Bearer t"]


async def test_nobody_there() -> None:
    with pytest.raises(OSError, match="Connect call failed"):
        await websocket.connect("ws://127.0.0.1:1/")
    with pytest.raises(ValueError, match="no WebSocket URL"):
        await websocket.connect("https://example.com/?token=secret")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(TimeoutError):
            await websocket.connect(f"ws://127.0.0.1:{port}/", timeout=0.2)
    hanging_up = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with hanging_up:
        port = hanging_up.sockets[0].getsockname()[1]
        with pytest.raises(OSError, match="handshake"):
            await websocket.connect(f"ws://127.0.0.1:{port}/")
