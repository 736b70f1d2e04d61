"""Every error that the server reports, in one place.

Code below the API raises :class:`WorkspacedError`; one interceptor turns it into a gRPC status with
``google.rpc`` details. The text of any other exception never leaves the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import grpc

DOMAIN = "workspaced"


class Code(Enum):
    """Status codes that the server uses."""

    CANCELLED = grpc.StatusCode.CANCELLED
    INVALID_ARGUMENT = grpc.StatusCode.INVALID_ARGUMENT
    DEADLINE_EXCEEDED = grpc.StatusCode.DEADLINE_EXCEEDED
    NOT_FOUND = grpc.StatusCode.NOT_FOUND
    ALREADY_EXISTS = grpc.StatusCode.ALREADY_EXISTS
    PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED
    RESOURCE_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
    FAILED_PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
    ABORTED = grpc.StatusCode.ABORTED
    OUT_OF_RANGE = grpc.StatusCode.OUT_OF_RANGE
    UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED
    INTERNAL = grpc.StatusCode.INTERNAL
    UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
    DATA_LOSS = grpc.StatusCode.DATA_LOSS
    UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field of a request that breaks a rule; ``field`` is its proto path, for example ``spec.resources.pids``."""

    field: str
    description: str


@dataclass(eq=False, slots=True)
class WorkspacedError(Exception):
    """An error that a caller is told.

    ``message`` names the cause and the way out, and holds nothing internal. ``retry_after`` is in seconds.
    ``resource`` is (type, name) for ``google.rpc.ResourceInfo``.
    """

    code: Code
    reason: str
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    violations: Sequence[FieldViolation] = ()
    retry_after: float | None = None
    resource: tuple[str, str] | None = None
    quota: tuple[str, str] | None = None

    def __str__(self) -> str:
        return f"{self.code.name}/{self.reason}: {self.message}"


def invalid(*violations: FieldViolation) -> WorkspacedError:
    """INVALID_ARGUMENT for these fields."""
    text = "; ".join(f"{v.field}: {v.description}" for v in violations)
    return WorkspacedError(Code.INVALID_ARGUMENT, "ARGUMENT_INVALID", text, violations=violations)


def workspace_not_found(workspace_id: str) -> WorkspacedError:
    """The workspace does not exist, or belongs to somebody else."""
    return WorkspacedError(
        Code.NOT_FOUND,
        "WORKSPACE_NOT_FOUND",
        f"workspace {workspace_id!r} does not exist",
        {"workspace_id": workspace_id},
        resource=("workspace", workspace_id),
    )


def unreachable(workspace_id: str, detail: str) -> WorkspacedError:
    """The sandbox is gone or does not answer; InitializeWorkspace recovers it."""
    return WorkspacedError(
        Code.UNAVAILABLE,
        "WORKSPACE_UNREACHABLE",
        f"workspace {workspace_id!r} cannot be reached: {detail}",
        {"workspace_id": workspace_id},
        retry_after=1.0,
        resource=("workspace", workspace_id),
    )
