"""Whose things are meant in a workspace: an agent, a session, both; and the directory names that follow from them."""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass

MAX_ID_BYTES = 200
ID_RULE = f"must be 1 to {MAX_ID_BYTES} bytes of UTF-8 without control characters, '/' or '\\', not starting with a dot"

_ABSENT = "default"
_MAX_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class Pair:
    """An agent and a session of it, by the caller's checked ids. None is the one without an id; no id names it."""

    agent_id: str | None = None
    session_id: str | None = None


def is_id(value: str) -> bool:
    """Whether an agent or a session may have this id: whether `ID_RULE` holds."""
    return (
        0 < len(value.encode(errors="surrogatepass")) <= MAX_ID_BYTES
        and not value.startswith(".")
        and not any(character in "/\\" or unicodedata.category(character) in ("Cc", "Cs") for character in value)
    )


def directory_name(identifier: str | None) -> str:
    """The directory of an agent below ``skills/``, or of a session below ``sessions/``, for a checked id.

    It is the id itself, so that AgentScope finds it. The one without an id has the directory ``default``, as there;
    the id ``default`` therefore has another one, and ``%`` is escaped to keep names apart. What would be too long for
    a file name is its hash.
    """
    if identifier is None:
        return _ABSENT
    escaped = identifier.replace("%", "%25")
    if len(escaped.encode()) > _MAX_NAME_BYTES:
        return "%sha256-" + hashlib.sha256(identifier.encode()).hexdigest()
    return f"%{ord(escaped[0]):02x}{escaped[1:]}" if escaped == _ABSENT else escaped
