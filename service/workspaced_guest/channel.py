"""A channel: one connection of the server. Handshake, streams, and a bounded queue of what is to be sent."""

from __future__ import annotations

import socket
import sys
from _operator import _compare_digest
from collections import deque

from . import outlet, wire
from .fault import Fault, invalid
from .loop import READ, WRITE
from .receiver import Receiver
from .stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Union

    from .guest import Guest
    from .loop import Timer
    from .receiver import Payload
    from .websocket import WebSocketConnection
    from .wire import Buffer

    Connection = Union[socket.socket, WebSocketConnection]

# Large reads only while they are filled: a large buffer costs page faults.
_READ_BYTES = 64 * 1024
_READ_MORE_BYTES = 256 * 1024
_READS_AT_ONCE = 4
_CONGESTED_BYTES = 1 << 20
# Answers need no credit; a client that never reads and keeps asking is cut off here.
_MAX_QUEUED_BYTES = 64 << 20
_MAX_BUFFERS = 512
_MAX_STREAMS = 8192
_HANDSHAKE_SECONDS = 10.0
_CLOSE_SECONDS = 2.0


class Channel:
    """Owns its socket. Any protocol error ends this channel and nothing else."""

    def __init__(self, guest: Guest, connection: Connection) -> None:
        self.guest = guest
        self.loop = guest.loop
        self.authenticated = False
        self._socket = connection
        # A WebSocket's payloads are unmasked by copying.
        self._scatter = connection.recvmsg_into if isinstance(connection, socket.socket) else None
        self._fd = connection.fileno()
        self._outlet: outlet.Outlet | None = None  # used once the token is proved
        self._receiver = Receiver("client")
        self._streams: dict[int, Stream] = {}
        self._last_stream = 0
        self._queue: deque[Buffer] = deque()
        self._queued = 0
        self._flush_scheduled = False
        self._waiting_writable = False
        self._closing = False
        self._closed = False
        self._read_size = _READ_BYTES
        self._timer: Timer | None = self.loop.call_later(_HANDSHAKE_SECONDS, self.close)
        connection.setblocking(False)
        self.loop.add(self._fd, READ, self._on_ready)

    @property
    def waiting(self) -> bool:
        """Whether it is open and has not proved the token."""
        return not self.authenticated and not self._closed

    @property
    def congested(self) -> bool:
        """Whether so much waits for the socket that nobody should add to it."""
        return self._queued >= _CONGESTED_BYTES

    @property
    def _pipe(self) -> outlet.Outlet | None:
        return self._outlet if self.authenticated else None

    def write(self, kind: int, stream: int, buffers: list[Buffer]) -> None:
        """Queues one frame; it goes out before the loop waits again, together with what else is queued by then."""
        if self._closed or self._closing:
            return
        length = sum(map(len, buffers))
        self._queue.append(wire.HEADER.pack(length, kind, stream))
        self._queue.extend(buffers)
        self._queued += length + wire.HEADER.size
        if self._queued > _MAX_QUEUED_BYTES:
            # Not at once: who writes may be in the middle of something.
            self._closing = True
            self.loop.call_soon(self.close)
            return
        if not self._flush_scheduled and not self._waiting_writable:
            self._flush_scheduled = True
            self.loop.call_soon(self._flush)

    def forget(self, stream_id: int) -> None:
        """The stream has ended."""
        self._streams.pop(stream_id, None)
        self._receiver.trim()

    def reuse(self, payload: Payload) -> None:
        """Takes back what `on_data` was given, from a handler that is done with it; from any thread."""
        self._receiver.reuse(payload)

    def go_away(self, reason: str) -> None:
        """Says GOAWAY and closes as soon as that is sent, or after 2 s."""
        if self._closed or self._closing:
            return
        self.write(wire.GOAWAY, 0, [wire.encode_json({"reason": reason})])
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(_CLOSE_SECONDS, self.close)

    def flush(self) -> None:
        """Sends what the socket takes now."""
        self._flush()

    def close(self) -> None:
        """Ends the channel; its streams end as lost. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.loop.remove(self._fd)
        self._socket.close()
        if self._outlet is not None:
            self._outlet.close()
        self._queue.clear()
        self._queued = 0
        for stream in list(self._streams.values()):
            self._guard(stream, stream.abort, True)
        self._streams.clear()
        self.guest.channel_closed(self)

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        if events & ~WRITE and not self._closed:
            self._receive()

    def _receive(self) -> None:
        for _ in range(_READS_AT_ONCE):
            room = None if self._scatter is None else self._receiver.room()
            data = b""
            try:
                if self._scatter is None or room is None:
                    data = self._recv()
                    count = len(data)
                else:
                    count = self._scatter(room)[0]
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                count = 0
            if not count:
                self.close()
                return
            if room is None:
                self._read_size = _READ_MORE_BYTES if count >= _READ_BYTES else _READ_BYTES
            if self._closing:
                return
            try:
                frames = self._receiver.feed(data) if room is None else self._receiver.received(count)
                for kind, stream_id, payload in frames:
                    self._dispatch(kind, stream_id, payload)
                    if self._closed or self._closing:
                        return
            except wire.ProtocolError:
                self.close()
                return
            # What has filled its place may well have more behind it.
            if room is None or count < sum(map(len, room)):
                return

    def _recv(self) -> bytes:
        if self.authenticated or not isinstance(self._socket, socket.socket):
            return self._socket.recv(self._read_size)
        data, pipe = outlet.receive(self._socket, self._read_size)
        if pipe >= 0:
            if self._outlet is not None:
                self._outlet.close()
            self._outlet = outlet.Outlet(self.loop, pipe, self._flush)
        return data

    def _dispatch(self, kind: int, stream_id: int, payload: Payload) -> None:
        if kind == wire.HELLO:
            self._hello(payload)
        elif kind == wire.PING:
            self.write(wire.PONG, 0, [payload])
        elif kind == wire.OPEN:
            self._open(stream_id, payload)
        elif kind != wire.PONG:
            if stream_id > self._last_stream:
                raise wire.ProtocolError("a frame for a stream never opened")
            stream = self._streams.get(stream_id)
            if stream is not None:
                self._to_stream(stream, kind, payload)

    def _to_stream(self, stream: Stream, kind: int, payload: Payload) -> None:
        if kind == wire.CREDIT:
            self._guard(stream, stream.add_credit, wire.decode_credit(payload))
        elif kind == wire.CANCEL:
            self._guard(stream, stream.abort, False)
        elif stream.ended:
            raise wire.ProtocolError("a frame after END")
        elif kind == wire.END:
            stream.ended = True
            if stream.on_end is not None:
                self._guard(stream, stream.on_end)
        elif stream.receivable <= 0:
            raise wire.ProtocolError("a frame without credit")
        else:
            stream.receivable -= len(payload)
            if kind == wire.DATA:
                if stream.on_data is None:
                    stream.fail(invalid("this operation takes no data"))
                elif payload:
                    self._guard(stream, stream.on_data, payload)
            else:
                message = wire.decode_json(payload)
                stream.grant(len(payload))
                if stream.on_message is None:
                    stream.fail(invalid("this operation takes no messages"))
                else:
                    self._guard(stream, stream.on_message, message)

    def _guard(self, stream: Stream, handler: Callable[..., None], *args: Any) -> None:
        try:
            handler(*args)
        except Fault as fault:
            stream.fail(fault)
        except Exception:  # noqa: BLE001  (reported, and told to the client as INTERNAL)
            sys.excepthook(*sys.exc_info())
            stream.fail(Fault("INTERNAL", "GUEST_ERROR", "the guest failed; its log says why"))

    def _hello(self, payload: Payload) -> None:
        hello = wire.decode_json(payload)
        token = hello.get("token")
        if hello.get("version") != wire.VERSION:
            self.go_away("VERSION")
        elif not isinstance(token, str) or not _compare_digest(
            token.encode("utf-8", "surrogatepass"), self.guest.token.encode()
        ):
            self.go_away("TOKEN")
        elif not self.guest.admit(self):
            self.go_away("LIMIT")
        else:
            self.authenticated = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self.write(wire.HELLO, 0, [wire.encode_json(self.guest.hello())])

    def _open(self, stream_id: int, payload: Payload) -> None:
        if stream_id <= self._last_stream:
            raise wire.ProtocolError("stream ids only grow")
        self._last_stream = stream_id
        request = wire.decode_json(payload)
        operation = request.get("op")
        params = request.get("params", {})
        window = request.get("window", 0)
        if not isinstance(operation, str) or not isinstance(params, dict):
            raise wire.ProtocolError("OPEN without op or params")
        if isinstance(window, bool) or not isinstance(window, int) or not 0 <= window <= wire.MAX_CREDIT:
            raise wire.ProtocolError("OPEN with a bad window")
        stream = Stream(self, stream_id, window)
        self._streams[stream_id] = stream
        self._guard(stream, self._start, operation, stream, params)

    def _start(self, operation: str, stream: Stream, params: dict[str, Any]) -> None:
        if len(self._streams) > _MAX_STREAMS:
            raise Fault("RESOURCE_EXHAUSTED", "LIMIT_REACHED", "too many streams", limit=_MAX_STREAMS)
        self.guest.start_operation(operation, stream, params)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._closed:
            return
        was_congested = self.congested
        pipe = self._pipe
        send = self._socket.sendmsg if pipe is None else pipe.send
        try:
            while self._queue:
                if len(self._queue) <= _MAX_BUFFERS:
                    buffers = list(self._queue)
                else:
                    buffers = [self._queue[index] for index in range(_MAX_BUFFERS)]
                self._sent(send(buffers))
        except (BlockingIOError, InterruptedError):
            self._wait_writable(True)
        except OSError:
            self.close()
            return
        else:
            if self._closing:
                self.close()
                return
            self._wait_writable(False)
        if was_congested and not self.congested:
            for stream in list(self._streams.values()):
                self._guard(stream, stream.wake)

    def _sent(self, count: int) -> None:
        self._queued -= count
        queue = self._queue
        while count:
            size = len(queue[0])
            if count < size:
                queue[0] = memoryview(queue[0])[count:]
                return
            count -= size
            queue.popleft()
        while queue and not len(queue[0]):
            queue.popleft()

    def _wait_writable(self, wanted: bool) -> None:
        pipe = self._pipe
        if pipe is not None:
            self._waiting_writable = wanted
            pipe.wait(wanted)
        elif wanted is not self._waiting_writable:
            self._waiting_writable = wanted
            self.loop.modify(self._fd, READ | WRITE if wanted else READ)
