"""MCP over HTTP, by an HTTP client whose connections start inside the workspace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import anyio
import httpcore2
import httpx2
from mcp.client.streamable_http import streamable_http_client

from workspaced.v1 import mcp_pb2
from workspaced_server.mcps.dial import WorkspaceNetwork
from workspaced_server.mcps.failures import McpFailure
from workspaced_server.mcps.pace import Pace
from workspaced_server.mcps.sse import sse_streams

if TYPE_CHECKING:
    import ssl

    from mcp.shared.message import SessionMessage

    from workspaced_server.guest.channel import GuestChannel

_MAX_CONNECTIONS = 100
_KEEPALIVE_SECONDS = 60.0


class _TooLarge(httpx2.StreamError):
    """A body is larger than a message may be."""


class GuestTransport(httpx2.AsyncHTTPTransport):
    """Sends requests by the network of a workspace. ``on_refusal`` is told the status of answers that are
    errors, and whether the request named a session."""

    def __init__(
        self, guest: GuestChannel, context: ssl.SSLContext, max_bytes: int, on_refusal: Callable[[int, bool], None]
    ) -> None:
        super().__init__(verify=context, trust_env=False)
        # The class takes no network of its own, its pool does.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=_MAX_CONNECTIONS,
            max_keepalive_connections=_MAX_CONNECTIONS,
            keepalive_expiry=_KEEPALIVE_SECONDS,
            network_backend=WorkspaceNetwork(guest),
        )
        self._max_bytes = max_bytes
        self._on_refusal = on_refusal

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send, and bound what comes back. Event streams are bounded event by event, by who reads them."""
        response = await super().handle_async_request(request)
        if response.status_code >= 400:
            self._on_refusal(response.status_code, "mcp-session-id" in request.headers)
        if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            # It was asked not to; a few bytes could expand to anything.
            await response.aclose()
            raise httpx2.DecodingError("the server compresses what it was asked to send as it is", request=request)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Bounded(response.stream, self._max_bytes)
        return response


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._stream:
            size += len(part)
            if size > self._max_bytes:
                raise _TooLarge(f"the answer has more than {self._max_bytes} bytes")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


class WatchedReader:
    """A read stream that tells when it has ended."""

    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._pace = Pace()
        self.ended = ended

    @property
    def last_context(self) -> Any:
        """The context of who sent the last message, which the SDK looks for."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        message: SessionMessage | Exception = await self._stream.receive()
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        await self._pace.turn()
        try:
            message: SessionMessage | Exception = await anext(self._stream)
        except (StopAsyncIteration, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self.ended.set()
            raise StopAsyncIteration from None
        return message

    async def aclose(self) -> None:
        """Close it."""
        self.ended.set()
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> None:
        self.ended.set()
        await self._stream.__aexit__(*details)


class Trust:
    """Which certificates are trusted: the system's, and those of the configured file. Read at the first use."""

    def __init__(self, ca_file: Path | None) -> None:
        self._ca_file = ca_file
        self._context: ssl.SSLContext | None = None

    async def context(self) -> ssl.SSLContext:
        """The context for connections. Raises McpFailure when the file cannot be used."""
        if self._context is None:
            try:
                self._context = await asyncio.to_thread(self._load)
            except OSError as error:
                raise McpFailure("MCP_CONNECT_FAILED", "the server's own ca_file cannot be read") from error
        return self._context

    def _load(self) -> ssl.SSLContext:
        context = httpx2.create_ssl_context()
        if self._ca_file is not None:
            context.load_verify_locations(self._ca_file)
        return context


async def open_http(
    stack: AsyncExitStack,
    guest: GuestChannel,
    http: mcp_pb2.McpHttp,
    context: ssl.SSLContext,
    max_bytes: int,
    on_refusal: Callable[[int, bool], None],
    on_failure: Callable[[McpFailure], None],
) -> tuple[Any, Any]:
    """Open the transport within the stack, and return its streams; the first has an event ``ended``.

    Raises McpFailure, httpx2.HTTPError, also out of the stack.
    """
    client = httpx2.AsyncClient(
        transport=GuestTransport(guest, context, max_bytes, on_refusal),
        headers={**http.headers, "Accept-Encoding": "identity"},
        timeout=None,  # how long it may take is the caller's to say
        trust_env=False,
    )
    await stack.enter_async_context(client)
    if http.kind == mcp_pb2.MCP_HTTP_KIND_SSE:
        return await stack.enter_async_context(sse_streams(client, http.url, max_bytes, on_failure))
    reader, writer = await stack.enter_async_context(
        streamable_http_client(http.url, http_client=client, max_sse_event_size=max_bytes)
    )
    return WatchedReader(reader, asyncio.Event()), writer
