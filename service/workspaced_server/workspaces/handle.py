"""What a servicer gets to work in a workspace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from workspaced.v1.workspace_pb2 import WorkspaceSpec
    from workspaced_server.guest.channel import GuestChannel
    from workspaced_server.workspaces.entries import Entry


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


def handle_of(entry: Entry, guest: GuestChannel, room: Callable[[], Awaitable[int | None]]) -> WorkspaceHandle:
    """The workspace's handle for this channel, made once for it."""
    handle = entry.handle
    if handle is None or handle.guest is not guest:
        record, spec = entry.record, entry.spec
        handle = entry.handle = WorkspaceHandle(
            record.workspace_id, guest, dict(spec.env), spec.user, record.workdir, record.key, spec, room
        )
    return handle
