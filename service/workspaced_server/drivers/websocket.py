"""A byte stream over WebSocket: what the guests of remote providers are reached by."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping

from websockets.asyncio import client
from websockets.exceptions import (
    ConnectionClosed,
    ConnectionClosedOK,
    InvalidHandshake,
    InvalidStatus,
    InvalidURI,
)

# A message may come in one piece from somebody else's proxy; the guest's have at most 256 KiB.
_MAX_MESSAGE = 1 << 20
_MAX_SENT = 256 * 1024
# Messages that were received and nobody has asked for; past these the socket is not read.
_MAX_QUEUED = 4
_PING_SECONDS = 20
_CLOSE_SECONDS = 2


class WebSocketRefused(ConnectionError):
    """The other side answered the handshake by something else than a WebSocket; ``status`` is HTTP's, 0 without one."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(errno.ECONNREFUSED, message)
        self.status = status


class _Connect(client.connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        # Headers hold credentials, which are for the host that was named and for no other.
        return exc


class WebSocketStream:
    """The bytes of binary messages, whatever their borders; owns the connection."""

    def __init__(self, connection: client.ClientConnection) -> None:
        self._connection = connection
        self._rest = memoryview(b"")
        self._broken: str | None = None

    async def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of ``data``. Raises OSError when the stream is broken. Cancellation breaks the stream."""
        if self._broken is not None:
            raise ConnectionAbortedError(errno.ECONNABORTED, self._broken)
        view = memoryview(data).cast("B")
        try:
            for start in range(0, len(view), _MAX_SENT):
                await self._connection.send(bytes(view[start : start + _MAX_SENT]))
        except ConnectionClosed as error:
            raise _reset(error) from error
        except asyncio.CancelledError:
            self._broken = "a send was cancelled in the middle"
            raise

    async def receive(self, max_bytes: int = 262144) -> bytes:
        """Return 1 to ``max_bytes`` bytes, or ``b""`` at the end. Raises OSError. Cancellation loses nothing."""
        while not self._rest:
            if self._broken is not None:
                raise ConnectionAbortedError(errno.ECONNABORTED, self._broken)
            try:
                message = await self._connection.recv()
            except ConnectionClosedOK:
                return b""
            except ConnectionClosed as error:
                raise _reset(error) from error
            if isinstance(message, str):
                self._broken = "the other side sent text"
                continue
            self._rest = memoryview(message)
        data, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return bytes(data)

    async def aclose(self) -> None:
        """Close both directions, after 2 s at the latest. Idempotent; never raises."""
        self._broken = self._broken or "the stream was closed"
        try:
            await self._connection.close()
        finally:
            # Nothing is left behind when the closing handshake was cancelled.
            self._connection.transport.abort()


async def connect(url: str, headers: Mapping[str, str] | None = None, *, timeout: float = 10) -> WebSocketStream:
    """Connect to ``ws://`` or ``wss://``, with ``headers`` in the handshake; redirects are not followed.

    Without compression: what the guest says is small, or is compressed already. The connection is pinged every 20 s.
    Raises WebSocketRefused when something else answers, OSError when nobody does (TimeoutError after ``timeout``
    seconds), ValueError for a bad URL.
    """
    try:
        connection = await _Connect(
            url,
            additional_headers=dict(headers or {}),
            compression=None,
            open_timeout=timeout,
            ping_interval=_PING_SECONDS,
            ping_timeout=_PING_SECONDS,
            close_timeout=_CLOSE_SECONDS,
            max_size=_MAX_MESSAGE,
            max_queue=_MAX_QUEUED,
        )
    except InvalidStatus as error:
        status = error.response.status_code
        raise WebSocketRefused(status, f"the handshake was answered with HTTP status {status}") from None
    except InvalidURI:
        raise ValueError(f"no WebSocket URL: {url.partition('?')[0]}") from None
    except InvalidHandshake as error:
        raise WebSocketRefused(0, f"the handshake failed: {error}") from None
    except EOFError as error:
        raise ConnectionResetError(errno.ECONNRESET, "the connection ended during the handshake") from error
    return WebSocketStream(connection)


def _reset(error: ConnectionClosed) -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, f"the WebSocket broke: {error}")
