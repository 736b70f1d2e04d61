"""The guest's end of a channel in memory, to be played by a test: an honest guest, a slow one, a hostile one."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from workspaced_guest import wire
from workspaced_server.guest.channel import GuestChannel
from workspaced_server.guest.stream import NOTHING, GuestStream

HELLO: dict[str, Any] = {
    "version": 1,
    "instance": "ab" * 8,
    "bundle": "cd" * 32,
    "python": "3.11.2",
    "pid": 7,
    "uid": 1000,
    "user": "agent",
    "home": "/home/agent",
    "workdir": "/workspace",
    "window": wire.WINDOW,
    "capabilities": ["process", "file"],
    "start_time": 1_790_000_000.0,
}

PIECE = b"d" * (wire.WINDOW // 4)
"""As much as is granted again at once."""


class FakeGuest:
    """A ByteStream for a `GuestChannel`, and what a test says and hears at its other end.

    `reading` cleared makes the guest stop reading: the server's sends wait.
    """

    def __init__(self) -> None:
        self.closed = False
        self.received: deque[wire.Frame] = deque()
        self.reading = asyncio.Event()
        self.reading.set()
        self._parser = wire.Parser("client")
        self._outgoing: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._heard = asyncio.Event()

    # ByteStream, for the channel.

    async def send(self, data: bytes | bytearray | memoryview) -> None:
        await self.reading.wait()
        if self.closed:
            raise BrokenPipeError
        self.received.extend(self._parser.feed(bytes(data)))
        self._heard.set()

    async def receive(self, max_bytes: int = 262144) -> bytes:
        while not self._outgoing and not self.closed:
            self._changed.clear()
            await self._changed.wait()
        if not self._outgoing:
            return b""
        data = self._outgoing.popleft()
        if len(data) > max_bytes:
            self._outgoing.appendleft(data[max_bytes:])
        return data[:max_bytes]

    async def aclose(self) -> None:
        self.hang_up()
        self.reading.set()

    # For the test.

    def hang_up(self) -> None:
        """End the stream, after what was said."""
        self.closed = True
        self._changed.set()

    def say_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._outgoing.append(data)
        self._changed.set()

    def say(self, kind: int, stream: int = 0, payload: bytes | dict[str, Any] = b"") -> None:
        """Send a frame."""
        self.say_bytes(wire.encode(kind, stream, wire.encode_json(payload) if isinstance(payload, dict) else payload))

    async def hear(self, *kinds: int) -> wire.Frame:
        """The next frame of the server, or the next of these kinds; others are skipped."""
        async with asyncio.timeout(5):
            while True:
                while self.received:
                    frame = self.received.popleft()
                    if not kinds or frame[0] in kinds:
                        return frame
                self._heard.clear()
                await self._heard.wait()

    async def keep_up(self, stream: GuestStream, pieces: int) -> int:
        """Say `PIECE` so often, each when the one before has been taken; how much more than that was granted."""
        granted = 0
        for _ in range(pieces):
            self.say(wire.DATA, stream.id, PIECE)
            assert await stream.receive() == PIECE
            assert stream.receive_nowait() is NOTHING  # which grants
            granted += wire.decode_credit((await self.hear(wire.CREDIT))[2])
        return granted - pieces * len(PIECE)

    async def connect(self, **hello: Any) -> GuestChannel:
        """Shake hands; `hello` overrides fields of HELLO."""
        self.say(wire.HELLO, 0, HELLO | hello)
        channel = await GuestChannel.connect(self, "token")
        assert (await self.hear())[0] == wire.HELLO
        return channel
