"""How servicers reach a workspace: what they need of `workspaces`, and what a lost channel means to a caller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from workspaced_server.api.validation import check_workspace_id
from workspaced_server.errors import unreachable
from workspaced_server.guest.channel import ChannelLost
from workspaced_server.workspaces.handle import Handle as Handle


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
