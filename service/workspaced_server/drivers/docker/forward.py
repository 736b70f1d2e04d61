"""A local socket that leads to an engine behind ``ssh``, since the SDK's own way needs another SSH implementation."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from workspaced_server.drivers.base import ByteStream

_BYTES = 65536


class Forward:
    """Each connection to ``socket`` gets a stream of its own from ``dial``.

    The socket's directory is closed to other users.
    """

    def __init__(self, dial: Callable[[], Awaitable[ByteStream]]) -> None:
        self._dial = dial
        self._directory = Path(tempfile.mkdtemp(prefix="workspaced-"))
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self._directory / "engine.sock"

    async def start(self) -> None:
        """Listen. Raises OSError."""
        self._server = await asyncio.start_unix_server(self._connected, self.socket)

    async def aclose(self) -> None:
        """Break all connections and remove the socket."""
        if self._server is not None:
            self._server.close()
        connections = dict(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        for writer in connections.values():
            await _close(writer)  # a task that was cancelled before it ran has closed nothing
        shutil.rmtree(self._directory, ignore_errors=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far = await self._dial()
        except OSError:
            # The client sees a connection that ends without an answer.
            await _close(writer)
            return
        except BaseException:
            await _close(writer)
            raise
        up = asyncio.create_task(_up(reader, far))
        try:
            with contextlib.suppress(OSError):
                while data := await far.receive(_BYTES):
                    writer.write(data)
                    await writer.drain()
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)
            await far.aclose()
            await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _up(reader: asyncio.StreamReader, far: ByteStream) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_BYTES):
            await far.send(data)
    await far.aclose()
