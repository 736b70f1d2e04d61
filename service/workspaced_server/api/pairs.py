"""Which agent and session a request means, by one rule for all RPCs."""

from __future__ import annotations

from typing import Protocol

from workspaced_server.api.validation import Violations
from workspaced_server.partitions import ID_RULE, Pair, is_id


class _HasAgent(Protocol):
    @property
    def agent_id(self) -> str: ...


class _HasBoth(_HasAgent, Protocol):
    @property
    def session_id(self) -> str: ...


def pair_of(request: _HasBoth) -> Pair:
    """The agent and the session of a request that has both fields as optional ones. Raises WorkspacedError."""
    found = Violations()
    pair = Pair(_optional(request, "agent_id", found), _optional(request, "session_id", found))
    found.check()
    return pair


def agent_of(request: _HasAgent) -> str | None:
    """The agent of a request. Raises WorkspacedError."""
    found = Violations()
    agent = _optional(request, "agent_id", found)
    found.check()
    return agent


def check_id(value: str, field: str) -> str:
    """Return a required id unchanged. Raises WorkspacedError when it breaks the rule for agents and sessions."""
    found = Violations()
    _check(value, field, found)
    found.check()
    return value


def check_into(value: str, field: str, found: Violations) -> None:
    """As `check_id`, noting what is wrong among other violations."""
    _check(value, field, found)


def _optional(request: object, field: str, found: Violations) -> str | None:
    if not request.HasField(field):  # type: ignore[attr-defined]  # a message with an optional field
        return None
    value = str(getattr(request, field))
    _check(value, field, found)
    return value


def _check(value: str, field: str, found: Violations) -> None:
    if not value:
        found.add(field, f"must not be empty: {ID_RULE}")
    elif not is_id(value):
        found.add(field, ID_RULE)
