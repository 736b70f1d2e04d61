"""Who makes a call, and which call it is: context variables that the API sets and everything below may read."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum


class Scope(Enum):
    """What a principal may do; names and numbers as in ``workspaced.v1.Scope``. No scope contains another."""

    READ = 1
    EXECUTE = 2
    MANAGE = 3
    ADMIN = 4


ALL_SCOPES = frozenset(Scope)

REQUEST_ID_KEY = "x-request-id"
"""The metadata key of a call's id: the caller's own in the request, or a generated one; always in the answer."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who was authenticated. ``name`` owns workspaces."""

    name: str
    scopes: frozenset[Scope]

    @property
    def is_admin(self) -> bool:
        """Whether it may act on the workspaces of every owner."""
        return Scope.ADMIN in self.scopes


LOCAL = Principal("local", ALL_SCOPES)
"""The caller of a server without authentication, which listens on loopback or a Unix socket only."""


@dataclass(slots=True)
class CallRecord:
    """What the log line of the present call will say beyond its method and status."""

    request_id: str
    owner: str = ""  # of the workspaces that an administrator acts on; empty: own, then whoever has the id
    workspace_id: str = ""
    extra: dict[str, str | int] = field(default_factory=dict)


_principal: ContextVar[Principal] = ContextVar("workspaced_principal")
_call: ContextVar[CallRecord | None] = ContextVar("workspaced_call", default=None)


def current() -> Principal:
    """The principal of the present call. Raises LookupError outside of a call."""
    return _principal.get()


def bind(principal: Principal) -> None:
    """Make ``principal`` the caller for the rest of this task."""
    _principal.set(principal)


def current_call() -> CallRecord | None:
    """The present call's record, or None outside of a call."""
    return _call.get()


def bind_call(record: CallRecord) -> None:
    """Make ``record`` the present call's for the rest of this task."""
    _call.set(record)
