"""The channel to a server: options, credentials, deadlines and retries of unary calls."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Coroutine
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from . import errors
from .api_revision import RevisionCheck
from .backoff import Backoff
from .file_codec import FileCalls
from .tls import TLS
from .v1.discovery_pb2_grpc import DiscoveryServiceStub
from .v1.execution_pb2_grpc import ExecutionServiceStub
from .v1.file_pb2_grpc import FileServiceStub
from .v1.lifecycle_pb2_grpc import LifecycleServiceStub
from .v1.management_pb2_grpc import ManagementServiceStub
from .v1.offload_pb2_grpc import OffloadServiceStub
from .v1.port_pb2_grpc import PortServiceStub
from .v1.server_pb2_grpc import ServerServiceStub

if TYPE_CHECKING:
    from .v1.discovery_pb2_grpc import DiscoveryServiceAsyncStub
    from .v1.execution_pb2_grpc import ExecutionServiceAsyncStub
    from .v1.file_pb2_grpc import FileServiceAsyncStub
    from .v1.lifecycle_pb2_grpc import LifecycleServiceAsyncStub
    from .v1.management_pb2_grpc import ManagementServiceAsyncStub
    from .v1.offload_pb2_grpc import OffloadServiceAsyncStub
    from .v1.port_pb2_grpc import PortServiceAsyncStub
    from .v1.server_pb2_grpc import ServerServiceAsyncStub

Token = str | Callable[[], str]
"""A bearer token, or what gives the present one."""
_Request = TypeVar("_Request")
_Response = TypeVar("_Response")

MIB = 1 << 20
FIRST_CONTACT_SECONDS = 2.0
"""How long a server is tried that never answered before."""
LONG_SECONDS = 1800.0
"""The deadline of a call that may have to pull an image."""
_FREED_BYTES = 8 * MIB
UNREACHABLE_SECONDS = 10.0
"""How long a workspace that its server cannot reach is tried again: a guest that was killed is back well before."""


def _options(loopback: bool) -> list[tuple[str, Any]]:
    try:
        agent = f"workspaced-python/{version('workspaced')}"
    except PackageNotFoundError:
        agent = "workspaced-python"
    options: list[tuple[str, Any]] = [
        ("grpc.primary_user_agent", agent),
        # A frozen server is noticed after 5 s + 3 s, and it is `ping_timeout_ms` that bounds it.
        ("grpc.keepalive_time_ms", 5_000),
        ("grpc.keepalive_timeout_ms", 3_000),
        ("grpc.http2.ping_timeout_ms", 3_000),
        ("grpc.http2.max_pings_without_data", 0),
        # A reader that pauses holds 2 MB a stream instead of 6 MB, at the same throughput.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", MIB),
        # A message arrives in few pieces, each of which costs copies; the window bounds what waits, not this.
        ("grpc.http2.max_frame_size", MIB),
        ("grpc.max_receive_message_length", 8 * MIB),
        ("grpc.max_send_message_length", 8 * MIB),
        # A restarted server is found again quickly, and a connection attempt to a frozen one does not last 20 s.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 5_000),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # The back-off of another client in this program is not ours.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.service_config", resources.files(__package__).joinpath("service_config.json").read_text("utf-8")),
    ]
    if loopback:
        options.append(("grpc.enable_http_proxy", 0))
    return options


def is_loopback(target: str) -> bool:
    """Whether a target stays on this machine."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    host = target.rsplit("/", 1)[-1]
    host = host[1:].split("]")[0] if host.startswith("[") else host.rsplit(":", 1)[0] if host.count(":") == 1 else host
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def ended(call: grpc.aio.Call) -> None:
    """Wait for the end of a call, whatever its status. Cancellation cancels the call.

    Awaiting the call itself waits for a task of grpc's, and a cancellation comes out of it without its message, by
    which anyio knows the cancellations of its own scopes.
    """
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(_: object) -> None:
        if not done.done():
            done.set_result(None)

    call.add_done_callback(end)
    try:
        await done
    except asyncio.CancelledError:
        call.cancel()
        raise


def now(coroutine: Coroutine[Any, Any, _Response]) -> _Response | None:
    """The result of a coroutine that has no reason to wait, else ``None``."""
    try:
        coroutine.send(None)
    except StopIteration as result:
        value: _Response = result.value
        return value
    coroutine.close()
    return None


def _authorization(token: str) -> str:
    if not token.isascii() or not token.isprintable():
        raise ValueError("a token is printable ASCII")
    return f"Bearer {token}"


class Connection:
    """A lazily made channel, bound to the event loop that first uses it."""

    def __init__(
        self,
        target: str,
        *,
        token: Token | None,
        tls: TLS | None,
        insecure: bool,
        timeout: float,
        retry_timeout: float,
        resume_timeout: float,
    ) -> None:
        loopback = is_loopback(target)
        if token is not None and tls is None and not loopback and not insecure:
            raise ValueError(f"a token to {target!r} needs tls=, or insecure=True to send it in the clear")
        if isinstance(token, str):
            _authorization(token)
        self.target = target
        self.timeout = timeout
        self.long_timeout = LONG_SECONDS
        self.retry_timeout = retry_timeout
        self.resume_timeout = resume_timeout
        self._token = token
        self._tls = tls
        self._loopback = loopback
        self._channel: grpc.aio.Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._background: set[asyncio.Task[None]] = set()
        self.companions: set[asyncio.Task[None]] = set()
        """What runs for as long as the connection does."""
        self.answered = False
        """Whether the server was ever there: one that was is waited for, one that never was is an error at once."""
        self.revision = RevisionCheck(target)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with a call that is made now."""
        if self._token is None:
            return ()
        token = self._token if isinstance(self._token, str) else self._token()
        return (("authorization", _authorization(token)),)

    def open(self) -> None:
        """Make the channel, once. Raises :class:`RuntimeError` after :meth:`aclose` and on another event loop."""
        if self._closed:
            raise RuntimeError("the client is closed")
        loop = asyncio.get_running_loop()
        if self._channel is not None:
            if loop is not self._loop:
                raise RuntimeError("a client belongs to the event loop that first used it")
            return
        # From then on the C library keeps up to 16 MiB of freed memory instead of 256 KiB, so that not each message of
        # that size is made of fresh pages: a third of what output costs the client.
        bytearray(_FREED_BYTES)
        options = _options(self._loopback)
        if self._tls is None:
            channel = grpc.aio.insecure_channel(self.target, options=options)
        else:
            if self._tls.server_name is not None:
                options.append(("grpc.ssl_target_name_override", self._tls.server_name))
            channel = grpc.aio.secure_channel(self.target, self._tls.credentials(), options=options)
        self._channel, self._loop = channel, loop
        self._discovery = DiscoveryServiceStub(channel)
        self._execution = ExecutionServiceStub(channel)
        self._files = FileServiceStub(channel)
        self._file_calls = FileCalls(channel)
        self._lifecycle = LifecycleServiceStub(channel)
        self._management = ManagementServiceStub(channel)
        self._offload = OffloadServiceStub(channel)
        self._ports = PortServiceStub(channel)
        self._server = ServerServiceStub(channel)

    @property
    def discovery(self) -> DiscoveryServiceAsyncStub:
        """The stub of DiscoveryService."""
        self.open()
        return self._discovery

    @property
    def execution(self) -> ExecutionServiceAsyncStub:
        """The stub of ExecutionService."""
        self.open()
        return self._execution

    @property
    def files(self) -> FileServiceAsyncStub:
        """The stub of FileService."""
        self.open()
        return self._files

    @property
    def file_calls(self) -> FileCalls:
        """ReadFile and WriteFile."""
        self.open()
        return self._file_calls

    @property
    def lifecycle(self) -> LifecycleServiceAsyncStub:
        """The stub of LifecycleService."""
        self.open()
        return self._lifecycle

    @property
    def management(self) -> ManagementServiceAsyncStub:
        """The stub of ManagementService."""
        self.open()
        return self._management

    @property
    def offload(self) -> OffloadServiceAsyncStub:
        """The stub of OffloadService."""
        self.open()
        return self._offload

    @property
    def ports(self) -> PortServiceAsyncStub:
        """The stub of PortService."""
        self.open()
        return self._ports

    @property
    def server(self) -> ServerServiceAsyncStub:
        """The stub of ServerService."""
        self.open()
        return self._server

    async def aclose(self) -> None:
        """Close the channel, after what tidies up has ended. Idempotent. Calls that still run end as cancelled."""
        self._closed = True
        for task in self.companions:
            task.cancel()
        if self.companions:
            await asyncio.wait(tuple(self.companions))
        if self._background:
            await asyncio.wait(tuple(self._background))
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Tidy up beside the caller; ``work`` raises nothing and is bounded in time."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def heard(self, call: grpc.aio.Call) -> None:
        """An answer has arrived on this call."""
        self.answered = True
        if not self.revision.known:
            self.revision.see(now(call.initial_metadata()), now(call.trailing_metadata()) if call.done() else None)

    def retry_limit(self, error: errors.WorkspacedError, limit: float) -> float:
        """For how many seconds of failure a call that may be repeated is tried again after this error; 0 for never."""
        if isinstance(error, errors.Unreachable):
            return min(limit, UNREACHABLE_SECONDS)
        if errors.connection_lost(error):
            return limit if self.answered else min(limit, FIRST_CONTACT_SECONDS)
        return limit if isinstance(error, errors.Unavailable) and error.retry_after is not None else 0.0

    async def once(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[_Request, _Response],
        request: _Request,
        *,
        timeout: float | None,
    ) -> _Response:
        """One unary call. Raises :class:`WorkspacedError`. Cancellation cancels the call on the server too."""
        try:
            call = method(request, timeout=timeout, metadata=self.metadata)
            await ended(call)
            response = await call
        except grpc.aio.AioRpcError as error:
            self.revision.see(error.trailing_metadata())
            raise errors.from_rpc(error) from None
        self.heard(call)
        return response

    async def unary(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[_Request, _Response],
        request: _Request,
        *,
        timeout: float | None = None,
        retry_timeout: float | None = None,
    ) -> _Response:
        """One call that may be repeated: tried again while the connection is down, at most ``retry_timeout`` seconds.

        The service configuration makes the first few attempts. What goes on here is a server that was there and is
        being restarted, and one that names a delay (``RetryInfo``). A server that never answered fails at once.
        """
        return await self.repeat(lambda left: self.once(method, request, timeout=left), timeout, retry_timeout)

    async def repeat(
        self,
        work: Callable[[float], Awaitable[_Response]],
        timeout: float | None = None,
        retry_timeout: float | None = None,
    ) -> _Response:
        """The same for any work that may be repeated; it is given the seconds that are left."""
        timeout = self.timeout if timeout is None else timeout
        retry_timeout = self.retry_timeout if retry_timeout is None else retry_timeout
        loop = asyncio.get_running_loop()
        start = loop.time()
        backoff = Backoff()
        while True:
            try:
                return await work(max(0.001, start + timeout - loop.time()))
            except errors.WorkspacedError as error:
                limit = self.retry_limit(error, retry_timeout)
                delay = backoff.next(error.retry_after)
                if limit == 0 or loop.time() + delay > start + min(limit, timeout):
                    raise
            await asyncio.sleep(delay)
