"""Every error of this library.

::

    WorkspacedError                  has .code .reason .message .metadata .request_id .retry_after .violations
    ├── InvalidArgument              a field of the request breaks a rule; .violations names it
    │   ├── SkillInvalid             no SKILL.md with a name and a description
    │   └── ArchiveInvalid           it cannot be read, or would write elsewhere
    ├── OutOfRange                   an offset that does not exist
    ├── NotFound
    │   ├── WorkspaceNotFound
    │   ├── ProcessNotFound
    │   ├── FileNotFound
    │   ├── LeaseNotFound
    │   ├── McpNotFound
    │   ├── SkillNotFound
    │   ├── ToolNotFound
    │   └── OffloadNotFound
    ├── AlreadyExists
    │   ├── SpecMismatch             the workspace exists with another spec
    │   ├── ProcessExists            the process exists with another spec
    │   ├── FileExists
    │   ├── McpExists
    │   └── SkillExists
    ├── FailedPrecondition
    │   ├── WorkspaceNotReady        closed, failed or being changed
    │   ├── ProcessStartFailed       the program could not be started
    │   ├── ProcessExited            it cannot be signalled any more
    │   ├── StdinClosed              nobody reads standard input any more
    │   ├── BackendUnavailable
    │   ├── ImageNotFound
    │   ├── GuestPythonMissing       see ``install_python``
    │   ├── NotAFile
    │   ├── NotADirectory
    │   ├── IsADirectory
    │   ├── DirectoryNotEmpty
    │   ├── PortRefused              nothing listens on the port
    │   └── McpStartFailed           an MCP server could not be started or spoken to
    ├── PermissionDenied
    │   └── FilePermissionDenied
    ├── Unauthenticated
    ├── ResourceExhausted
    │   ├── DiskFull
    │   └── QuotaExceeded
    ├── Aborted
    │   └── ContentChanged           the file is no longer what it was
    ├── DataLoss
    │   ├── HashMismatch
    │   └── OutputLost               output that is no longer kept; .start and .end are its offsets
    ├── Unavailable                  the server cannot be reached
    │   ├── Unreachable              the server cannot reach the workspace's sandbox
    │   ├── McpUnavailable           an MCP server cannot be used now
    │   └── Draining                 the server is being stopped
    ├── DeadlineExceeded             the call's ``timeout`` passed (never the process's: that is an exit)
    ├── Cancelled
    ├── Unimplemented
    ├── Internal                     a fault of the server; any status that this version does not know
    └── CommandFailed                raised by Result.check(); has .result

A reason that this version does not know becomes the class of its status code, so a newer server never
breaks an ``except`` of an older client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from .result import Result

_DOMAIN = "workspaced"


class Violation(NamedTuple):
    """One field of a request that breaks a rule."""

    field: str
    """Its path in the request, for example ``spec.resources.pids``."""
    description: str
    """The rule, and what was found."""


class WorkspacedError(Exception):
    """Something failed.

    ``code`` is the name of a gRPC status, ``reason`` the stable name of the cause (empty when the transport failed),
    ``metadata`` its values, ``request_id`` what to look for in the server's log, ``retry_after`` seconds or ``None``.
    """

    default_code: ClassVar[str] = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        request_id: str = "",
        retry_after: float | None = None,
        violations: Sequence[Violation] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.reason = reason
        self.metadata: Mapping[str, str] = dict(metadata or {})
        self.request_id = request_id
        self.retry_after = retry_after
        self.violations = tuple(violations)

    def __str__(self) -> str:
        name = f"{self.code}/{self.reason}" if self.reason else self.code
        return f"{name}: {self.message}"


class InvalidArgument(WorkspacedError):
    """A field of the request breaks a rule."""

    default_code = "INVALID_ARGUMENT"


class SkillInvalid(InvalidArgument):
    """There is no ``SKILL.md`` with a name and a description, or it cannot be read."""


class ArchiveInvalid(InvalidArgument):
    """The archive cannot be read, or would write outside of the skill's directory."""


class OutOfRange(WorkspacedError):
    """An offset that does not exist."""

    default_code = "OUT_OF_RANGE"


class NotFound(WorkspacedError):
    """It does not exist, or belongs to somebody else."""

    default_code = "NOT_FOUND"


class WorkspaceNotFound(NotFound):
    """There is no such workspace."""


class ProcessNotFound(NotFound):
    """There is no such process, or it ended so long ago that it is no longer kept."""


class FileNotFound(NotFound):
    """There is no such file; the workspace said so itself."""


class LeaseNotFound(NotFound):
    """The lease has expired."""


class McpNotFound(NotFound):
    """No MCP server of that name is declared for the agent and session."""


class SkillNotFound(NotFound):
    """The agent has no skill of that name."""


class ToolNotFound(NotFound):
    """There is no tool of that name."""


class OffloadNotFound(NotFound):
    """Nothing is stored under that path."""


class AlreadyExists(WorkspacedError):
    """It exists already."""

    default_code = "ALREADY_EXISTS"


class SpecMismatch(AlreadyExists):
    """The workspace exists with another spec."""


class ProcessExists(AlreadyExists):
    """The process exists with another spec."""


class FileExists(AlreadyExists):
    """The file exists."""


class McpExists(AlreadyExists):
    """Another MCP server has the name."""


class SkillExists(AlreadyExists):
    """Another skill has the name; ``replace=True`` replaces it."""


class FailedPrecondition(WorkspacedError):
    """Something has to change first."""

    default_code = "FAILED_PRECONDITION"


class WorkspaceNotReady(FailedPrecondition):
    """The workspace is closed, failed or being changed; ``initialize`` makes it ready."""


class ProcessStartFailed(FailedPrecondition):
    """The program could not be started: not found, not executable, no such directory or user."""


class ProcessExited(FailedPrecondition):
    """The process has ended."""


class StdinClosed(FailedPrecondition):
    """Standard input is closed, or nobody reads it any more."""


class BackendUnavailable(FailedPrecondition):
    """The backend cannot be used on this server; ``Client.server_info`` says why."""


class ImageNotFound(FailedPrecondition):
    """The image does not exist, or may not be pulled."""


class GuestPythonMissing(FailedPrecondition):
    """The image has no python3; ``install_python=True`` installs it."""


class McpStartFailed(FailedPrecondition):
    """An MCP server could not be started, or does not speak MCP; ``metadata["stderr_tail"]`` may say why."""


class NotAFile(FailedPrecondition):
    """It is not a regular file."""


class NotADirectory(FailedPrecondition):
    """It, or a part of its path, is not a directory."""


class IsADirectory(FailedPrecondition):
    """It is a directory."""


class DirectoryNotEmpty(FailedPrecondition):
    """The directory has entries; ``recursive=True`` removes them too."""


class PortRefused(FailedPrecondition):
    """Nothing listens on the port."""


class PermissionDenied(WorkspacedError):
    """The token may not do this."""

    default_code = "PERMISSION_DENIED"


class FilePermissionDenied(PermissionDenied):
    """The workspace's user may not do this to the file."""


class Unauthenticated(WorkspacedError):
    """No token, or one that the server does not know."""

    default_code = "UNAUTHENTICATED"


class ResourceExhausted(WorkspacedError):
    """A limit was reached."""

    default_code = "RESOURCE_EXHAUSTED"


class DiskFull(ResourceExhausted):
    """The workspace's disk is full."""


class QuotaExceeded(ResourceExhausted):
    """A quota of the server or the provider was reached."""


class Aborted(WorkspacedError):
    """It changed in the meantime."""

    default_code = "ABORTED"


class ContentChanged(Aborted):
    """The file is no longer what it was."""


class DataLoss(WorkspacedError):
    """Data is damaged or gone."""

    default_code = "DATA_LOSS"


class HashMismatch(DataLoss):
    """The content does not have the promised hash; nothing was written."""


class OutputLost(DataLoss):
    """Output between two offsets is no longer kept. Iteration can go on after it."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(
            f"{end - start} bytes of output, from offset {start}, are no longer kept", reason="OUTPUT_LOST"
        )
        self.start = start
        self.end = end


class Unavailable(WorkspacedError):
    """The server cannot be reached. What was called may or may not have happened."""

    default_code = "UNAVAILABLE"


class McpUnavailable(Unavailable):
    """An MCP server cannot be used now; ``retry_after`` says when it is tried again."""


class Unreachable(Unavailable):
    """The server cannot reach the workspace's sandbox; ``initialize`` recovers it."""


class Draining(Unavailable):
    """The server is being stopped."""


class DeadlineExceeded(WorkspacedError):
    """The call took longer than its ``timeout``."""

    default_code = "DEADLINE_EXCEEDED"


class Cancelled(WorkspacedError):
    """The call was cancelled, and not by this program's own cancellation."""

    default_code = "CANCELLED"


class Unimplemented(WorkspacedError):
    """The server does not have this, or not yet."""

    default_code = "UNIMPLEMENTED"


class Internal(WorkspacedError):
    """A fault of the server."""

    default_code = "INTERNAL"


class CommandFailed(WorkspacedError):
    """A command did not exit with 0. The call itself went well, so ``code`` is ``OK``."""

    default_code = "OK"

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message, reason="COMMAND_FAILED")
        self.result = result


_BY_CODE: dict[str, type[WorkspacedError]] = {
    cls.default_code: cls
    for cls in (
        InvalidArgument, OutOfRange, NotFound, AlreadyExists, FailedPrecondition, PermissionDenied, Unauthenticated,
        ResourceExhausted, Aborted, DataLoss, Unavailable, DeadlineExceeded, Cancelled, Unimplemented, Internal,
    )
}  # fmt: skip

_BY_REASON: dict[str, type[WorkspacedError]] = {
    "WORKSPACE_NOT_FOUND": WorkspaceNotFound,
    "PROCESS_NOT_FOUND": ProcessNotFound,
    "FILE_NOT_FOUND": FileNotFound,
    "LEASE_NOT_FOUND": LeaseNotFound,
    "MCP_NOT_FOUND": McpNotFound,
    "SKILL_NOT_FOUND": SkillNotFound,
    "TOOL_NOT_FOUND": ToolNotFound,
    "OFFLOAD_NOT_FOUND": OffloadNotFound,
    "MCP_EXISTS": McpExists,
    "SKILL_EXISTS": SkillExists,
    "SKILL_INVALID": SkillInvalid,
    "ARCHIVE_INVALID": ArchiveInvalid,
    "ARCHIVE_UNSAFE": ArchiveInvalid,
    "MCP_START_FAILED": McpStartFailed,
    "MCP_CONNECT_FAILED": McpStartFailed,
    "MCP_PROTOCOL_ERROR": McpStartFailed,
    "MCP_UNAVAILABLE": McpUnavailable,
    "WORKSPACE_SPEC_MISMATCH": SpecMismatch,
    "PROCESS_EXISTS": ProcessExists,
    "FILE_EXISTS": FileExists,
    "WORKSPACE_NOT_READY": WorkspaceNotReady,
    "PROCESS_START_FAILED": ProcessStartFailed,
    "PROCESS_EXITED": ProcessExited,
    "STDIN_CLOSED": StdinClosed,
    "BACKEND_UNAVAILABLE": BackendUnavailable,
    "IMAGE_NOT_FOUND": ImageNotFound,
    "GUEST_PYTHON_MISSING": GuestPythonMissing,
    "NOT_A_FILE": NotAFile,
    "NOT_A_DIRECTORY": NotADirectory,
    "IS_A_DIRECTORY": IsADirectory,
    "DIRECTORY_NOT_EMPTY": DirectoryNotEmpty,
    "PORT_REFUSED": PortRefused,
    "FILE_PERMISSION_DENIED": FilePermissionDenied,
    "DISK_FULL": DiskFull,
    "QUOTA_EXCEEDED": QuotaExceeded,
    "CONTENT_CHANGED": ContentChanged,
    "HASH_MISMATCH": HashMismatch,
    "WORKSPACE_UNREACHABLE": Unreachable,
    "SERVER_DRAINING": Draining,
}


def from_status(code: str, message: str, metadata: Mapping[str, str | bytes]) -> WorkspacedError:
    """The error for a status: ``code`` is its name, ``metadata`` its trailers."""
    reason, retry_after = "", None
    values: dict[str, str] = {}
    violations: list[Violation] = []
    request_id = _text(metadata.get("x-request-id", ""))
    for detail in _details(metadata.get("grpc-status-details-bin", b"")):
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            info = error_details_pb2.ErrorInfo()
            detail.Unpack(info)
            if info.domain == _DOMAIN:
                reason, values = info.reason, dict(info.metadata)
        elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            retry = error_details_pb2.RetryInfo()
            detail.Unpack(retry)
            retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
        elif detail.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            bad = error_details_pb2.BadRequest()
            detail.Unpack(bad)
            violations = [Violation(v.field, v.description) for v in bad.field_violations]
        elif detail.Is(error_details_pb2.RequestInfo.DESCRIPTOR):
            request = error_details_pb2.RequestInfo()
            detail.Unpack(request)
            request_id = request.request_id or request_id
    generic = _BY_CODE.get(code, Internal)
    cls = _BY_REASON.get(reason, generic)
    if not issubclass(cls, generic):
        cls = generic  # the reason was given another code since: the code is what callers handle
    return cls(
        message, code=code, reason=reason, metadata=values, request_id=request_id, retry_after=retry_after,
        violations=violations,
    )  # fmt: skip


def from_rpc(error: grpc.aio.AioRpcError) -> WorkspacedError:
    """The error for what grpc raised."""
    return from_status(error.code().name, error.details() or "", dict(error.trailing_metadata() or ()))


def connection_lost(error: WorkspacedError) -> bool:
    """Whether the connection broke, or the server is going: the same call may work on the next connection."""
    if error.reason:
        return isinstance(error, Draining)
    if error.code == "INTERNAL":
        return "RST_STREAM" in error.message  # a proxy or a dying server ended the stream without a status
    return error.code in ("UNAVAILABLE", "CANCELLED")


def _details(serialized: str | bytes) -> Sequence[Any]:
    status = status_pb2.Status()
    try:
        status.ParseFromString(serialized if isinstance(serialized, bytes) else serialized.encode())
    except DecodeError:
        return ()  # damaged details must not hide the status itself
    return tuple(status.details)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
