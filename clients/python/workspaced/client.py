"""The client: workspaces of one server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import grpc

from . import errors
from .backoff import Backoff
from .connection import Connection
from .enums import ALLOCATION_POLICIES, BACKENDS, WORKSPACE_STATES
from .info import ServerInfo, WorkspaceInfo
from .lease import Acquisition
from .spec import Resources, duration, new_id, workspace_spec
from .stream import Stream
from .tls import TLS
from .v1 import lifecycle_pb2, server_pb2, workspace_pb2
from .workspace import Workspace

if TYPE_CHECKING:
    from typing_extensions import Self


def connect(
    target: str = "127.0.0.1:7420",
    *,
    token: str | Callable[[], str] | None = None,
    tls: TLS | None = None,
    insecure: bool = False,
    timeout: float = 60.0,
    retry_timeout: float = 10.0,
    resume_timeout: float = 60.0,
) -> Client:
    """A client of the server at ``target`` (``host:port`` or ``unix:///path``). Nothing is sent before the first call.

    ::

        async with workspaced.connect("127.0.0.1:7420") as client:
            ws = await client.initialize(backend="docker", image="python:3.12")

    ``timeout`` bounds each short call, ``retry_timeout`` how long a call that may be repeated is tried again, and
    ``resume_timeout`` how long a stream may be without a connection before it fails; all in seconds.
    A token goes to another machine only over TLS, unless ``insecure`` says otherwise. One that changes is given as a
    function, which is called for each call and returns at once. Raises :class:`ValueError`.
    """
    connection = Connection(
        target, token=token, tls=tls, insecure=insecure, timeout=timeout, retry_timeout=retry_timeout,
        resume_timeout=resume_timeout,
    )  # fmt: skip
    return Client(connection)


class Client:
    """A connection to a server, made by :func:`connect`. Belongs to the event loop that first uses it.

    Use it as an async context manager, or call :meth:`aclose`. Streams that are open then end as cancelled.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def __aenter__(self) -> Self:
        self._connection.open()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<workspaced.Client of {self._connection.target!r}>"

    async def aclose(self) -> None:
        """Close the connection. Idempotent."""
        await self._connection.aclose()

    async def initialize(
        self,
        *,
        backend: str | None = None,
        image: str = "",
        workspace_id: str | None = None,
        env: Mapping[str, str] | None = None,
        resources: Resources | Mapping[str, int] | None = None,
        network: str | Iterable[str] | None = None,
        user: str = "",
        workdir: str = "",
        persistent: bool | None = None,
        labels: Mapping[str, str] | None = None,
        template: str = "",
        idle_timeout: float | None = None,
        install_python: bool = False,
        seed_skills: Sequence[str] = (),
        instructions: str = "",
        request_id: str | None = None,
        wait: bool = True,
        on_progress: Callable[[WorkspaceInfo], None] | None = None,
        timeout: float | None = None,
        local: Mapping[str, Any] | None = None,
        docker: Mapping[str, Any] | None = None,
        e2b: Mapping[str, Any] | None = None,
        daytona: Mapping[str, Any] | None = None,
        kubernetes: Mapping[str, Any] | None = None,
        opensandbox: Mapping[str, Any] | None = None,
    ) -> Workspace:
        """Create a workspace, or re-attach to the one with this id, and wait until it is READY.

        ``network`` is ``"default"``, ``"none"`` or the hosts to allow; ``persistent`` says whether files outlive
        ``close`` (``None``: as the backend can); ``docker`` and its like are the backend's options by their names in
        the API, for example ``docker={"host_workdir": "/srv/work"}``. ``on_progress`` is called with each change while
        it is being made ready. ``timeout`` in seconds is half an hour unless given, since an image may be pulled.

        Idempotent by ``workspace_id``, else by ``request_id``; it is repeated when a connection breaks.
        Raises :class:`SpecMismatch`, :class:`BackendUnavailable`, :class:`ImageNotFound`,
        :class:`GuestPythonMissing`, :class:`QuotaExceeded` and :class:`InvalidArgument`. After an error, and after a
        cancellation nobody else waits, nothing that this call made is left.
        """
        spec = workspace_spec(
            backend=backend, image=image, template=template, env=env, resources=resources, network_policy=network,
            workdir=workdir, user=user, persistent=persistent, idle_timeout=idle_timeout,
            install_python=install_python, seed_skills=seed_skills, instructions=instructions,
            options={
                "local": local, "docker": docker, "e2b": e2b, "daytona": daytona, "kubernetes": kubernetes,
                "opensandbox": opensandbox,
            },
        )  # fmt: skip
        if on_progress is not None and workspace_id is None:
            workspace_id = new_id()  # what is to be watched needs a name
        request = lifecycle_pb2.InitializeWorkspaceRequest(
            workspace_id=workspace_id or "",
            spec=spec if spec.ListFields() else None,
            labels=dict(labels or {}),
            request_id=request_id or new_id(),
            no_wait=not wait,
        )
        watcher: asyncio.Task[None] | None = None
        if on_progress is not None and workspace_id is not None:
            watcher = asyncio.create_task(self._report(workspace_id, on_progress))
        try:
            response = await self._connection.unary(
                self._connection.lifecycle.InitializeWorkspace,
                request,
                timeout=timeout or self._connection.long_timeout,
            )
        finally:
            if watcher is not None:
                watcher.cancel()
                await asyncio.wait([watcher])
        return Workspace(self._connection, response.workspace.workspace_id)

    def acquire(
        self,
        *,
        policy: Literal["per_user", "per_agent", "per_session"],
        user_id: str,
        agent_id: str | None = None,
        session_id: str | None = None,
        template: str = "",
        backend: str | None = None,
        image: str = "",
        env: Mapping[str, str] | None = None,
        resources: Resources | Mapping[str, int] | None = None,
        lease_duration: float = 60.0,
        timeout: float | None = None,
    ) -> Acquisition:
        """The workspace that belongs to a user, an agent or a session, made when it is missing, under a lease that is
        renewed as long as this program runs::

            async with client.acquire(policy="per_session", user_id="u", agent_id="a", session_id="s") as ws: ...
            ws = await client.acquire(policy="per_user", user_id="u")   # until await ws.release()

        ``template`` names one of the server's configuration; what is given beside it overrides the template.
        Raises as :meth:`initialize`.
        """
        spec = workspace_spec(
            backend=backend, image=image, template="", env=env, resources=resources, network_policy=None, workdir="",
            user="", persistent=None, idle_timeout=None, install_python=False, seed_skills=(), instructions="",
            options={},
        )  # fmt: skip
        request = lifecycle_pb2.AcquireWorkspaceRequest(
            policy=lifecycle_pb2.AllocationPolicy.ValueType(ALLOCATION_POLICIES.number(policy)),
            user_id=user_id,
            agent_id=agent_id,
            session_id=session_id,
            template=template,
            lease_duration=duration(lease_duration),
            spec=spec if spec.ListFields() else None,
        )
        return Acquisition(self._connection, request, timeout or self._connection.long_timeout)

    def workspace(self, workspace_id: str) -> Workspace:
        """A handle on a workspace, without asking the server."""
        return Workspace(self._connection, workspace_id)

    async def list(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        states: Iterable[str] = (),
        backends: Iterable[str] = (),
        workspace_ids: Iterable[str] = (),
    ) -> list[WorkspaceInfo]:
        """The caller's workspaces that match, by time of creation."""
        found: list[WorkspaceInfo] = []
        token = ""
        chosen = _filter(labels, states, backends, workspace_ids)
        while True:
            request = lifecycle_pb2.ListWorkspacesRequest(page_size=1000, page_token=token, filter=chosen)
            response = await self._connection.unary(self._connection.lifecycle.ListWorkspaces, request)
            found += map(WorkspaceInfo.from_proto, response.workspaces)
            token = response.next_page_token
            if not token:
                return found

    def watch(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        states: Iterable[str] = (),
        backends: Iterable[str] = (),
        workspace_ids: Iterable[str] = (),
    ) -> Stream[WorkspaceInfo]:
        """Workspaces that match: each in its present state, then every change, until the stream is closed.

        After a broken connection the present states come again, but for those that were seen. A slow reader gets the
        newest state of each.
        """
        return Stream(self._watch(_filter(labels, states, backends, workspace_ids)))

    async def server_info(self, *, probe: bool = False) -> ServerInfo:
        """What the server is and can do; with ``probe`` every backend is asked anew."""
        request = server_pb2.GetServerInfoRequest(probe=probe)
        response = await self._connection.unary(self._connection.server.GetServerInfo, request)
        self._connection.revision.note(response.api_revision)
        return ServerInfo.from_proto(response)

    async def _report(self, workspace_id: str, on_progress: Callable[[WorkspaceInfo], None]) -> None:
        async with self.watch(workspace_ids=[workspace_id]) as changes:
            async for change in changes:
                on_progress(change)

    async def _watch(self, chosen: lifecycle_pb2.WorkspaceFilter) -> AsyncGenerator[WorkspaceInfo, None]:
        seen: dict[str, int] = {}
        backoff = Backoff()
        lost_at: float | None = None
        loop = asyncio.get_running_loop()
        while True:
            request = lifecycle_pb2.WatchWorkspacesRequest(filter=chosen)
            call = self._connection.lifecycle.WatchWorkspaces(request, metadata=self._connection.metadata)
            try:
                async for response in call:
                    lost_at = None
                    backoff.reset()
                    self._connection.heard(call)
                    if response.WhichOneof("event") != "workspace":
                        continue
                    info = WorkspaceInfo.from_proto(response.workspace)
                    if seen.get(info.workspace_id) == info.revision:
                        continue
                    if info.state == "DELETED":
                        seen.pop(info.workspace_id, None)
                    else:
                        seen[info.workspace_id] = info.revision
                    yield info
                error: errors.WorkspacedError = errors.Unavailable("the stream ended")
            except grpc.aio.AioRpcError as broken:
                error = errors.from_rpc(broken)
            finally:
                call.cancel()
            now = loop.time()
            lost_at = now if lost_at is None else lost_at
            limit = self._connection.retry_limit(error, self._connection.resume_timeout)
            delay = backoff.next(error.retry_after)
            if limit == 0 or now + delay > lost_at + limit:
                raise error from None
            await asyncio.sleep(delay)


def _filter(
    labels: Mapping[str, str] | None, states: Iterable[str], backends: Iterable[str], workspace_ids: Iterable[str]
) -> lifecycle_pb2.WorkspaceFilter:
    return lifecycle_pb2.WorkspaceFilter(
        labels=dict(labels or {}),
        states=[workspace_pb2.WorkspaceState.ValueType(WORKSPACE_STATES.number(state)) for state in states],
        backends=[workspace_pb2.Backend.ValueType(BACKENDS.number(backend)) for backend in backends],
        workspace_ids=list(workspace_ids),
    )
