"""Written by generate_sync.py from workspaced.lease; do not edit."""

from __future__ import annotations

from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING

from workspaced import lease as twin

from .portal import call
from .workspace import Workspace

if TYPE_CHECKING:
    from typing_extensions import Self


class LeasedWorkspace(Workspace):
    """A workspace from ``Client.acquire``: the lease is renewed in the background until :meth:`release`, or until the
    context manager is left; then the workspace's idle time begins. When the client is closed before, the lease lasts
    until its time.

    When a lease was lost, because this program or the server slept longer than it lasts, the workspace is acquired
    again.
    """

    def __init__(self, asynchronous: twin.LeasedWorkspace) -> None:
        self._twin: twin.LeasedWorkspace = asynchronous

    def __enter__(self) -> Self:
        call(self._twin.__aenter__())
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        call(self._twin.__aexit__(exc_type, exc, traceback))

    @property
    def created(self) -> bool:
        """Whether the call made the workspace."""
        return self._twin.created

    @property
    def lease_id(self) -> str:
        """The lease, as the API knows it."""
        return self._twin.lease_id

    @property
    def lease_expire_time(self) -> datetime:
        """When the lease ends unless it is renewed."""
        return self._twin.lease_expire_time

    def release(self) -> None:
        """Give the lease back. Idempotent. What cannot be told to the server ends by itself, when the lease does."""
        call(self._twin.release())
