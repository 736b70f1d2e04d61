"""A Docker engine at a TCP address: forwards to the engine's Unix socket, so that nothing but bytes is shared.

async with engine_proxy() as proxy:
    DockerConfig(..., host=proxy.address)

With a directory it speaks TLS, asks for a client's certificate, and puts what ``DOCKER_CERT_PATH`` has to hold there.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trustme


def engine_socket() -> str:
    """The Unix socket of the engine that the tests use."""
    return os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")


@dataclass
class EngineProxy:
    """``address`` is for ``DOCKER_HOST``; `cut` breaks every connection there is."""

    address: str
    connections: list[asyncio.StreamWriter] = field(default_factory=list)

    def cut(self) -> None:
        """Break what is connected now; new connections work."""
        for writer in self.connections:
            writer.transport.abort()
        self.connections.clear()


@asynccontextmanager
async def engine_proxy(tls_directory: Path | None = None) -> AsyncIterator[EngineProxy]:
    """Listens on a free port of the loopback interface."""
    context = None if tls_directory is None else _tls(tls_directory)
    proxy = EngineProxy("")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        engine_reader, engine_writer = await asyncio.open_unix_connection(engine_socket())
        proxy.connections += [writer, engine_writer]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, engine_writer))
                group.create_task(_pump(engine_reader, writer))
        finally:
            for ended in (writer, engine_writer):
                # One that was closed twice can't be aborted any more: Python 3.11.2 fails.
                if ended in proxy.connections:
                    proxy.connections.remove(ended)
                ended.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    host, port = server.sockets[0].getsockname()
    proxy.address = f"tcp://{host}:{port}"
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


def _tls(directory: Path) -> ssl.SSLContext:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    client = authority.issue_cert("client.example")
    client.private_key_pem.write_to_path(str(directory / "key.pem"))
    client.cert_chain_pems[0].write_to_path(str(directory / "cert.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.transport.abort()
