"""Reading what a guest answered. A guest is untrusted: a field of the wrong type is an error of the guest, never of
the server.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from workspaced_server.errors import Code, FieldViolation, WorkspacedError, invalid
from workspaced_server.guest.faults import GUEST_ERROR
from workspaced_server.guest.faults import printable as printable

Answer = Mapping[str, Any]

MAX_UINT64 = (1 << 64) - 1


def malformed() -> WorkspacedError:
    """The guest's answer is not what the protocol says."""
    return WorkspacedError(Code.INTERNAL, GUEST_ERROR, "the workspace's guest gave an answer that makes no sense")


def integer(answer: Answer, name: str, default: int = 0, high: int = MAX_UINT64) -> int:
    """An integer from 0 to `high`; `default` when absent or null."""
    value = answer.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high:
        raise malformed()
    return value


def text(answer: Answer, name: str, default: str = "") -> str:
    """Text as valid UTF-8; `default` when absent or null."""
    value = answer.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise malformed()
    return printable(value)


def flag(answer: Answer, name: str) -> bool:
    """A boolean; false when absent or null."""
    value = answer.get(name)
    if value is not None and not isinstance(value, bool):
        raise malformed()
    return bool(value)


def real(answer: Answer, name: str) -> float | None:
    """A finite number, or None when absent or null."""
    value = answer.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e11 < value < 1e11:
        raise malformed()
    return float(value)


def time(answer: Answer, name: str) -> Timestamp | None:
    """Seconds of the epoch as a timestamp, or None."""
    value = real(answer, name)
    if value is None:
        return None
    if value < 0:
        raise malformed()
    return nanoseconds(round(value * 1e6) * 1000)


def nanoseconds(value: int) -> Timestamp:
    """Nanoseconds of the epoch as a timestamp."""
    return Timestamp(seconds=value // 1_000_000_000, nanos=value % 1_000_000_000)


def record(answer: Answer, name: str) -> dict[str, Any]:
    """An object."""
    value = answer.get(name)
    if not isinstance(value, dict):
        raise malformed()
    return value


def records(answer: Answer, name: str) -> list[dict[str, Any]]:
    """A list of objects."""
    value = answer.get(name)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise malformed()
    return value


def message(item: object) -> dict[str, Any]:
    """A MESSAGE where the protocol wants one."""
    if not isinstance(item, dict):
        raise malformed()
    return item


def page_token(answer: Answer) -> str:
    """The token of the next page for a caller: any text of the guest, made safe."""
    token = answer.get("next_page_token") or ""
    if not isinstance(token, str):
        raise malformed()
    try:
        return urlsafe_b64encode(token.encode("utf-8", "surrogateescape")).decode("ascii").rstrip("=")
    except UnicodeEncodeError:
        raise malformed() from None


def guest_page_token(token: str) -> str:
    """The guest's token in a caller's. Raises WorkspacedError for one that was never given out."""
    try:
        raw = b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise bad_page_token() from None
    return raw.decode("utf-8", "surrogateescape")


def bad_page_token() -> WorkspacedError:
    """A page token that this server did not make."""
    return invalid(FieldViolation("page_token", "must be the next_page_token of the previous page, unchanged"))
