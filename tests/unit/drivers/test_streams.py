"""Socket streams: all bytes, back pressure, cancellation, and no following of links."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from workspaced_server.drivers.streams import SocketStream, connect_unix


def pair() -> tuple[SocketStream, SocketStream]:
    left, right = socket.socketpair()
    return SocketStream(left), SocketStream(right)


async def receive_all(stream: SocketStream) -> bytes:
    data = b""
    while part := await stream.receive():
        data += part
    return data


async def test_carries_more_than_the_kernel_holds() -> None:
    left, right = pair()
    payload = os.urandom(5_000_000)
    receiving = asyncio.create_task(receive_all(right))
    await left.send(payload)
    await left.aclose()
    assert await receiving == payload
    await right.aclose()


@pytest.mark.parametrize("sizes", [(9, 262_144), (0, 5_000_000), (5_000_000, 5_000_000), (3, 0)])
async def test_sends_parts_as_one(sizes: tuple[int, int]) -> None:
    left, right = pair()
    parts = [os.urandom(size) for size in sizes]
    receiving = asyncio.create_task(receive_all(right))
    await left.send_parts((parts[0], memoryview(parts[1])))
    await left.aclose()
    assert await receiving == b"".join(parts)
    await right.aclose()
    with pytest.raises(ConnectionAbortedError):
        await left.send_parts((b"x",))


async def test_a_cancelled_receive_loses_nothing() -> None:
    left, right = pair()
    for number in range(200):
        receiving = asyncio.create_task(right.receive())
        await asyncio.sleep(0)
        await left.send(b"%03d" % number)
        # Cancelled in the turn in which the loop learns that there is something to read, or before, or after.
        for _ in range(number % 4):
            await asyncio.sleep(0)
        receiving.cancel()
        got = await asyncio.gather(receiving, return_exceptions=True)
        data = got[0] if isinstance(got[0], bytes) else await right.receive()
        assert data == b"%03d" % number
    await left.aclose()
    await right.aclose()


async def test_a_cancelled_send_breaks_the_stream() -> None:
    left, right = pair()
    sending = asyncio.create_task(left.send(bytes(50_000_000)))
    await right.receive(1)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    with pytest.raises(ConnectionAbortedError):
        await left.send(b"x")
    await left.aclose()
    await right.aclose()


async def test_close_ends_a_waiting_receive() -> None:
    left, right = pair()
    receiving = asyncio.create_task(left.receive())
    await asyncio.sleep(0)
    await left.aclose()
    await left.aclose()
    with pytest.raises(ConnectionAbortedError):
        await receiving
    assert await right.receive() == b""
    await right.aclose()


async def test_an_always_ready_peer_leaves_the_loop_to_others() -> None:
    left, right = pair()
    await left.send(bytes(100_000))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    for _ in range(1000):
        await right.receive(10)
    counting.cancel()
    assert turns > 10
    await left.aclose()
    await right.aclose()


async def test_connects_to_a_path_of_any_length(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120) / ("e" * 120)
    directory.mkdir(parents=True)
    path = directory / "guest.sock"
    fd = os.open(directory, os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{fd}/guest.sock")
        os.close(fd)
        listening.listen()
        stream = await connect_unix(path)
        accepted, _ = listening.accept()
        accepted.send(b"hello")
        assert await stream.receive() == b"hello"
        accepted.close()
        await stream.aclose()
    with pytest.raises(ConnectionRefusedError):
        await connect_unix(path)
    with pytest.raises(FileNotFoundError):
        await connect_unix(directory / "none.sock")


async def test_does_not_follow_a_link(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "real.sock"))
        listening.listen()
        (tmp_path / "link.sock").symlink_to(tmp_path / "real.sock")
        (tmp_path / "file.sock").write_text("")
        for name in ("link.sock", "file.sock"):
            with pytest.raises(ConnectionRefusedError):
                await connect_unix(tmp_path / name)
