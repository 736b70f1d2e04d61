"""MCP over HTTP with server-sent events, the older transport: one stream of events, and a request for each message.

The SDK's own client bounds an event to 1 MiB, and leaves a call waiting for ever when its message was refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self

import anyio
import httpx2
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from workspaced_server.mcps.failures import McpFailure
from workspaced_server.mcps.messages import message_of
from workspaced_server.mcps.pace import Pace

_HEADERS = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
OnFailure = Callable[[McpFailure], None]


class SseReader:
    """The read half: messages from the events. It ends with the stream; ``failure`` says why when it broke."""

    def __init__(self, events: httpx2.EventSource) -> None:
        self.ended = asyncio.Event()
        self.failure: McpFailure | None = None
        self._events = aiter(events)
        self._pace = Pace()

    async def endpoint(self, url: httpx2.URL) -> httpx2.URL:
        """Where messages go, which is the first event. Raises McpFailure, httpx2.HTTPError."""
        try:
            async for event in self._events:
                if event.event == "endpoint":
                    target = url.join(event.data.strip())
                    if (target.scheme, target.host, target.port) != (url.scheme, url.host, url.port):
                        raise McpFailure("MCP_PROTOCOL_ERROR", "it sends messages to another origin than its own")
                    return target
        except (httpx2.SSEError, httpx2.InvalidURL) as error:
            raise McpFailure("MCP_PROTOCOL_ERROR", f"it does not speak this transport: {error}") from error
        raise McpFailure("MCP_PROTOCOL_ERROR", "it ended its events before the first")

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        await self._pace.turn()
        while not self.ended.is_set():
            try:
                event = await anext(self._events)
                if event.event == "message" and event.data:
                    self._pace.taken()
                    return SessionMessage(message_of(event.data.encode("utf-8", "replace")))
            except StopAsyncIteration:
                self.failure = McpFailure("MCP_CRASHED", "it closed the connection")
            except ValidationError:
                self.failure = McpFailure("MCP_PROTOCOL_ERROR", "it sent an event that is no JSON-RPC message")
            except httpx2.SSEError as error:
                self.failure = McpFailure("MCP_PROTOCOL_ERROR", f"its events cannot be read: {error}")
            except httpx2.HTTPError as error:
                self.failure = McpFailure("MCP_CRASHED", f"the connection broke: {error}")
            if self.failure is not None:
                self.ended.set()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """No more is read."""
        self.ended.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class SseWriter:
    """The write half: a POST for each message. ``on_failure`` is told when one is not accepted."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: httpx2.URL, on_failure: OnFailure) -> None:
        self._client = client
        self._endpoint = endpoint
        self._on_failure = on_failure

    async def send(self, item: SessionMessage) -> None:
        """Send one message. Raises BrokenResourceError when it was not accepted."""
        data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        try:
            response = await self._client.post(
                self._endpoint, content=data, headers={"Content-Type": "application/json"}
            )
        except httpx2.HTTPError as error:
            self._on_failure(McpFailure("MCP_CONNECT_FAILED", f"it cannot be reached: {error}"))
            raise anyio.BrokenResourceError from error
        if not response.is_success:
            self._on_failure(McpFailure("MCP_CONNECT_FAILED", f"it answered HTTP {response.status_code}"))
            raise anyio.BrokenResourceError

    async def aclose(self) -> None:
        """Nothing is kept open."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


@asynccontextmanager
async def sse_streams(
    client: httpx2.AsyncClient, url: str, max_bytes: int, on_failure: OnFailure
) -> AsyncIterator[tuple[SseReader, SseWriter]]:
    """Both halves. Raises McpFailure, httpx2.HTTPError."""
    async with client.stream("GET", url, headers=_HEADERS) as response:
        if not response.is_success:
            raise McpFailure("MCP_CONNECT_FAILED", f"it answered HTTP {response.status_code}")
        reader = SseReader(httpx2.EventSource(response, max_event_size=max_bytes))
        endpoint = await reader.endpoint(httpx2.URL(url))
        yield reader, SseWriter(client, endpoint, on_failure)
