"""One MCP server of one agent and session: not running, starting, running or failed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from workspaced.v1 import mcp_pb2
from workspaced_server.errors import WorkspacedError
from workspaced_server.mcps import failures
from workspaced_server.mcps.failures import McpFailure
from workspaced_server.mcps.place import Place
from workspaced_server.partitions import Pair
from workspaced_server.workspaces.record import now_us

if TYPE_CHECKING:
    import mcp_types as types

    from workspaced_server.mcps.connection import Connection
    from workspaced_server.mcps.declarations import Declaration
    from workspaced_server.mcps.settings import McpSettings

_log = structlog.stdlib.get_logger("workspaced.mcps")

Connect = Callable[["Declaration", Place], "Connection"]


@dataclass(frozen=True, slots=True)
class InstanceKey:
    """Whose instance it is. Nothing is shared between two keys."""

    workspace: str
    pair: Pair
    name: str


@dataclass(frozen=True, slots=True)
class About:
    """What a server said of itself and offered when it was last connected."""

    name: str
    version: str
    instructions: str
    tools: tuple[types.Tool, ...]
    has_resources: bool
    has_prompts: bool


class Instance:
    """A server and its present connection. All methods belong to one event loop."""

    def __init__(
        self,
        key: InstanceKey,
        declaration: Declaration,
        owner: str,
        settings: McpSettings,
        connect: Connect,
        on_end: Callable[[], None],
    ) -> None:
        self.key = key
        self.declaration = declaration
        self.owner = owner
        self.uses = 0
        self.used_at = time.monotonic()
        self.used_us = 0
        self.about: About | None = None
        self.connection: Connection | None = None
        self.failure: McpFailure | None = None
        self.attempts = 0
        self.retired: WorkspacedError | None = None
        self.left_at = 0.0
        self._failed_us = 0
        self._retry_at = 0.0
        self._retry_us = 0
        self._began = 0.0
        self._ready_at = 0.0
        self._settings = settings
        self._connect = connect
        self._on_end = on_end

    @property
    def live(self) -> bool:
        """Whether it is starting or running."""
        return self.connection is not None and not self.connection.closing

    @property
    def starting(self) -> bool:
        """Whether it is starting."""
        return self.connection is not None and self.live and not self.connection.opened.done()

    @property
    def start_age(self) -> float:
        """For how many seconds it has been starting."""
        return time.monotonic() - self._began

    @property
    def retry_after(self) -> float:
        """In how many seconds it may be started again; 0 or less: now."""
        return self._retry_at - time.monotonic() if self.failure is not None else 0.0

    def check_startable(self) -> None:
        """Raise what a call answers while the back-off of a failed server lasts, or when it was ended for good."""
        if self.retired is not None:
            raise self.retired
        if self.failure is not None and (wait := self.retry_after) > 0:
            raise failures.unavailable(self.key.name, self.failure, round(wait, 3))

    def start(self, place: Place) -> Connection:
        """Begin to connect. What comes of it is noted here, whoever waits for it."""
        self._began = time.monotonic()
        self.connection = connection = self._connect(self.declaration, place)
        connection.on_open, connection.on_end = self._opened, self._ended
        return connection

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """In use until left."""
        self.uses += 1
        self._touch()
        try:
            yield
        finally:
            self.uses -= 1
            self._touch()

    def worked(self) -> None:
        """It answered a call: a later failure is the first one again."""
        self.attempts = 0

    def retire(self, cause: WorkspacedError) -> Connection | None:
        """End it for good; calls that run are ended with ``cause``. Returns the connection that is ending."""
        self.retired = cause
        return self.stop(cause)

    def stop(self, cause: WorkspacedError | None = None) -> Connection | None:
        """End the connection, to be opened again at the next use. Returns it, to be waited for."""
        connection = self.connection
        if connection is not None:
            connection.close(cause or failures.ended(self.key.name, "it was not in use"))
        return connection

    def status(self, inherited: bool) -> mcp_pb2.McpStatus:
        """What callers are told."""
        status = mcp_pb2.McpStatus(mcp=self.declaration.redacted(), inherited=inherited)
        if self.live:
            starting = self.starting
            status.state = mcp_pb2.MCP_STATE_CONNECTING if starting else mcp_pb2.MCP_STATE_READY
            assert self.connection is not None
            status.process_id = self.connection.process_id
        elif self.failure is not None:
            status.state = mcp_pb2.MCP_STATE_FAILED
            status.error.CopyFrom(self.error())
            status.next_retry_time.FromMicroseconds(self._retry_us)
        else:
            status.state = mcp_pb2.MCP_STATE_IDLE
        if self.about is not None:
            status.server_name, status.server_version = self.about.name, self.about.version
            status.instructions = self.about.instructions
            status.tool_count = sum(allows(self.declaration.mcp, tool.name) for tool in self.about.tools)
            status.has_resources, status.has_prompts = self.about.has_resources, self.about.has_prompts
        if self.used_us:
            status.last_used_time.FromMicroseconds(self.used_us)
        return status

    def error(self) -> mcp_pb2.McpError:
        """Why it is not usable."""
        assert self.failure is not None
        return self.failure.to_message(self.key.name, time_us=self._failed_us, attempts=self.attempts)

    def learn(self) -> None:
        """Note what the server says of itself now."""
        connection = self.connection
        if connection is None or connection.session is None:
            return
        session, able = connection.session, connection.listings.capabilities
        info = session.server_info
        known = self.about.tools if self.about is not None else ()
        tools = connection.listings.tools.value
        self.about = About(
            (info.name if info else "")[:256],
            (info.version if info else "")[:256],
            (session.instructions or "")[:65_536],
            tuple(tools) if tools is not None else known,
            able.resources is not None,
            able.prompts is not None,
        )

    def _opened(self) -> None:
        self._ready_at = time.monotonic()
        self.failure = None
        self.learn()
        _log.info("MCP server ready", **self._names, seconds=round(self._ready_at - self._began, 3))

    def _ended(self) -> None:
        connection = self.connection
        if connection is None:
            return
        self.left_at = time.monotonic()
        if isinstance(connection.cause, McpFailure):
            self._note(connection.cause, lived=connection.opened.done())
            _log.warning("MCP server failed", **self._names, reason=connection.cause.reason, attempts=self.attempts)
        self._on_end()

    def _note(self, failure: McpFailure, *, lived: bool) -> None:
        settings = self._settings
        now = time.monotonic()
        if lived and now - self._ready_at >= settings.steady_seconds:
            self.attempts = 0
        self.attempts += 1
        # Who lived and then crashed for the first time may be needed at once.
        wait = 0.0
        if not failure.steady and (not lived or self.attempts > 1):
            wait = min(settings.retry_first_seconds * 2 ** min(self.attempts - 1, 30), settings.retry_most_seconds)
        self.failure = failure
        self._failed_us = now_us()
        self._retry_at = now + wait
        self._retry_us = self._failed_us + round(wait * 1e6)

    @property
    def _names(self) -> dict[str, str]:
        return {"mcp": self.key.name, "workspace": self.key.workspace}

    def _touch(self) -> None:
        self.used_at = time.monotonic()
        self.used_us = now_us()


def allows(mcp: mcp_pb2.Mcp, tool: str) -> bool:
    """Whether the declaration lets this tool be listed and called."""
    return tool not in mcp.disabled_tools and (not mcp.enabled_tools or tool in mcp.enabled_tools)
