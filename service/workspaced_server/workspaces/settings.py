"""What the server's configuration says about workspaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from workspaced.v1 import workspace_pb2 as pb


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """How the server keeps its channels to guests. All times in seconds."""

    open_timeout_seconds: float = 30.0
    ping_active_seconds: float = 5.0  # between pings while calls are open
    ping_idle_seconds: float = 30.0
    ping_timeout_seconds: float = 5.0
    idle_close_seconds: float = 300.0  # an unused channel is closed, so that an idle Local guest may end
    retry_first_seconds: float = 0.1  # back-off after a failed connection doubles from here
    retry_most_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """How many workspaces of a template wait ready for whoever asks, how many may be made at a time, and how old one
    may become before it is replaced (0: any age).
    """

    size: int = 1
    max_creating: int = 1
    max_age_seconds: int = 3600


@dataclass(frozen=True, slots=True)
class WorkspaceSettings:
    """Limits and housekeeping of workspaces. 0 switches a limit off."""

    default_backend: str = "local"
    idle_timeout_seconds: int = 0  # of specs that name none; 0: never closed for idleness
    idle_counts_processes: bool = True  # a running process keeps its workspace open
    max_per_owner: int = 0
    max_processes_per_owner: int = 0  # running, in all of an owner's workspaces
    max_disk_bytes_per_owner: int = 0  # sum of resources.disk_bytes; every workspace must then have a limit
    provision_concurrency: int = 8  # for each backend; more wait in phase QUEUED
    housekeeping_seconds: float = 15.0
    sweep: Literal["destroy", "report", "off"] = "destroy"
    sweep_seconds: float = 600.0  # between sweeps
    sweep_grace_seconds: float = 600.0  # from the sweep that first saw a leftover to the one that may destroy it
    templates: Mapping[str, pb.WorkspaceSpec] = field(default_factory=dict)
    pools: Mapping[str, PoolSettings] = field(default_factory=dict)  # by template
    channel: ChannelSettings = field(default_factory=ChannelSettings)
