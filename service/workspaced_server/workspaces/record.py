"""A workspace as the registry knows it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from workspaced_server.drivers.base import SandboxRef


class State(Enum):
    """Where a workspace is in its life; names and numbers as in ``workspaced.v1.WorkspaceState``."""

    INITIALIZING = 1
    READY = 2
    CLOSING = 3
    CLOSED = 4
    DEGRADED = 5
    DELETING = 6
    DELETED = 7
    FAILED = 8


@dataclass(frozen=True, slots=True)
class Record:
    """One row. Times are microseconds since the epoch.

    ``spec`` is the resolved WorkspaceSpec and ``requested`` the one that was asked for, both serialised
    deterministically.
    ``restore`` is the state that a failed initialization goes back to, None while the workspace never was READY.
    ``disposable`` says that nobody can know the id before the creating call was answered, so a crash before that
    undoes it.
    """

    key: str
    owner: str
    workspace_id: str
    backend: str
    state: State
    spec: bytes
    requested: bytes
    token: str
    create_time: int
    update_time: int
    last_used_time: int
    revision: int
    state_reason: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    request_id: str = ""
    idle_seconds: int = 0
    restore: State | None = None
    disposable: bool = False
    ref: Mapping[str, Any] | None = None
    workdir: str = ""
    persistent: bool = True
    sandbox_key: str = ""

    @property
    def provider_key(self) -> str:
        """The key that the sandbox carries at its provider; another than ``key`` when it came from a pool."""
        return self.sandbox_key or self.key

    @property
    def sandbox(self) -> SandboxRef | None:
        """The driver's reference, or None while no provider has answered yet."""
        if self.ref is None:
            return None
        return SandboxRef(self.provider_key, self.token, self.workdir, dict(self.ref), self.persistent)


def now_us() -> int:
    """The time as records hold it."""
    return time.time_ns() // 1000


class RevisionClock:
    """Gives revisions that only grow, over restarts and deletions too: the time, or one more than the last."""

    def __init__(self, last: int = 0) -> None:
        self._last = last

    def next(self) -> int:
        """A revision larger than every one before."""
        self._last = max(self._last + 1, now_us())
        return self._last
