"""A workspace that is held by a lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from datetime import datetime, timedelta, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import errors
from .backoff import Backoff
from .connection import Connection
from .v1 import lifecycle_pb2
from .workspace import Workspace

if TYPE_CHECKING:
    from typing_extensions import Self

_log = logging.getLogger("workspaced")
_RELEASE_SECONDS = 5.0
_DEFAULT_DURATION = timedelta(seconds=60)


class LeasedWorkspace(Workspace):
    """A workspace from ``Client.acquire``: the lease is renewed in the background until :meth:`release`, or until the
    context manager is left; then the workspace's idle time begins. When the client is closed before, the lease lasts
    until its time.

    When a lease was lost, because this program or the server slept longer than it lasts, the workspace is acquired
    again.
    """

    def __init__(
        self, connection: Connection, request: lifecycle_pb2.AcquireWorkspaceRequest,
        response: lifecycle_pb2.AcquireWorkspaceResponse,
    ) -> None:  # fmt: skip
        super().__init__(connection, response.workspace.workspace_id)
        self._request = request
        self._lease = response.lease
        self._created = response.created
        # By this machine's clock alone: the server's may be another hour.
        given = request.lease_duration.ToTimedelta() if request.HasField("lease_duration") else _DEFAULT_DURATION
        self._renewal_seconds = given.total_seconds() / 3
        renewing = asyncio.get_running_loop().create_task(self._renew(), name=f"workspaced-lease-{self.id}")
        self._renewing: asyncio.Task[None] | None = renewing
        connection.companions.add(renewing)
        renewing.add_done_callback(connection.companions.discard)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.release()

    @property
    def created(self) -> bool:
        """Whether the call made the workspace."""
        return self._created

    @property
    def lease_id(self) -> str:
        """The lease, as the API knows it."""
        return self._lease.lease_id

    @property
    def lease_expire_time(self) -> datetime:
        """When the lease ends unless it is renewed."""
        return self._lease.expire_time.ToDatetime(timezone.utc)

    async def release(self) -> None:
        """Give the lease back. Idempotent. What cannot be told to the server ends by itself, when the lease does."""
        renewing, self._renewing = self._renewing, None
        if renewing is None:
            return
        renewing.cancel()
        await asyncio.wait([renewing])
        request = lifecycle_pb2.ReleaseWorkspaceRequest(lease_id=self._lease.lease_id)
        try:
            await self._connection.unary(
                self._connection.lifecycle.ReleaseWorkspace, request, timeout=_RELEASE_SECONDS, retry_timeout=0
            )
        except (errors.Unavailable, errors.DeadlineExceeded) as error:
            _log.warning("lease of %s not released: %s", self.id, error)

    async def _renew(self) -> None:
        backoff = Backoff()
        lifecycle = self._connection.lifecycle
        pause = self._renewal_seconds
        while True:
            await asyncio.sleep(pause)
            try:
                renewal = lifecycle_pb2.RenewLeaseRequest(lease_id=self._lease.lease_id)
                try:
                    self._lease = (await self._connection.unary(lifecycle.RenewLease, renewal)).lease
                except errors.LeaseNotFound:
                    again = await self._connection.unary(lifecycle.AcquireWorkspace, self._request)
                    self._lease = again.lease
                backoff.reset()
                pause = self._renewal_seconds
            except errors.WorkspacedError as error:
                _log.warning("lease of %s not renewed: %s", self.id, error)
                pause = backoff.next(error.retry_after)


class Acquisition:
    """What ``Client.acquire`` returns: await it for the workspace, or enter it, which releases the lease at the end."""

    def __init__(self, connection: Connection, request: lifecycle_pb2.AcquireWorkspaceRequest, timeout: float) -> None:
        self._connection = connection
        self._request = request
        self._timeout = timeout
        self._workspace: LeasedWorkspace | None = None

    def __await__(self) -> Generator[Any, None, LeasedWorkspace]:
        return self._acquire().__await__()

    async def __aenter__(self) -> LeasedWorkspace:
        self._workspace = await self._acquire()
        return self._workspace

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._workspace is not None
        await self._workspace.release()

    async def _acquire(self) -> LeasedWorkspace:
        lifecycle = self._connection.lifecycle
        response = await self._connection.unary(lifecycle.AcquireWorkspace, self._request, timeout=self._timeout)
        return LeasedWorkspace(self._connection, self._request, response)
