"""Written by generate_sync.py from workspaced.client; do not edit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from workspaced import client as twin
from workspaced.info import ServerInfo, WorkspaceInfo
from workspaced.spec import Resources
from workspaced.tls import TLS

from .lease import LeasedWorkspace
from .portal import awaited, call
from .stream import Stream
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

        with workspaced.sync.connect("127.0.0.1:7420") as client:
            ws = client.initialize(backend="docker", image="python:3.12")

    ``timeout`` bounds each short call, ``retry_timeout`` how long a call that may be repeated is tried again, and
    ``resume_timeout`` how long a stream may be without a connection before it fails; all in seconds.
    A token goes to another machine only over TLS, unless ``insecure`` says otherwise. One that changes is given as a
    function, which is called for each call and returns at once. Raises :class:`ValueError`.
    """
    return Client(
        twin.connect(
            target,
            token=token,
            tls=tls,
            insecure=insecure,
            timeout=timeout,
            retry_timeout=retry_timeout,
            resume_timeout=resume_timeout,
        )
    )


class Client:
    """A connection to a server, made by :func:`connect`.

    Use it as a context manager, or call :meth:`close`. Streams that are open then end as cancelled.
    """

    def __init__(self, asynchronous: twin.Client) -> None:
        self._twin = asynchronous

    def __enter__(self) -> Self:
        call(self._twin.__aenter__())
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        call(self._twin.__aexit__(exc_type, exc, traceback))

    def __repr__(self) -> str:
        return self._twin.__repr__()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        call(self._twin.aclose())

    def initialize(
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
        return Workspace(
            call(
                self._twin.initialize(
                    backend=backend,
                    image=image,
                    workspace_id=workspace_id,
                    env=env,
                    resources=resources,
                    network=network,
                    user=user,
                    workdir=workdir,
                    persistent=persistent,
                    labels=labels,
                    template=template,
                    idle_timeout=idle_timeout,
                    install_python=install_python,
                    seed_skills=seed_skills,
                    instructions=instructions,
                    request_id=request_id,
                    wait=wait,
                    on_progress=on_progress,
                    timeout=timeout,
                    local=local,
                    docker=docker,
                    e2b=e2b,
                    daytona=daytona,
                    kubernetes=kubernetes,
                    opensandbox=opensandbox,
                )
            )
        )

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
    ) -> LeasedWorkspace:
        """The workspace that belongs to a user, an agent or a session, made when it is missing, under a lease that is
        renewed as long as this program runs::

            with client.acquire(policy="per_session", user_id="u", agent_id="a", session_id="s") as ws: ...
            ws = client.acquire(policy="per_user", user_id="u")   # until ws.release()

        ``template`` names one of the server's configuration; what is given beside it overrides the template.
        Raises as :meth:`initialize`.
        """
        return LeasedWorkspace(
            call(
                awaited(
                    self._twin.acquire(
                        policy=policy,
                        user_id=user_id,
                        agent_id=agent_id,
                        session_id=session_id,
                        template=template,
                        backend=backend,
                        image=image,
                        env=env,
                        resources=resources,
                        lease_duration=lease_duration,
                        timeout=timeout,
                    )
                )
            )
        )

    def workspace(self, workspace_id: str) -> Workspace:
        """A handle on a workspace, without asking the server."""
        return Workspace(self._twin.workspace(workspace_id))

    def list(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        states: Iterable[str] = (),
        backends: Iterable[str] = (),
        workspace_ids: Iterable[str] = (),
    ) -> list[WorkspaceInfo]:
        """The caller's workspaces that match, by time of creation."""
        return call(self._twin.list(labels=labels, states=states, backends=backends, workspace_ids=workspace_ids))

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
        return Stream(self._twin.watch(labels=labels, states=states, backends=backends, workspace_ids=workspace_ids))

    def server_info(self, *, probe: bool = False) -> ServerInfo:
        """What the server is and can do; with ``probe`` every backend is asked anew."""
        return call(self._twin.server_info(probe=probe))
