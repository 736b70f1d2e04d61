"""Where instances run: the workspace of a call, as far as MCP servers need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from workspaced.v1 import workspace_pb2

if TYPE_CHECKING:
    from workspaced_server.guest.channel import GuestChannel


class Handle(Protocol):
    """A READY workspace in use."""

    @property
    def guest(self) -> GuestChannel: ...
    @property
    def env(self) -> Mapping[str, str]: ...
    @property
    def user(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def spec(self) -> workspace_pb2.WorkspaceSpec: ...


@dataclass(frozen=True, slots=True)
class Place:
    """What of a handle is kept for as long as a connection lives."""

    guest: GuestChannel
    env: Mapping[str, str]
    user: str

    @classmethod
    def of(cls, handle: Handle) -> Place:
        """The place that the handle gives."""
        return cls(handle.guest, dict(handle.env), handle.user)
