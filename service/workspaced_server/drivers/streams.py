"""Byte streams over sockets and over the pipes of a program."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
from collections.abc import Sequence
from pathlib import Path

# Without a pause a peer that is always ready would keep the event loop to itself.
_OPERATIONS_PER_TURN = 16
_UNIX_BUFFER_BYTES = 1 << 20


class SocketStream:
    """A connected, non-blocking stream socket; owns it.

    Waits for readiness and then reads at once, so that a cancelled ``receive`` has taken nothing from the socket
    (``loop.sock_recv`` may lose what it read).
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if sock.family == socket.AF_UNIX:
            # What it holds when full bounds how much the two ends do in one turn; the system may allow less.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNIX_BUFFER_BYTES)
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._reading: asyncio.Future[None] | None = None
        self._watching = False
        self._writing: asyncio.Future[None] | None = None
        self._broken: str | None = None
        self._turns = 0

    async def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of ``data``. Raises OSError when the stream is broken. Cancellation breaks the stream."""
        view = memoryview(data).cast("B")
        sent = 0
        try:
            while sent < len(view):
                await self._take_turn()
                try:
                    sent += self._socket.send(view[sent:])
                except (BlockingIOError, InterruptedError):
                    await self._wait_writable()
        except asyncio.CancelledError:
            self._broken = "a send was cancelled in the middle"
            raise
        finally:
            view.release()

    async def send_parts(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send some buffers one after the other, without joining them; else as `send`."""
        await self._take_turn()
        try:
            sent = self._socket.sendmsg(parts)
        except (BlockingIOError, InterruptedError):
            sent = 0
        for part in parts:
            if sent < len(part):
                await self.send(memoryview(part)[sent:])
                sent = 0
            else:
                sent -= len(part)

    async def receive(self, max_bytes: int = 262144) -> bytes:
        """Return 1 to ``max_bytes`` bytes, or ``b""`` at the end. Raises OSError. Cancellation loses nothing."""
        while True:
            await self._take_turn()
            try:
                return self._socket.recv(max_bytes)
            except (BlockingIOError, InterruptedError):
                await self._wait_readable()

    async def aclose(self) -> None:
        """Close both directions. Idempotent; never raises."""
        if self._socket.fileno() < 0:
            return
        self._broken = self._broken or "the stream was closed"
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        for waiter in (self._reading, self._writing):
            _wake(waiter)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    async def _take_turn(self) -> None:
        self._turns += 1
        if self._turns % _OPERATIONS_PER_TURN == 0:
            await asyncio.sleep(0)
        if self._broken is not None:
            raise ConnectionAbortedError(errno.ECONNABORTED, self._broken)

    async def _wait_readable(self) -> None:
        self._reading = self._loop.create_future()
        if not self._watching:
            self._watching = True
            self._loop.add_reader(self._socket, self._on_readable)
        try:
            await self._reading
        finally:
            self._reading = None

    def _on_readable(self) -> None:
        # A reader that comes back each time is watched for all along, which saves it two calls a time.
        if self._reading is None:
            self._watching = False
            self._loop.remove_reader(self._socket)
        else:
            _wake(self._reading)

    async def _wait_writable(self) -> None:
        self._writing = self._loop.create_future()
        self._loop.add_writer(self._socket, _wake, self._writing)
        try:
            await self._writing
        finally:
            if self._socket.fileno() >= 0:
                self._loop.remove_writer(self._socket)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


async def connect_unix(path: Path) -> SocketStream:
    """Connect to the Unix socket at ``path``, which may be of any length and has to be a socket itself, not a link.

    What lies behind a link would be chosen by whoever can write to the directory. Raises OSError: FileNotFoundError
    when there is none, ConnectionRefusedError when nobody listens.
    """
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        target = os.open(path.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    finally:
        os.close(directory)
    try:
        if not stat.S_ISSOCK(os.fstat(target).st_mode):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "not a socket", str(path))
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await _connect(sock, f"/proc/self/fd/{target}")
        except BaseException:
            sock.close()
            raise
    finally:
        os.close(target)
    return SocketStream(sock)


async def _connect(sock: socket.socket, address: str) -> None:
    # A full backlog is EAGAIN on a Unix socket, and nothing tells when there is room.
    for delay in (0.005, 0.02, 0.1, 0.5, None):
        try:
            sock.connect(address)
        except BlockingIOError:
            if delay is None:
                raise
            await asyncio.sleep(delay)
        else:
            return


class TransportStream:
    """A byte stream over a pair of asyncio streams: TLS, or the standard streams of a program."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._broken: str | None = None

    async def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of ``data``. Raises OSError when the stream is broken. Cancellation breaks the stream."""
        if self._broken is not None or self._writer.is_closing():
            raise ConnectionAbortedError(errno.ECONNABORTED, self._broken or "the stream was closed")
        self._writer.write(bytes(data))
        try:
            await self._writer.drain()
        except asyncio.CancelledError:
            self._broken = "a send was cancelled in the middle"
            raise

    async def receive(self, max_bytes: int = 262144) -> bytes:
        """Return 1 to ``max_bytes`` bytes, or ``b""`` at the end. Raises OSError. Cancellation loses nothing."""
        return await self._reader.read(max_bytes)

    async def aclose(self) -> None:
        """Close both directions. Idempotent; never raises."""
        self._broken = self._broken or "the stream was closed"
        self._writer.close()
        closed = asyncio.ensure_future(self._writer.wait_closed())
        closed.add_done_callback(_take_outcome)
        # What the peer makes of the end is of no interest any more. Shielded, since a cancellation would reach a future
        # of asyncio's subprocess protocol, which sets it later.
        with contextlib.suppress(OSError):
            await asyncio.shield(closed)


def _take_outcome(closed: asyncio.Future[None]) -> None:
    if not closed.cancelled():
        closed.exception()
