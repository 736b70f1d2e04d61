"""Ids of workspaces: what a caller may choose, and the key that stands for one everywhere below."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import unicodedata

from workspaced_server.errors import FieldViolation, invalid

MAX_ID_CHARACTERS = 256
MAX_REQUEST_ID_CHARACTERS = 128
MAX_LABELS = 64
_LABEL_KEY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?")


def check_workspace_id(workspace_id: str, field: str = "workspace_id") -> str:
    """Return the id unchanged: 1 to 256 characters, none of them a control character or surrogate. Case and form
    matter.

    Raises WorkspacedError INVALID_ARGUMENT.
    """
    _check(workspace_id, field, MAX_ID_CHARACTERS)
    return workspace_id


def check_request_id(request_id: str) -> str:
    """Return the id unchanged: at most 128 characters, as in a workspace id; may be empty."""
    if request_id:
        _check(request_id, "request_id", MAX_REQUEST_ID_CHARACTERS)
    return request_id


def check_labels(labels: dict[str, str]) -> dict[str, str]:
    """Return the labels unchanged. Raises WorkspacedError INVALID_ARGUMENT naming each that breaks a rule."""
    violations = []
    if len(labels) > MAX_LABELS:
        violations.append(FieldViolation("labels", f"holds {len(labels)} labels, at most {MAX_LABELS} are allowed"))
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key):
            violations.append(FieldViolation(f"labels[{key[:64]!r}]", "a key is 1 to 128 of A-Z a-z 0-9 . _ / -"))
        elif len(value) > 1024 or any(unicodedata.category(character) in ("Cc", "Cs") for character in value):
            violations.append(FieldViolation(f"labels[{key!r}]", "a value is at most 1024 printable characters"))
    if violations:
        raise invalid(*violations)
    return labels


def key_of(owner: str, workspace_id: str) -> str:
    """The workspace's key: 32 hexadecimal digits that depend on owner and id alone and reveal neither."""
    return hashlib.sha256(f"{owner}\0{workspace_id}".encode()).hexdigest()[:32]


def generate_workspace_id() -> str:
    """A new id, for a caller that gave none."""
    return "ws-" + base64.b32encode(secrets.token_bytes(10)).decode().lower()


def _check(value: str, field: str, limit: int) -> None:
    if not value:
        raise invalid(FieldViolation(field, "must not be empty"))
    if len(value) > limit:
        raise invalid(FieldViolation(field, f"has {len(value)} characters, at most {limit} are allowed"))
    for character in value:
        if unicodedata.category(character) in ("Cc", "Cs"):
            text = f"holds U+{ord(character):04X}; control characters and surrogates are not allowed"
            raise invalid(FieldViolation(field, text))
