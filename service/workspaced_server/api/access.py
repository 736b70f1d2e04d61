"""How servicers reach a workspace: what they need of `workspaces`, and what a lost channel means to a caller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from workspaced.v1.workspace_pb2 import WorkspaceSpec
from workspaced_server.api.validation import check_workspace_id
from workspaced_server.errors import unreachable
from workspaced_server.guest.channel import ChannelLost, GuestChannel


class Handle(Protocol):
    """A READY workspace in use."""

    @property
    def guest(self) -> GuestChannel: ...
    @property
    def workspace_id(self) -> str: ...
    @property
    def env(self) -> Mapping[str, str]: ...
    @property
    def user(self) -> str: ...
    @property
    def workdir(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def spec(self) -> WorkspaceSpec: ...

    async def process_room(self) -> int | None:
        """How many processes may run in it, as far as its owner's others leave room; None without a quota."""
        ...


class Access(Protocol):
    """Gives out workspaces to the present principal."""

    def use(self, workspace_id: str) -> AbstractAsyncContextManager[Handle]:
        """The workspace, with a healthy channel, in use until left.

        Raises WorkspacedError WORKSPACE_NOT_FOUND, WORKSPACE_NOT_READY, WORKSPACE_UNREACHABLE.
        """
        ...


@asynccontextmanager
async def use(access: Access, workspace_id: str) -> AsyncIterator[Handle]:
    """The workspace, in use until left. A channel that breaks meanwhile is UNAVAILABLE, WORKSPACE_UNREACHABLE.

    Raises WorkspacedError also when the id is no id.
    """
    check_workspace_id(workspace_id)
    async with access.use(workspace_id) as handle:
        try:
            yield handle
        except ChannelLost as lost:
            raise unreachable(workspace_id, str(lost)) from lost
