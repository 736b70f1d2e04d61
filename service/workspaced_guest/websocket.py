"""A channel over WebSocket: binary messages carry the bytes of the frames, cut wherever the sender likes.

Loaded only with `--listen`. The protocol itself is `websockets`, which the bundle carries along.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from http import HTTPStatus

from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from .loop import WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .loop import Loop
    from .wire import Buffer

PATH = "/v1/channel"
# Of what a client sends; the guest's own messages have at most 256 KiB.
MAX_MESSAGE = 1 << 20
_MAX_SENT = 256 * 1024
# Answers to pings that wait for a client which does not read; with more it is cut off.
_MAX_WAITING = 64


def listen(address: str) -> socket.socket:
    """A listening TCP socket at `HOST:PORT` or `[IPV6]:PORT`. Raises ValueError, OSError."""
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"--listen {address}: HOST:PORT is needed")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, int(port)))
        listening.listen(64)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"--listen {address}: {error.strerror}") from None
    return listening


def shown(listening: socket.socket) -> str:
    """The address that `listen` got, with the port that the kernel chose for 0."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class WebSocketConnection:
    """What a `Channel` needs of a non-blocking socket, spoken as WebSocket by the server's side. Owns the socket."""

    def __init__(self, loop: Loop, connection: socket.socket) -> None:
        self._loop = loop
        self._socket = connection
        self._protocol = ServerProtocol(max_size=MAX_MESSAGE)
        self._answered = False
        self._binary = False
        self._outgoing: deque[memoryview] = deque()
        # Bytes of a message that is not wholly sent: they count as sent when it is, so that the channel waits.
        self._in_flight = 0
        self._watched = -1
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A client whose machine has gone says nothing more, and channels are few.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
            connection.setsockopt(socket.IPPROTO_TCP, option, seconds)

    def fileno(self) -> int:
        """The socket's."""
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def recv(self, size: int) -> bytes:
        """What came in binary messages, `b""` at the end. Raises BlockingIOError when that is nothing yet, OSError."""
        data = self._socket.recv(size)
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        if not self._answered and data:
            self._shake_hands()
        payload = b"".join(self._payloads())
        ended = self._take_outgoing()
        if not self._push():
            if len(self._outgoing) > _MAX_WAITING:
                raise ConnectionAbortedError("the client floods and does not read")
            if not self._in_flight:
                self._watch()
        if ended and payload:
            # The end is found by the next read.
            self._socket.shutdown(socket.SHUT_RD)
        if payload or ended or not data:
            return payload
        raise BlockingIOError

    def sendmsg(self, buffers: list[Buffer]) -> int:
        """Sends a message of the first 256 KiB; returns their number when the kernel has all of it.

        Raises BlockingIOError until then: call again with the same bytes at the front. Raises OSError.
        """
        if not self._in_flight:
            content = _front(buffers)
            try:
                self._protocol.send_binary(content)
            except InvalidState:
                raise ConnectionAbortedError("the connection is closing") from None
            self._take_outgoing()
            self._in_flight = len(content)
        if not self._push():
            raise BlockingIOError
        sent, self._in_flight = self._in_flight, 0
        return sent

    def close(self) -> None:
        """Says that it goes, as far as that can be said at once, and closes."""
        try:
            if self._protocol.state is OPEN:
                self._protocol.send_close(CloseCode.GOING_AWAY)
                self._take_outgoing()
                self._push()
        except OSError:
            # Nobody is there to hear it.
            self._outgoing.clear()
        self._unwatch()
        self._socket.close()

    def _shake_hands(self) -> None:
        protocol = self._protocol
        events = protocol.events_received()
        if protocol.handshake_exc is not None:
            response = protocol.reject(HTTPStatus.BAD_REQUEST, "This is no WebSocket handshake.\n")
            self._outgoing.append(memoryview(response.serialize()))
            self._answered = True
            return
        if not events:
            return
        (request, *early) = events
        if not isinstance(request, Request) or early or protocol.data_to_send():
            raise ConnectionAbortedError("a client waits for the answer to its handshake")
        if request.path.partition("?")[0] == PATH:
            response = protocol.accept(request)
        else:
            response = protocol.reject(HTTPStatus.NOT_FOUND, f"Channels are at {PATH}.\n")
        protocol.send_response(response)
        self._answered = True

    def _payloads(self) -> list[bytes]:
        payloads: list[bytes] = []
        for event in self._protocol.events_received():
            if not isinstance(event, Frame):
                continue
            if event.opcode in (Opcode.BINARY, Opcode.TEXT):
                self._binary = event.opcode is Opcode.BINARY
            elif event.opcode is not Opcode.CONT:
                continue
            if not self._binary:
                self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "only binary messages")
                break
            payloads.append(bytes(event.data))
        return payloads

    def _take_outgoing(self) -> bool:
        """Moves what the protocol wants to send to the queue; True when that is the end."""
        ended = False
        for data in self._protocol.data_to_send():
            if data:
                self._outgoing.append(memoryview(data))
            else:
                ended = True
        return ended

    def _push(self) -> bool:
        """Sends what the socket takes; True when nothing is left. Raises OSError."""
        outgoing = self._outgoing
        while outgoing:
            try:
                sent = self._socket.send(outgoing[0])
            except (BlockingIOError, InterruptedError):
                return False
            if sent < len(outgoing[0]):
                outgoing[0] = outgoing[0][sent:]
            else:
                outgoing.popleft()
        return True

    def _watch(self) -> None:
        # The channel waits for the socket only when it has something to send itself.
        if self._watched < 0:
            self._watched = os.dup(self._socket.fileno())
            os.set_inheritable(self._watched, False)
            self._loop.add(self._watched, WRITE, self._on_writable)

    def _unwatch(self) -> None:
        if self._watched >= 0:
            self._loop.remove(self._watched)
            os.close(self._watched)
            self._watched = -1

    def _on_writable(self, events: int) -> None:
        try:
            if not self._push():
                return
        except OSError:
            # The channel reads the same error.
            self._outgoing.clear()
        self._unwatch()


def _front(buffers: list[Buffer]) -> bytes:
    parts: list[Buffer] = []
    room = _MAX_SENT
    for buffer in buffers:
        if len(buffer) >= room:
            parts.append(memoryview(buffer)[:room])
            break
        parts.append(buffer)
        room -= len(buffer)
    return b"".join(parts)
