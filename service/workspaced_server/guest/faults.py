"""From a guest's ERROR to the error that a caller is told: one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from workspaced_guest import wire
from workspaced_server.errors import Code, FieldViolation, WorkspacedError

# Reason in the ERROR frame -> code and reason in the API. A reason that is not here is a guest's mistake and becomes
# GUEST_ERROR, so that a workspace can never make the server say, for example, UNAUTHENTICATED.
FAULTS: Final[Mapping[str, tuple[Code, str]]] = {
    "ARGUMENT_INVALID": (Code.INVALID_ARGUMENT, "ARGUMENT_INVALID"),
    "PROCESS_NOT_FOUND": (Code.NOT_FOUND, "PROCESS_NOT_FOUND"),
    "FILE_NOT_FOUND": (Code.NOT_FOUND, "FILE_NOT_FOUND"),
    "USER_NOT_FOUND": (Code.NOT_FOUND, "USER_NOT_FOUND"),
    "PROCESS_EXISTS": (Code.ALREADY_EXISTS, "PROCESS_EXISTS"),
    "FILE_EXISTS": (Code.ALREADY_EXISTS, "FILE_EXISTS"),
    "PROCESS_START_FAILED": (Code.FAILED_PRECONDITION, "PROCESS_START_FAILED"),
    "PROCESS_EXITED": (Code.FAILED_PRECONDITION, "PROCESS_EXITED"),
    "STDIN_CLOSED": (Code.FAILED_PRECONDITION, "STDIN_CLOSED"),
    "NO_PTY": (Code.FAILED_PRECONDITION, "NO_PTY"),
    "NOT_A_DIRECTORY": (Code.FAILED_PRECONDITION, "NOT_A_DIRECTORY"),
    "IS_A_DIRECTORY": (Code.FAILED_PRECONDITION, "IS_A_DIRECTORY"),
    "DIRECTORY_NOT_EMPTY": (Code.FAILED_PRECONDITION, "DIRECTORY_NOT_EMPTY"),
    "NOT_A_FILE": (Code.FAILED_PRECONDITION, "NOT_A_FILE"),
    "FILE_BUSY": (Code.FAILED_PRECONDITION, "FILE_BUSY"),
    "LINK_LOOP": (Code.FAILED_PRECONDITION, "LINK_LOOP"),
    "READ_ONLY": (Code.FAILED_PRECONDITION, "READ_ONLY"),
    "OTHER_FILE_SYSTEM": (Code.FAILED_PRECONDITION, "OTHER_FILE_SYSTEM"),
    "PORT_REFUSED": (Code.FAILED_PRECONDITION, "PORT_REFUSED"),
    "HOST_NOT_FOUND": (Code.FAILED_PRECONDITION, "HOST_NOT_FOUND"),
    "CONNECTION_BROKEN": (Code.ABORTED, "CONNECTION_BROKEN"),
    "CONTENT_CHANGED": (Code.ABORTED, "CONTENT_CHANGED"),
    "TREE_CHANGED": (Code.ABORTED, "TREE_CHANGED"),
    "UPLOAD_SUPERSEDED": (Code.ABORTED, "UPLOAD_SUPERSEDED"),
    "HASH_MISMATCH": (Code.DATA_LOSS, "HASH_MISMATCH"),
    "PERMISSION_DENIED": (Code.PERMISSION_DENIED, "USER_NOT_PERMITTED"),
    "FILE_PERMISSION_DENIED": (Code.PERMISSION_DENIED, "FILE_PERMISSION_DENIED"),
    "PATH_ESCAPES": (Code.PERMISSION_DENIED, "PATH_ESCAPES"),
    "ARCHIVE_INVALID": (Code.INVALID_ARGUMENT, "ARCHIVE_INVALID"),
    "ARCHIVE_UNSAFE": (Code.INVALID_ARGUMENT, "ARCHIVE_UNSAFE"),
    "ARCHIVE_TOO_LARGE": (Code.RESOURCE_EXHAUSTED, "ARCHIVE_TOO_LARGE"),
    "SKILL_INVALID": (Code.INVALID_ARGUMENT, "SKILL_INVALID"),
    "OFFSET_INVALID": (Code.OUT_OF_RANGE, "OFFSET_INVALID"),
    "UPLOAD_OFFSET_INVALID": (Code.OUT_OF_RANGE, "UPLOAD_OFFSET_INVALID"),
    "DISK_FULL": (Code.RESOURCE_EXHAUSTED, "DISK_FULL"),
    "QUOTA_EXCEEDED": (Code.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED"),
    "LIMIT_REACHED": (Code.RESOURCE_EXHAUSTED, "LIMIT_REACHED"),
    "REQUEST_ID_REUSED": (Code.ALREADY_EXISTS, "REQUEST_ID_REUSED"),
    "OFFLOAD_NOT_FOUND": (Code.NOT_FOUND, "OFFLOAD_NOT_FOUND"),
    "OFFLOAD_NOT_A_CONTEXT": (Code.FAILED_PRECONDITION, "OFFLOAD_NOT_A_CONTEXT"),
    "GUEST_STOPPING": (Code.UNAVAILABLE, "WORKSPACE_UNREACHABLE"),
}

GUEST_ERROR: Final = "GUEST_ERROR"

# Names that the guest gives to what the API calls otherwise.
_METADATA_NAMES: Final = {"expected": "expected_offset", "next_offset": "expected_offset"}
# Together well below what trailers of a call may hold.
_MAX_MESSAGE_BYTES = 1000
_MAX_METADATA = 8
_MAX_METADATA_BYTES = 256


def fault_from_guest(payload: Mapping[str, Any]) -> WorkspacedError:
    """The error for an ERROR frame's object; texts are bounded. Raises ProtocolError when it is malformed."""
    code, reason, message = payload.get("code"), payload.get("reason"), payload.get("message", "")
    metadata = payload.get("metadata") or {}
    if not (isinstance(code, str) and isinstance(reason, str) and isinstance(message, str)):
        raise wire.ProtocolError("malformed ERROR")
    if not isinstance(metadata, dict):
        raise wire.ProtocolError("malformed ERROR metadata")
    known = FAULTS.get(reason)
    if known is None:
        text = "the workspace's guest failed" if code != "UNIMPLEMENTED" else "the workspace's guest cannot do this"
        return WorkspacedError(Code.INTERNAL, GUEST_ERROR, text)
    details = {
        _METADATA_NAMES.get(key, key)[:64]: _clip(value, _MAX_METADATA_BYTES)
        for key, value in list(metadata.items())[:_MAX_METADATA]
        if isinstance(key, str) and isinstance(value, str) and key.isascii() and key.isidentifier()
    }
    message = _clip(message, _MAX_MESSAGE_BYTES)
    violations: tuple[FieldViolation, ...] = ()
    if known[0] is Code.INVALID_ARGUMENT:
        violations = (FieldViolation(details.pop("field", "request"), message),)
    quota = ("processes", message) if reason == "QUOTA_EXCEEDED" else None
    return WorkspacedError(known[0], known[1], message, details, violations, quota=quota)


def renamed(error: WorkspacedError, names: Mapping[str, str]) -> WorkspacedError:
    """The same error with the reason that one RPC gives it, for example STDIN_OFFSET_INVALID for OFFSET_INVALID."""
    error.reason = names.get(error.reason, error.reason)
    return error


def _clip(text: str, size: int) -> str:
    return printable(text).encode()[:size].decode("utf-8", "ignore")


def printable(text: str) -> str:
    """Text of a guest as valid UTF-8: bytes that are not come out as U+FFFD."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
