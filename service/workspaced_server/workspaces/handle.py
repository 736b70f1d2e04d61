"""What a servicer gets to work in a workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workspaced_server.guest.channel import GuestChannel


@dataclass(frozen=True, slots=True)
class WorkspaceHandle:
    """A READY workspace for the length of a call. ``env`` is what its spec gives to every process."""

    workspace_id: str
    guest: GuestChannel
    env: Mapping[str, str]
    user: str
    workdir: str
