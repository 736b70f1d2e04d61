"""The server's end of a channel to a guest: handshake, streams, credit in both directions, pings.

Whatever a guest sends is untrusted. Every frame is bounded and checked, and what breaks the protocol closes this
channel and no other. The bytes are specified in `docs/guest-protocol.md`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from workspaced_guest import wire
from workspaced_server.drivers.base import ByteStream, GatheringStream
from workspaced_server.guest.hello import GuestHello
from workspaced_server.guest.stream import ChannelLost, GuestStream, open_payload

__all__ = ["ChannelLost", "GuestChannel", "GuestHello", "GuestStream"]

# Senders wait while so much is queued for a guest that does not read.
_HIGH_WATER_BYTES = 512 * 1024
# Frames that wait for nobody (CREDIT, CANCEL, PONG) may add so much before the guest counts as broken.
_CONTROL_LIMIT_BYTES = 4 * 1024 * 1024
# From here on a payload is sent from where it lies.
_LONG_BYTES = 32 * 1024
# Small frames are joined up to here, so that a burst of them is one write.
_BATCH_BYTES = 256 * 1024
_CALL_WINDOW_BYTES = 64 * 1024
_READ_BYTES = 262144
# Streams with a wide window, which bounds what a reader can leave in our memory that was fast and stops.
_MAX_WIDE_STREAMS = 2


def _client_name() -> str:
    try:
        return "workspaced-server/" + version("workspaced-server")
    except PackageNotFoundError:
        return "workspaced-server"


class GuestChannel:
    """One authenticated channel, shared by any number of streams.

    Owns the byte stream and two tasks, one that reads and one that writes, until `aclose` or until the channel breaks.
    All methods belong to the event loop that `connect` ran on.
    """

    def __init__(self, stream: ByteStream, hello: GuestHello, parser: wire.Parser, early: list[wire.Frame]) -> None:
        self.hello = hello
        self._stream = stream
        self._parser = parser
        self._streams: dict[int, GuestStream] = {}
        self._wide: set[int] = set()
        self._last_id = 0
        self._gathering = stream if isinstance(stream, GatheringStream) else None
        self._outgoing: deque[bytes | memoryview] = deque()  # frames; of a long one the header, and then the payload
        self._outgoing_bytes = 0
        self._outgoing_ready = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._pings: dict[bytes, asyncio.Future[None]] = {}
        self._cause: ChannelLost | None = None
        self._closed = asyncio.Event()
        self._tasks = (
            asyncio.create_task(self._read(early), name="guest-channel-read"),
            asyncio.create_task(self._write(), name="guest-channel-write"),
        )

    @classmethod
    async def connect(cls, stream: ByteStream, token: str, *, timeout: float = 10) -> GuestChannel:
        """Prove the token over a fresh byte stream and return the channel, which owns `stream` from then on.

        Raises ChannelLost when the guest refuses, breaks the protocol, hangs up or does not answer within `timeout`
        seconds. `stream` is closed then, and also when the call is cancelled.
        """
        parser = wire.Parser("guest")
        greeting = wire.encode_json({"version": wire.VERSION, "token": token, "client": _client_name()})
        try:
            async with asyncio.timeout(timeout):
                await stream.send(wire.encode(wire.HELLO, 0, greeting))
                frames: list[wire.Frame] = []
                while not frames:
                    data = await stream.receive(_READ_BYTES)
                    if not data:
                        raise ChannelLost("the guest hung up during the handshake")
                    frames = parser.feed(data)
            kind, _, payload = frames[0]
            if kind == wire.GOAWAY:
                raise _goaway(payload)
            return cls(stream, GuestHello.parse(wire.decode_json(payload)), parser, frames[1:])
        except TimeoutError:
            await stream.aclose()
            raise ChannelLost("the guest did not answer the handshake in time") from None
        except wire.ProtocolError as error:
            await stream.aclose()
            raise ChannelLost(f"the guest broke the protocol: {error}") from error
        except ChannelLost:
            await stream.aclose()
            raise
        except OSError as error:
            await stream.aclose()
            raise ChannelLost("the connection broke during the handshake") from error
        except BaseException:
            await stream.aclose()
            raise

    @property
    def closed(self) -> bool:
        """Whether the channel is broken or was closed; nothing can be opened any more."""
        return self._cause is not None

    @property
    def streams(self) -> int:
        """How many streams are open, to see that none is forgotten."""
        return len(self._streams)

    async def wait_closed(self) -> ChannelLost:
        """Wait until the channel has broken or was closed, and return the cause."""
        await self._closed.wait()
        assert self._cause is not None
        return self._cause

    async def aclose(self) -> None:
        """Close the channel. What runs on it raises ChannelLost. Idempotent; never raises but when cancelled."""
        self._break(ChannelLost("the channel was closed"))
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stream.aclose()

    async def call(self, op: str, params: Mapping[str, object]) -> dict[str, Any]:
        """Run an operation that answers once, and return its RESULT.

        Raises WorkspacedError for the guest's ERROR, ChannelLost. Cancellation sends CANCEL: what the operation did by
        then is done.
        """
        async with self.open(op, params, window=_CALL_WINDOW_BYTES) as stream:
            while await stream.receive() is not None:
                pass
            return stream.result

    def open(
        self, op: str, params: Mapping[str, object], *, window: int = wire.WINDOW, wake: asyncio.Event | None = None
    ) -> GuestStream:
        """A stream for `op`: an async context manager which opens it, and cancels it when left before its end.

        The guest may have `window` bytes on the way. `wake` is set whenever something can be received, for one who
        waits for several things. Raises WorkspacedError ARGUMENT_INVALID when the parameters do not fit into one frame.
        """
        return GuestStream(self, open_payload(op, params, window), window, wake)

    async def ping(self, timeout: float) -> None:
        """Ask for a sign of life. Raises TimeoutError after `timeout` seconds, ChannelLost."""
        self.check()
        key = secrets.token_bytes(8)
        answered = self._pings[key] = asyncio.get_running_loop().create_future()
        try:
            self.enqueue(wire.PING, 0, key)
            async with asyncio.timeout(timeout):
                await answered
        finally:
            del self._pings[key]

    # What streams use.

    def check(self) -> None:
        """Raise the cause when the channel has broken."""
        if self._cause is not None:
            raise ChannelLost(str(self._cause), self._cause.goaway)

    @property
    def congested(self) -> bool:
        """Whether senders should wait for `drained`."""
        return self._outgoing_bytes >= _HIGH_WATER_BYTES

    async def drained(self) -> None:
        """Wait until what is queued has shrunk, or the channel has broken."""
        await self._drained.wait()

    def register(self, stream: GuestStream) -> int:
        """Give a stream its id."""
        self.check()
        if self._last_id >= wire.MAX_STREAM:
            self._break(ChannelLost("the channel has used all of its stream ids"))
            self.check()
        self._last_id += 1
        self._streams[self._last_id] = stream
        return self._last_id

    def forget(self, stream_id: int) -> None:
        """The stream has ended; later frames for its id are dropped."""
        self._streams.pop(stream_id, None)
        self._wide.discard(stream_id)

    def widen(self, stream_id: int) -> bool:
        """Whether the stream may have a wide window from now on; not all can."""
        if len(self._wide) < _MAX_WIDE_STREAMS:
            self._wide.add(stream_id)
        return stream_id in self._wide

    def enqueue(self, kind: int, stream_id: int, payload: wire.Buffer = b"") -> None:
        """Queue one frame; never waits. Does nothing on a broken channel."""
        if self._cause is not None:
            return
        if kind == wire.DATA and self._gathering is not None and len(payload) >= _LONG_BYTES:
            self._outgoing.append(wire.HEADER.pack(len(payload), kind, stream_id))
            self._outgoing.append(_immutable(payload))
            self._outgoing_bytes += wire.HEADER.size + len(payload)
        else:
            frame = wire.encode(kind, stream_id, payload)
            self._outgoing.append(frame)
            self._outgoing_bytes += len(frame)
        if self._outgoing_bytes >= _HIGH_WATER_BYTES:
            self._drained.clear()
            if self._outgoing_bytes >= _HIGH_WATER_BYTES + _CONTROL_LIMIT_BYTES:
                self._break(ChannelLost("the guest does not read"))
                return
        self._outgoing_ready.set()

    def protocol_error(self, error: wire.ProtocolError) -> ChannelLost:
        """Break the channel because of what a stream found in a frame; returns the cause, to be raised."""
        self._break(ChannelLost(f"the guest broke the protocol: {error}"))
        assert self._cause is not None
        return self._cause

    # The two tasks.

    async def _read(self, early: list[wire.Frame]) -> None:
        try:
            for frame in early:
                self._dispatch(*frame)
            while True:
                data = await self._stream.receive(_READ_BYTES)
                if not data:
                    raise ChannelLost("the guest hung up")
                for kind, stream_id, payload in self._parser.feed(data):
                    self._dispatch(kind, stream_id, payload)
        except wire.ProtocolError as error:
            self._break(ChannelLost(f"the guest broke the protocol: {error}"))
        except ChannelLost as lost:
            self._break(lost)
        except OSError:
            self._break(ChannelLost("the connection to the guest broke"))
        finally:
            self._break(ChannelLost("the channel was closed"))
            await self._stream.aclose()

    async def _write(self) -> None:
        queue = self._outgoing
        try:
            while True:
                while not queue:
                    self._outgoing_ready.clear()
                    await self._outgoing_ready.wait()
                parts, size = self._next_batch()
                if self._gathering is not None and len(parts[-1]) >= _LONG_BYTES:
                    await self._gathering.send_parts((b"".join(parts[:-1]), parts[-1]))
                else:
                    await self._stream.send(parts[0] if len(parts) == 1 else b"".join(parts))
                self._outgoing_bytes -= size
                if self._outgoing_bytes < _HIGH_WATER_BYTES and not self._drained.is_set():
                    self._drained.set()
        except OSError:
            self._break(ChannelLost("the connection to the guest broke"))
        finally:
            self._break(ChannelLost("the channel was closed"))

    def _next_batch(self) -> tuple[list[bytes | memoryview], int]:
        """What to send next, and how many bytes it is: frames that are joined, the last with its payload apart."""
        queue = self._outgoing
        gathers = self._gathering is not None
        parts = [queue.popleft()]
        size = len(parts[0])
        while queue and not (gathers and len(parts[-1]) >= _LONG_BYTES):
            following = len(queue[0])
            if size + following > _BATCH_BYTES and not (gathers and following >= _LONG_BYTES):
                break
            parts.append(queue.popleft())
            size += following
        return parts, size

    def _dispatch(self, kind: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            stream = self._streams.get(stream_id)
            if stream is not None:
                stream.feed(kind, payload)
            elif stream_id > self._last_id:
                raise wire.ProtocolError(f"{wire.NAMES[kind]} for stream {stream_id}, which was never opened")
        elif kind == wire.PING:
            self.enqueue(wire.PONG, 0, payload)
        elif kind == wire.PONG:
            answered = self._pings.get(payload)
            if answered is not None and not answered.done():
                answered.set_result(None)
        elif kind == wire.GOAWAY:
            raise _goaway(payload)

    def _break(self, cause: ChannelLost) -> None:
        """Mark the channel broken, tell everybody, stop both tasks. The first cause stays."""
        if self._cause is not None:
            return
        self._cause = cause
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._drained.set()
        for stream in list(self._streams.values()):
            stream.lose(cause)
        self._streams.clear()
        for answered in self._pings.values():
            if not answered.done():
                answered.set_exception(ChannelLost(str(cause), cause.goaway))
        self._closed.set()
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()


def _immutable(payload: wire.Buffer) -> bytes | memoryview:
    """The payload itself when nobody can change it until it has been sent, else a copy."""
    if isinstance(payload, bytes) or (isinstance(payload, memoryview) and isinstance(payload.obj, bytes)):
        return payload
    return bytes(payload)


def _goaway(payload: bytes) -> ChannelLost:
    reason = wire.decode_json(payload).get("reason")
    reason = reason if isinstance(reason, str) and reason.isascii() and reason.isidentifier() else "UNKNOWN"
    return ChannelLost(f"the guest said good-bye: {reason[:32]}", reason[:32])
