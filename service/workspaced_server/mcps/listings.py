"""What a server offers: tools, resources and prompts, read once for all who ask, and again when the server says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND

from workspaced_server.mcps.failures import McpFailure

if TYPE_CHECKING:
    from workspaced_server.mcps.connection import Connection

T = TypeVar("T")
_MAX_ITEMS = 5000
_MAX_PAGES = 500
_MAX_BYTES = 32 << 20
# A server that does not say when its list changes is asked again after so long.
_FRESH_SECONDS = 10.0
_LONGEST_PAUSE_SECONDS = 300.0


class Listing(Generic[T]):
    """One of the lists. ``read`` asks the server for all of it.

    When the server has let its time pass, whoever asks is told so at once for twice that time, then four times, and so
    on: it costs its ``call_timeout`` once, not at each call.
    """

    def __init__(self, read: Callable[[], Awaitable[list[T]]], fresh_seconds: float) -> None:
        self.value: list[T] | None = None
        self.announced = False  # the server says when it changes
        self._read = read
        self._fresh_seconds = fresh_seconds
        self._at = 0.0
        self._task: asyncio.Task[list[T]] | None = None
        self._began = 0.0
        self._late: McpFailure | None = None
        self._lates = 0
        self._pause_ends = 0.0

    @property
    def current(self) -> list[T] | None:
        """The list when it needs no reading."""
        fresh = self.announced or time.monotonic() - self._at < self._fresh_seconds
        return self.value if fresh else None

    @property
    def age(self) -> float:
        """For how many seconds it has been read now; 0 when it is not."""
        return time.monotonic() - self._began if self._task is not None else 0.0

    def forget(self) -> None:
        """What is known is old."""
        self._at = float("-inf")
        self.value = None
        self._late, self._lates = None, 0
        if self._task is not None:
            # What it reads may be from before; its waiters still get it.
            self._task = None

    async def load(self) -> list[T]:
        """The list, read if need be; concurrent callers share one reading, which goes on without them.

        Raises McpFailure.
        """
        if (known := self.current) is not None:
            return known
        if self._task is None:
            if self._late is not None and time.monotonic() < self._pause_ends:
                raise McpFailure(self._late.reason, self._late.message)
            self._began = time.monotonic()
            self._task = asyncio.create_task(self._load())
            self._task.add_done_callback(_retrieved)
        return await asyncio.shield(self._task)

    def close(self) -> None:
        """End a reading."""
        if self._task is not None:
            self._task.cancel()

    async def _load(self) -> list[T]:
        me = asyncio.current_task()
        try:
            found = await self._read()
            if self._task is me:
                self.value, self._at = found, time.monotonic()
                self._late, self._lates = None, 0
            return found
        except McpFailure as failure:
            if self._task is me and failure.reason == "MCP_TIMEOUT":
                now = time.monotonic()
                self._late, self._lates = failure, self._lates + 1
                pause = (now - self._began) * 2 ** min(self._lates, 16)
                self._pause_ends = now + min(pause, _LONGEST_PAUSE_SECONDS)
            raise
        finally:
            if self._task is me:
                self._task = None


class Listings:
    """The three lists of one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session: ClientSession | None = None
        self.tools: Listing[types.Tool] = Listing(self._read_tools, _FRESH_SECONDS)
        self.resources: Listing[types.Resource | types.ResourceTemplate] = Listing(self._read_resources, 0)
        self.prompts: Listing[types.Prompt] = Listing(self._read_prompts, 0)

    def begin(self, session: ClientSession) -> None:
        """The session has agreed on a version."""
        self._session = session
        able = self.capabilities
        self.tools.announced = bool(able.tools and able.tools.list_changed)
        self.resources.announced = bool(able.resources and able.resources.list_changed)
        self.prompts.announced = bool(able.prompts and able.prompts.list_changed)
        if session.discover_result is not None:
            # These versions tell only subscribers.
            self.tools.announced = self.resources.announced = self.prompts.announced = False

    @property
    def capabilities(self) -> types.ServerCapabilities:
        """What the server says that it can do."""
        found = self._session.server_capabilities if self._session is not None else None
        return found or types.ServerCapabilities()

    @property
    def age(self) -> float:
        """For how many seconds the longest reading lasts."""
        return max(self.tools.age, self.resources.age, self.prompts.age)

    @property
    def session(self) -> ClientSession:
        """The session of the connection."""
        assert self._session is not None
        return self._session

    def close(self) -> None:
        """End what is being read."""
        for listing in (self.tools, self.resources, self.prompts):
            listing.close()

    async def _read_tools(self) -> list[types.Tool]:
        if self.capabilities.tools is None:
            return []
        return await self._pages(lambda params: self.session.list_tools(params=params), "tools")

    async def _read_resources(self) -> list[types.Resource | types.ResourceTemplate]:
        if self.capabilities.resources is None:
            return []
        found: list[types.Resource | types.ResourceTemplate] = []
        found += await self._pages(lambda params: self.session.list_resources(params=params), "resources")
        try:
            found += await self._pages(
                lambda params: self.session.list_resource_templates(params=params), "resource_templates"
            )
        except MCPError as error:
            if error.code != METHOD_NOT_FOUND:  # a server need not have templates
                raise
        return found

    async def _read_prompts(self) -> list[types.Prompt]:
        if self.capabilities.prompts is None:
            return []
        return await self._pages(lambda params: self.session.list_prompts(params=params), "prompts")

    async def _pages(self, ask: Callable[[Any], Awaitable[Any]], field: str) -> list[Any]:
        found: list[Any] = []
        cursor: str | None = None
        size = 0
        for _ in range(_MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
            page = await self._connection.request(ask(params))
            found += getattr(page, field)
            cursor = page.next_cursor
            size += len(page.model_dump_json()) if cursor or size else 0
            if len(found) > _MAX_ITEMS or size > _MAX_BYTES:
                break
            if not cursor:
                return found
        raise McpFailure("MCP_PROTOCOL_ERROR", f"its list of {field} has no end")


def _retrieved(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
