"""What a servicer gets to work in a workspace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workspaced.v1.workspace_pb2 import WorkspaceSpec
    from workspaced_server.guest.channel import GuestChannel


@dataclass(frozen=True, slots=True)
class WorkspaceHandle:
    """A READY workspace for the length of a call. ``env`` is what its spec gives to every process; ``key`` is its key
    in the registry, which no other workspace of any owner has; ``spec`` is the resolved one, secrets included.
    """

    workspace_id: str
    guest: GuestChannel
    env: Mapping[str, str]
    user: str
    workdir: str
    key: str
    spec: WorkspaceSpec
    room: Callable[[], Awaitable[int | None]]

    async def process_room(self) -> int | None:
        """How many processes may run in it, as far as its owner's others leave room; None without a quota."""
        return await self.room()
