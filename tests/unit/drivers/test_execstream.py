"""The streams of an exec, taken apart from the engine's frames however they are cut."""

from __future__ import annotations

import json
import os
import random
import socket
import threading

import pytest

from tests.support.server import open_descriptors
from workspaced_server.drivers.docker.execstream import ExecRefusedError, ExecStream, start_exec
from workspaced_server.drivers.streams import SocketStream


class Script:
    """A byte stream that delivers the given chunks."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = [chunk for chunk in chunks if chunk]
        self.sent = b""
        self.closed = False

    async def send(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    async def receive(self, max_bytes: int = 262144) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""

    async def aclose(self) -> None:
        self.closed = True


def frame(kind: int, data: bytes) -> bytes:
    return bytes([kind, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


async def test_any_cut_gives_the_same_bytes(rng: random.Random) -> None:
    stdout, wire, stderr = b"", b"", b""
    for _ in range(200):
        data = rng.randbytes(rng.choice((0, 1, 7, 8, 9, 500)))
        kind = rng.choice((1, 1, 1, 2))
        wire += frame(kind, data)
        if kind == 1:
            stdout += data
        else:
            stderr += data
    for _ in range(30):
        cuts = sorted(rng.randrange(len(wire)) for _ in range(rng.randrange(100)))
        chunks = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
        stream = ExecStream(Script(*chunks[1:]), chunks[0])
        got = b""
        while part := await stream.receive(rng.choice((1, 10, 100000))):
            got += part
        assert got == stdout
        assert stream.complaint == stderr[-4096:].decode(errors="replace").strip()


async def test_much_output_is_gathered_and_comes_whole(rng: random.Random) -> None:
    before = open_descriptors(os.getpid())
    data = rng.randbytes(1 << 20)
    ours, engines = socket.socketpair(socket.AF_UNIX)
    raw = SocketStream(ours)
    stream = ExecStream(raw, b"")

    def speak() -> None:
        for start in range(0, len(data), 4096):
            engines.sendall(frame(1, data[start : start + 4096]))
        engines.close()

    speaker = threading.Thread(target=speak)
    speaker.start()
    got, pieces = b"", 0
    while part := await stream.receive():
        got += part
        pieces += 1
    speaker.join()
    assert got == data
    assert pieces < len(data) // 4096 / 2
    await stream.aclose()
    assert open_descriptors(os.getpid()) == before


async def test_bytes_that_came_with_the_head_are_not_lost() -> None:
    raw = Script(
        b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tc", b"p\r\n\r\n" + frame(1, b"early")[:10], frame(1, b"early")[10:]
    )
    stream = await start_exec(raw, "1.41", "abc")
    assert await stream.receive() == b"ea"
    assert await stream.receive() == b"rly"
    assert raw.sent.startswith(b"POST /v1.41/exec/abc/start HTTP/1.1\r\n")
    assert json.loads(raw.sent.partition(b"\r\n\r\n")[2]) == {"Detach": False, "Tty": False}


async def test_a_refusal_is_told_and_closes() -> None:
    body = b'{"message": "Container abc is not running"}'
    raw = Script(b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n" % len(body), body)
    with pytest.raises(ExecRefusedError, match="is not running") as caught:
        await start_exec(raw, "1.41", "abc")
    assert caught.value.status == 409
    assert raw.closed


async def test_an_engine_that_goes_away() -> None:
    raw = Script(b"HTTP/1.1 101")
    with pytest.raises(ConnectionResetError):
        await start_exec(raw, "1.41", "abc")
    assert raw.closed
