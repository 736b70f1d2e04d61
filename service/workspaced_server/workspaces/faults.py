"""Driver errors and states of workspaces as errors that a caller is told."""

from __future__ import annotations

from workspaced_server.drivers.base import DriverError
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.workspaces.record import Record

_CODES = {
    "ARGUMENT_INVALID": Code.INVALID_ARGUMENT,
    "BACKEND_UNAVAILABLE": Code.FAILED_PRECONDITION,
    "GUEST_PYTHON_MISSING": Code.FAILED_PRECONDITION,
    "IMAGE_NOT_FOUND": Code.FAILED_PRECONDITION,
    "OPTION_NOT_ALLOWED": Code.FAILED_PRECONDITION,
    "PERSISTENCE_UNSUPPORTED": Code.FAILED_PRECONDITION,
    "UNSUPPORTED_BY_BACKEND": Code.FAILED_PRECONDITION,
    "PROVIDER_UNAVAILABLE": Code.UNAVAILABLE,
    "WORKSPACE_UNREACHABLE": Code.UNAVAILABLE,
    "QUOTA_EXCEEDED": Code.RESOURCE_EXHAUSTED,
}


def from_driver(error: DriverError, record: Record) -> WorkspacedError:
    """The driver's error as the caller of an RPC on this workspace is told it."""
    fallback = Code.UNAVAILABLE if error.retryable else Code.FAILED_PRECONDITION
    code = _CODES.get(error.reason, fallback)
    return WorkspacedError(
        code,
        error.reason,
        error.message,
        {"workspace_id": record.workspace_id, "backend": record.backend, **error.metadata},
        retry_after=1.0 if code is Code.UNAVAILABLE else None,
        resource=("workspace", record.workspace_id),
        quota=(f"backend:{record.backend}", error.message) if code is Code.RESOURCE_EXHAUSTED else None,
    )


def not_ready(record: Record) -> WorkspacedError:
    """The workspace is in a state in which it cannot be used."""
    text = f"workspace {record.workspace_id!r} is {record.state.name}; InitializeWorkspace makes it READY"
    if record.state_reason:
        text += f" ({record.state_reason})"
    return WorkspacedError(
        Code.FAILED_PRECONDITION,
        "WORKSPACE_NOT_READY",
        text,
        {"workspace_id": record.workspace_id, "state": record.state.name},
        resource=("workspace", record.workspace_id),
    )


def deleted_meanwhile(record: Record) -> WorkspacedError:
    """Somebody deleted the workspace while it was being initialized or reset."""
    return WorkspacedError(
        Code.ABORTED,
        "WORKSPACE_DELETED",
        f"workspace {record.workspace_id!r} was deleted meanwhile",
        {"workspace_id": record.workspace_id},
    )


def too_many(record: Record, most: int) -> WorkspacedError:
    """The owner has as many workspaces as one may have."""
    text = f"principal {record.owner!r} has {most} workspaces, the most that this server allows; delete one"
    return WorkspacedError(
        Code.RESOURCE_EXHAUSTED,
        "QUOTA_EXCEEDED",
        text,
        {"limit": str(most)},
        quota=(f"principal:{record.owner}", text),
    )


def too_much_disk(record: Record, wanted: int, most: int) -> WorkspacedError:
    """The limits of the owner's disks would add up to more than allowed."""
    text = f"the disk limits of principal {record.owner!r} may add up to {most} bytes; " + (
        f"{wanted} more are too many: delete a workspace or ask for less" if wanted else "set resources.disk_bytes"
    )
    return WorkspacedError(
        Code.RESOURCE_EXHAUSTED,
        "QUOTA_EXCEEDED",
        text,
        {"limit": str(most)},
        quota=(f"principal:{record.owner}", text),
    )


def stopping() -> WorkspacedError:
    """The server is going down; the same call may succeed on the next one."""
    return WorkspacedError(Code.UNAVAILABLE, "SERVER_DRAINING", "the server is shutting down", retry_after=1.0)
