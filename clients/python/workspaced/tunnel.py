"""Byte streams to ports inside a workspace."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from . import errors
from .connection import Connection
from .first_status import FirstStatus, leave
from .v1 import port_pb2

if TYPE_CHECKING:
    from typing_extensions import Self

CHUNK_BYTES = 256 << 10
_CLOSED = "the tunnel is closed"
_Result = TypeVar("_Result")


class Tunnel:
    """A TCP connection to a port inside a workspace, made by ``Workspace.tunnel``. Use it as a context manager.

    A tunnel is not resumed: a broken connection is :class:`Unavailable`, as with any socket.
    """

    def __init__(self, connection: Connection, workspace_id: str, port: int, host: str) -> None:
        self._connection = connection
        self._open = port_pb2.TunnelOpen(workspace_id=workspace_id, host=host, port=port)
        self._call: grpc.aio.StreamStreamCall[port_pb2.TunnelRequest, port_pb2.TunnelResponse] | None = None
        self._status: FirstStatus
        self._ended = False

    async def __aenter__(self) -> Self:
        """Connect. Raises :class:`PortRefused` when nothing listens."""
        call = self._connection.ports.Tunnel(metadata=self._connection.metadata)
        self._call, self._status = call, FirstStatus(call)
        with contextlib.suppress(asyncio.InvalidStateError):
            await self._outcome(call.write(port_pb2.TunnelRequest(open=self._open)))
        response = await self._outcome(call.read())
        if response is not grpc.aio.EOF:
            self._connection.heard(call)
        if not isinstance(response, port_pb2.TunnelResponse) or response.WhichOneof("part") != "opened":
            leave(call)
            raise errors.Internal("the tunnel did not begin with `opened`", reason="STREAM_DISORDERED")
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close both directions at once. Idempotent."""
        if self._call is not None:
            leave(self._call)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        data = await self.receive()
        if not data:
            raise StopAsyncIteration
        return data

    async def receive(self) -> bytes:
        """The next bytes; empty when the other side has closed. Cancellation closes the tunnel."""
        call = self._connected()
        if self._ended:
            return b""
        while True:
            response = await self._outcome(call.read())
            if not isinstance(response, port_pb2.TunnelResponse) or response.WhichOneof("part") == "half_closed":
                self._ended = True
                return b""
            if response.data:
                return response.data

    async def send(self, data: bytes) -> None:
        """Send bytes. Waits while the other side does not read. Cancellation closes the tunnel."""
        call = self._connected()
        view = memoryview(data)
        try:
            for start in range(0, len(view), CHUNK_BYTES):
                await self._outcome(call.write(port_pb2.TunnelRequest(data=bytes(view[start : start + CHUNK_BYTES]))))
        except asyncio.InvalidStateError:
            raise errors.Unavailable(_CLOSED) from None

    async def send_eof(self) -> None:
        """Close this direction: the other side reads its end. Receiving goes on."""
        with contextlib.suppress(asyncio.InvalidStateError):  # already closed as a whole
            await self._outcome(self._connected().done_writing())

    async def _outcome(self, operation: Coroutine[Any, Any, _Result]) -> _Result:
        """What an operation on the call gives. Its cancellation closes the tunnel.

        In a task of its own: a read that is cancelled before the call's headers have come ends with a cancellation
        that grpc.aio made itself, by which anyio does not know its scope; and one that was under way when the tunnel
        was closed ends so too, though nobody cancelled the reader.
        """
        task = asyncio.ensure_future(operation)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.add_done_callback(_retrieve)
            await self.aclose()
            raise
        if task.cancelled():
            raise errors.Unavailable(_CLOSED)
        try:
            return task.result()
        except grpc.aio.AioRpcError as error:
            raise await self._status.error(error) from None

    def _connected(self) -> grpc.aio.StreamStreamCall[port_pb2.TunnelRequest, port_pb2.TunnelResponse]:
        if self._call is None:
            raise RuntimeError("a tunnel connects when its context is entered")
        return self._call


class Forward:
    """A local TCP port that leads to a port inside a workspace, made by ``Workspace.forward``. A context manager."""

    def __init__(
        self, connection: Connection, workspace_id: str, port: int, host: str, local_port: int, local_host: str
    ) -> None:
        self._connection = connection
        self._workspace_id = workspace_id
        self._port = port
        self._host = host
        self._local = (local_host, local_port)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Listen. Raises :class:`OSError` when the local port is taken."""
        self._connection.open()
        self._server = await asyncio.start_server(self._accept, *self._local, limit=CHUNK_BYTES)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop listening and close every connection. Idempotent."""
        if self._server is not None:
            self._server.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @property
    def local_port(self) -> int:
        """The local port that listens."""
        if self._server is None or not self._server.sockets:
            raise RuntimeError("not listening")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with Tunnel(self._connection, self._workspace_id, self._port, self._host) as tunnel:
                outward = asyncio.create_task(_outward(reader, tunnel))
                try:
                    async for data in tunnel:
                        writer.write(data)
                        await writer.drain()
                    if writer.can_write_eof():
                        writer.write_eof()
                    await outward
                finally:
                    outward.cancel()
                    await asyncio.wait([outward])
        except (errors.WorkspacedError, OSError):
            writer.transport.abort()  # a reset is how TCP says that the other end failed
        finally:
            writer.close()


def _retrieve(task: asyncio.Future[Any]) -> None:
    """Nobody waits for this any more."""
    if not task.cancelled():
        task.exception()


async def _outward(reader: asyncio.StreamReader, tunnel: Tunnel) -> None:
    while data := await reader.read(CHUNK_BYTES):
        await tunnel.send(data)
    await tunnel.send_eof()
