"""Dialling and listing of ports, on a real guest."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.support.real_guest import RealGuest, real_guest
from workspaced_guest.ports import parse_table
from workspaced_server.errors import WorkspacedError
from workspaced_server.guest.channel import GuestChannel

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[RealGuest]:
    async with real_guest(tmp_path) as running:
        yield running


@pytest.fixture
async def channel(guest: RealGuest) -> AsyncIterator[GuestChannel]:
    channel = await guest.connect()
    yield channel
    await channel.aclose()


@asynccontextmanager
async def listening(serve: Serve, host: str = "127.0.0.1") -> AsyncIterator[int]:
    server = await asyncio.start_server(serve, host, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_bytes_both_ways_and_half_close(channel: GuestChannel) -> None:
    received: list[bytes] = []

    async def answer_after_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read())
        writer.write(b"answer")
        writer.close()

    async with (
        listening(answer_after_the_end) as port,
        asyncio.timeout(10),
        channel.open("port.dial", {"port": port}) as stream,
    ):
        assert await stream.receive() == {"connected": {"host": "127.0.0.1", "port": port}}
        await stream.send(b"quest")
        await stream.send(b"ion")
        stream.end()
        assert await stream.receive() == b"answer"
        assert await stream.receive() == b""
        assert await stream.receive() is None
        assert stream.result == {}
    assert received == [b"question"]


async def test_the_other_side_may_end_first(channel: GuestChannel) -> None:
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.write_eof()
        received.set_result(await reader.read())
        writer.close()

    async with listening(greet) as port, asyncio.timeout(10), channel.open("port.dial", {"port": port}) as stream:
        await stream.receive()
        assert await stream.receive() == b"hello"
        assert await stream.receive() == b""
        await stream.send(b"still here")
        stream.end()
        assert await stream.receive() is None
        assert await received == b"still here"


async def test_a_lot_both_ways_at_once(channel: GuestChannel) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    chunk = os.urandom(262_144)
    async with listening(echo) as port, asyncio.timeout(60), channel.open("port.dial", {"port": port}) as stream:
        await stream.receive()

        async def send() -> None:
            for _ in range(64):
                await stream.send(chunk)
            stream.end()

        sending = asyncio.create_task(send())
        digest = hashlib.sha256()
        while (data := await stream.receive()) is not None:
            assert isinstance(data, bytes)
            digest.update(data)
        await sending
    assert digest.digest() == hashlib.sha256(chunk * 64).digest()


async def test_a_reader_that_does_not_read_stops_nobody(channel: GuestChannel) -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(bytes(65536))
                await writer.drain()
        except ConnectionError:
            writer.close()

    async with listening(flood) as port, asyncio.timeout(10), channel.open("port.dial", {"port": port}) as stream:
        await stream.receive()
        for _ in range(50):
            await channel.call("file.stat", {"path": "."})


async def test_reset_and_cancellation(channel: GuestChannel) -> None:
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
            ended.set_result("end")
        except ConnectionResetError:
            ended.set_result("reset")
        writer.close()

    async with listening(read) as port, asyncio.timeout(10):
        async with channel.open("port.dial", {"port": port}) as stream:
            await stream.receive()
        assert await ended == "reset"

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.close()

    async with listening(reset) as port, asyncio.timeout(10):
        async with channel.open("port.dial", {"port": port}) as stream:
            await stream.receive()
            await stream.send(b"x")
            with pytest.raises(WorkspacedError) as caught:
                await stream.receive()
        assert caught.value.reason == "CONNECTION_BROKEN"


async def test_refused(channel: GuestChannel) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        for host in ("127.0.0.1", "localhost", ""):
            with pytest.raises(WorkspacedError) as caught:
                await channel.call("port.dial", {"host": host, "port": port})
            assert caught.value.reason == "PORT_REFUSED"
    for port in (0, 65536, "x"):
        with pytest.raises(WorkspacedError) as caught:
            await channel.call("port.dial", {"port": port})
        assert caught.value.reason == "ARGUMENT_INVALID"
    with pytest.raises(WorkspacedError) as caught:
        await channel.call("port.dial", {"host": "no.such.host.invalid", "port": 1})
    assert caught.value.reason == "HOST_NOT_FOUND"


async def test_no_answer_in_time(channel: GuestChannel) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = []
        for _ in range(3):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
            waiting.append(filler)
        with pytest.raises(WorkspacedError) as caught:
            await channel.call("port.dial", {"port": port, "timeout": 0.2})
        assert caught.value.reason == "PORT_REFUSED"
        assert caught.value.metadata["errno"] == "ETIMEDOUT"
        for filler in waiting:
            filler.close()


async def test_list_names_the_process(guest: RealGuest, channel: GuestChannel) -> None:
    program = (
        "import socket, sys; server = socket.create_server(('127.0.0.1', 0)); "
        "print(server.getsockname()[1], flush=True); sys.stdin.read()"
    )
    spec = {"argv": ["python3", "-c", program], "stdin": True}
    attach = {"process_id": "web", "spec": spec, "fingerprint": "f", "attach": {"offset": 0}}
    async with channel.open("process.start", attach) as stream:
        output = b""
        while b"\n" not in output:
            item = await stream.receive()
            if isinstance(item, bytes):
                output += item[9:]
        port = int(output)
        listed = await channel.call("port.list", {})
        (entry,) = [entry for entry in listed["ports"] if entry["port"] == port]
        assert (entry["address"], entry["process_id"]) == ("127.0.0.1", "web")
        assert str(entry["pid"]) in os.listdir("/proc")
        await channel.call("process.signal", {"process_id": "web", "signal": "KILL"})


def test_table_of_the_kernel() -> None:
    table = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 41 1 0 100 0 0 10 0
   1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 42 1 0 100 0 0 10 0
   2: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 43 1 0 100 0
"""
    assert parse_table(table) == {41: (8080, "127.0.0.1"), 43: (80, "::1")}


async def test_cancelling_leaves_no_descriptor(guest: RealGuest, channel: GuestChannel) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionResetError):
            await reader.read()
        writer.close()

    await channel.call("port.list", {})
    descriptors = Path(f"/proc/{guest.process.pid}/fd")
    before = len(os.listdir(descriptors))
    async with listening(hold) as port:
        for number in range(20):
            async with channel.open("port.dial", {"port": port, "host": "localhost" if number % 2 else ""}) as stream:
                if number % 3:
                    await stream.receive()
        async with asyncio.timeout(10):
            while len(os.listdir(descriptors)) > before:
                await channel.ping(5)
