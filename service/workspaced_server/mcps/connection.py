"""One connection to one MCP server: a task that opens the transport and the session, and closes both."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import httpx2
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION
from pydantic import ValidationError

from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.guest.channel import ChannelLost
from workspaced_server.mcps import failures, http, stdio
from workspaced_server.mcps.failures import McpFailure
from workspaced_server.mcps.listings import Listings
from workspaced_server.mcps.session import Session, implementation

if TYPE_CHECKING:
    from workspaced_server.guest.stream import GuestStream
    from workspaced_server.mcps.declarations import Declaration
    from workspaced_server.mcps.place import Place
    from workspaced_server.mcps.settings import McpSettings

_CLOSE_SECONDS = 3.0
_KILL_GRACE_SECONDS = 2.0
_STDERR_BYTES = 1 << 20

T = TypeVar("T")
OnLog = Callable[[types.LoggingMessageNotificationParams], None]
"""Takes a log line of a server. It must not wait."""


class Connection:
    """A connection, from its start to its end; it is never opened again.

    ``opened`` ends when calls are served, or raises McpFailure or ChannelLost. Then ``session`` is there until
    ``ended`` is set; ``cause`` is why it ended: McpFailure, ChannelLost, or the error that `close` was given.
    """

    def __init__(self, declaration: Declaration, place: Place, settings: McpSettings, trust: http.Trust) -> None:
        self.declaration = declaration
        self.process_id = ""
        self.session: ClientSession | None = None
        self.listings = Listings(self)
        self.cause: McpFailure | ChannelLost | WorkspacedError | None = None
        self.ended = asyncio.Event()
        self.loggers: set[OnLog] = set()
        self.on_open: Callable[[], None] = _nothing
        self.on_end: Callable[[], None] = _nothing
        self._place = place
        self._settings = settings
        self._trust = trust
        self._closing = asyncio.Event()
        self._leaving = False  # the session has ended; why is being found out
        self._refusal = ""
        self._forgotten = False  # the server answers that it does not know the session
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.opened.add_done_callback(_retrieved)
        self._task = asyncio.create_task(self._run(), name=f"mcp-{declaration.name}")

    @property
    def usable(self) -> bool:
        """Whether calls can be made."""
        return self.session is not None and not self.closing

    @property
    def closing(self) -> bool:
        """Whether it ends, or has ended."""
        return self._leaving or self._closing.is_set() or self.ended.is_set()

    def close(self, cause: WorkspacedError | None = None) -> None:
        """Begin to end it. Calls that run are ended with ``cause``. Idempotent: the first cause stays."""
        if not self.closing:
            self.cause = self.cause or cause
            self._closing.set()

    async def wait_closed(self) -> None:
        """Wait for its end; it is bounded."""
        await self.ended.wait()

    async def request(self, work: Awaitable[T], timeout: float | None = None) -> T:
        """Await a request to the server, for at most ``timeout`` seconds and ``call_timeout``.

        Raises McpFailure MCP_TIMEOUT, MCPError for the server's own refusal, or the cause when the connection ended
        meanwhile. When it is cancelled, or the time is over, the server is told so and the connection stays usable.
        """
        limit = min((seconds for seconds in (timeout, self.call_timeout) if seconds is not None), default=None)
        try:
            async with asyncio.timeout(limit):
                return await work
        except TimeoutError:
            raise McpFailure("MCP_TIMEOUT", f"it did not answer within {limit:g} s") from None
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED and await self._is_ending():
                raise self._why() from error
            if error.code == types.CONNECTION_CLOSED and error.message.startswith("SSE stream "):
                # What the SDK says of the answer's own connection; the session may go on.
                raise McpFailure("MCP_CRASHED", "the connection broke before it answered", steady=True) from error
            if self._forgotten:
                self.fail(McpFailure("MCP_CRASHED", "it has forgotten the session", steady=True))
                await self.wait_closed()
                raise self._why() from error
            raise
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            # The writing half broke: the server does not read, or the transport has ended.
            if self.session is None and not self.closing:
                raise
            self.fail(McpFailure("MCP_PROTOCOL_ERROR", "it does not read what it is sent"))
            await self.wait_closed()
            raise self._why() from error

    def fail(self, failure: McpFailure) -> None:
        """End it because of this."""
        if not self.closing:
            self.cause = self.cause or failure
            self._closing.set()

    @property
    def call_timeout(self) -> float | None:
        """The longest that one request may take, in seconds."""
        mcp = self.declaration.mcp
        if not mcp.HasField("call_timeout"):
            return None
        return mcp.call_timeout.seconds + mcp.call_timeout.nanos / 1e9

    @asynccontextmanager
    async def listening(self, on_log: OnLog | None) -> AsyncIterator[None]:
        """Pass log lines of the server on while the context is open."""
        if on_log is None:
            yield
            return
        self.loggers.add(on_log)
        try:
            yield
        finally:
            self.loggers.discard(on_log)

    def _why(self) -> Exception:
        assert self.cause is not None
        return self.cause

    async def _is_ending(self) -> bool:
        """Whether a closed session means that the connection ends. A server may send the same code for less."""
        # The session is told before this object is, by as many steps as there are tasks between.
        for _ in range(10):
            if self.closing:
                await self.wait_closed()
                return True
            await asyncio.sleep(0)
        return False

    async def _run(self) -> None:
        try:
            if self.declaration.mcp.WhichOneof("transport") == "stdio":
                await self._run_stdio()
            else:
                await self._run_http()
        except (McpFailure, ChannelLost, WorkspacedError) as error:
            self.cause = self.cause or error
        except asyncio.CancelledError:
            self.cause = self.cause or _ended_by_server()
            raise
        except BaseExceptionGroup as group:
            self.cause = self.cause or self._from_group(group)
        except Exception as error:  # noqa: BLE001 - whatever a transport raises is the end of this server only
            self.cause = self.cause or self._from_error(error)
        finally:
            self.session = None
            cause = self.cause or _ended_by_server()
            if isinstance(cause, McpFailure):
                cause = cause.redacted(self.declaration.secrets)
            self.cause = cause
            self.listings.close()
            self.on_end()
            self.ended.set()
            if not self.opened.done():
                self.opened.set_exception(cause)

    async def _run_stdio(self) -> None:
        place, declared = self._place, self.declaration.mcp.stdio
        self.process_id = f"mcp-{self.declaration.name}-{secrets.token_hex(4)}"
        spec: dict[str, object] = {
            "argv": [declared.command, *declared.args],
            "env": {**place.env, **declared.env},
            "kill_grace": _KILL_GRACE_SECONDS,
            "overflow": "drop",
            "journal_limit": _STDERR_BYTES,
        }
        if declared.cwd:
            spec["cwd"] = declared.cwd
        if place.user:
            spec["user"] = place.user
        async with place.guest.open("pipe.spawn", {"process_id": self.process_id, "spec": spec}) as stream:
            try:
                started = await self._unless_closing(stream.receive())
            except WorkspacedError as error:
                if self.closing:
                    raise
                if error.code is Code.UNAVAILABLE:
                    raise ChannelLost(error.message) from error
                raise McpFailure("MCP_START_FAILED", error.message) from error
            if not isinstance(started, dict):
                raise McpFailure("MCP_START_FAILED", "the workspace's guest gave an answer that makes no sense")
            reader = stdio.PipeReader(stream, self._settings.max_message_bytes)
            failure = await self._serve(reader, stdio.PipeWriter(stream), reader.ended)
            if self._closing.is_set():
                if self.opened.done() and reader.failure is None:
                    await stdio.say_goodbye(stream)
            elif failure is not None or reader.failure is not None:
                raise await self._explained(failure or reader.failure, reader, stream)

    async def _explained(
        self, failure: Exception | None, reader: stdio.PipeReader, stream: GuestStream
    ) -> McpFailure | ChannelLost:
        """The failure with how the process ended and what it wrote to its standard error."""
        if isinstance(reader.failure, ChannelLost):
            return reader.failure
        found = reader.failure or failure
        if not isinstance(found, McpFailure):
            found = self._from_error(found or RuntimeError("a session that ended without a cause"))
        reason, message = found.reason, found.message
        if reader.failure is not None and reason == "MCP_CRASHED":
            gone = await stdio.exit_of(stream, reader)
            if gone is not None:
                message = stdio.ending(gone)
        if reader.noise and reason != "MCP_PROTOCOL_ERROR":
            message += f"; on its standard output it wrote {stdio.excerpt(reader.noise)}"
        if reason == "MCP_CRASHED" and not self.opened.done():
            reason, message = "MCP_START_FAILED", f"{message} before it was ready"
        return McpFailure(reason, message, await stdio.stderr_tail(self._place.guest, self.process_id))

    async def _run_http(self) -> None:
        context = await self._trust.context()
        declared = self.declaration.mcp.http

        def on_refusal(status: int, named_session: bool) -> None:
            self._refusal = f"it answered HTTP {status}"
            self._forgotten = self._forgotten or (named_session and status == 404)

        guard = asyncio.create_task(self._leave_soon(asyncio.current_task()))
        failure: Exception | None = None
        try:
            async with AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(self.call_timeout):
                        most = self._settings.max_message_bytes
                        reader, writer = await http.open_http(
                            stack, self._place.guest, declared, context, most, on_refusal, self.fail
                        )
                except TimeoutError:
                    raise failures.late(self.call_timeout) from None
                failure = await self._serve(reader, writer, reader.ended)
                failure = failure or getattr(reader, "failure", None)
        except asyncio.CancelledError:
            if not self._closing.is_set():
                raise
        finally:
            guard.cancel()
        if not self._closing.is_set():
            raise failure or McpFailure("MCP_CRASHED", "it closed the connection")

    async def _leave_soon(self, task: asyncio.Task[Any] | None) -> None:
        """End the task some time after it was asked to, when a server does not answer the good-bye or the hello."""
        await self._closing.wait()
        if self.opened.done():
            await asyncio.sleep(_CLOSE_SECONDS)
        assert task is not None
        task.cancel()

    async def _serve(self, reader: Any, writer: Any, ended: asyncio.Event) -> Exception | None:
        """Run the session until it is closed or the transport ends; returns why it never became usable.

        What is raised here would come out of the task groups around it as one of a group.
        """
        session = Session(
            reader,
            writer,
            logging_callback=self._on_log,
            message_handler=self._on_message,
            client_info=implementation(),
        )
        async with session:
            try:
                await self._unless_closing(self._hello(session, ended))
                self.session = session
                self.on_open()
                self.opened.set_result(None)
                await _first(self._closing.wait(), ended.wait())
            except Exception as error:  # noqa: BLE001 - raised by the caller, outside of the task groups
                return error
            finally:
                self._leaving = True
                self.session = None
        return None

    async def _hello(self, session: ClientSession, ended: asyncio.Event) -> None:
        """Agree on a version, and learn the tools."""
        try:
            async with asyncio.timeout(self.call_timeout):
                try:
                    await session.initialize()
                except MCPError as error:
                    if error.code not in (UNSUPPORTED_PROTOCOL_VERSION, METHOD_NOT_FOUND):
                        raise
                    # A server that knows only the versions without a handshake.
                    await session.discover()
                self.listings.begin(session)
                await self.listings.tools.load()
        except TimeoutError:
            raise failures.late(self.call_timeout) from None
        except MCPError as error:
            if ended.is_set():
                raise McpFailure("MCP_CRASHED", "it closed the connection") from error
            if self._refusal:
                raise McpFailure("MCP_CONNECT_FAILED", self._refusal) from error
            raise McpFailure("MCP_PROTOCOL_ERROR", f"it refused to begin: {error.message}") from error
        except (ValidationError, RuntimeError) as error:
            raise McpFailure(
                "MCP_PROTOCOL_ERROR", f"its first answer makes no sense: {failures.short(error)}"
            ) from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise McpFailure("MCP_CRASHED", "it closed the connection") from error

    async def _unless_closing(self, work: Any) -> Any:
        """Await ``work``, which is cancelled when the connection is closed meanwhile."""
        task = asyncio.ensure_future(work)
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait([task, closing], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self.cause or _ended_by_server()
            return task.result()
        finally:
            closing.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def _on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        for on_log in list(self.loggers):
            on_log(params)

    async def _on_message(self, message: object) -> None:
        match message:
            case types.ToolListChangedNotification():
                self.listings.tools.forget()
            case types.ResourceListChangedNotification():
                self.listings.resources.forget()
            case types.PromptListChangedNotification():
                self.listings.prompts.forget()

    def _from_group(self, group: BaseExceptionGroup[BaseException]) -> McpFailure:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return self._from_error(error)

    def _from_error(self, error: BaseException) -> McpFailure:
        if isinstance(error, McpFailure):
            return error
        if isinstance(error, httpx2.HTTPStatusError):
            return McpFailure("MCP_CONNECT_FAILED", f"it answered HTTP {error.response.status_code}")
        if isinstance(error, httpx2.HTTPError | httpx2.SSEError | httpx2.StreamError):
            reason = "MCP_CONNECT_FAILED" if isinstance(error, httpx2.TransportError) else "MCP_PROTOCOL_ERROR"
            return McpFailure(reason, f"it cannot be reached: {failures.short(error)}")
        logging.getLogger("workspaced.mcps").error("an MCP transport failed", exc_info=error)
        return McpFailure("MCP_PROTOCOL_ERROR", "the session with it broke")


def _nothing() -> None:
    pass


def _retrieved(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()


def _ended_by_server() -> McpFailure:
    return McpFailure("MCP_CRASHED", "it was ended", steady=True)


async def _first(*works: Any) -> None:
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
