"""The enumerations of the API as strings: each member equals its name, so ``info.state == "READY"`` holds."""

from __future__ import annotations

from enum import Enum
from typing import Generic, TypeVar

from google.protobuf.descriptor import EnumDescriptor

from .v1 import file_pb2, lifecycle_pb2, process_pb2, workspace_pb2


class _Name(str, Enum):
    def __str__(self) -> str:
        return str(self.value)


class Backend(_Name):
    """Where a workspace runs."""

    UNSPECIFIED = "unspecified"
    """The server's default; also a backend that this version does not know."""
    LOCAL = "local"
    DOCKER = "docker"
    E2B = "e2b"
    DAYTONA = "daytona"
    KUBERNETES = "kubernetes"
    OPENSANDBOX = "opensandbox"


class WorkspaceState(_Name):
    """Where a workspace is in its life."""

    UNSPECIFIED = "UNSPECIFIED"
    INITIALIZING = "INITIALIZING"
    READY = "READY"
    CLOSING = "CLOSING"
    CLOSED = "CLOSED"
    DEGRADED = "DEGRADED"
    DELETING = "DELETING"
    DELETED = "DELETED"
    FAILED = "FAILED"


class Phase(_Name):
    """What is being done while a workspace is INITIALIZING."""

    UNSPECIFIED = "UNSPECIFIED"
    QUEUED = "QUEUED"
    PULLING_IMAGE = "PULLING_IMAGE"
    CREATING = "CREATING"
    STARTING = "STARTING"
    CONNECTING = "CONNECTING"
    INSTALLING_PYTHON = "INSTALLING_PYTHON"


class AllocationPolicy(_Name):
    """Who shares a workspace that is acquired."""

    UNSPECIFIED = "UNSPECIFIED"
    PER_USER = "PER_USER"
    PER_AGENT = "PER_AGENT"
    PER_SESSION = "PER_SESSION"


class ExitReason(_Name):
    """Why a process ended."""

    UNSPECIFIED = "UNSPECIFIED"
    EXITED = "EXITED"
    SIGNALED = "SIGNALED"
    TIMED_OUT = "TIMED_OUT"
    OOM_KILLED = "OOM_KILLED"
    CANCELLED = "CANCELLED"
    WORKSPACE_STOPPED = "WORKSPACE_STOPPED"
    LOST = "LOST"


class ProcessState(_Name):
    """Whether a process runs."""

    UNSPECIFIED = "UNSPECIFIED"
    RUNNING = "RUNNING"
    EXITED = "EXITED"


class FileType(_Name):
    """What a file is."""

    UNSPECIFIED = "UNSPECIFIED"
    FILE = "FILE"
    DIRECTORY = "DIRECTORY"
    SYMLINK = "SYMLINK"
    OTHER = "OTHER"


class ChangeKind(_Name):
    """What happened to a file."""

    UNSPECIFIED = "UNSPECIFIED"
    CREATED = "CREATED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    MOVED = "MOVED"


_E = TypeVar("_E", bound=_Name)


class EnumTable(Generic[_E]):
    """Translates one enumeration between its proto numbers and its strings."""

    def __init__(self, enum: type[_E], descriptor: EnumDescriptor, prefix: str) -> None:
        self._by_name = {member.name: descriptor.values_by_name[prefix + member.name].number for member in enum}
        self._by_number = {number: enum[name] for name, number in self._by_name.items()}
        self._unknown = enum["UNSPECIFIED"]
        self._title = enum.__name__

    def member(self, number: int) -> _E:
        """The member; UNSPECIFIED for a number of a newer server."""
        return self._by_number.get(number, self._unknown)

    def number(self, value: str) -> int:
        """The number for a name in any case. Raises :class:`ValueError` with the names that exist."""
        name = str(value).upper()
        if name not in self._by_name:
            known = ", ".join(name.lower() for name in self._by_name if name != "UNSPECIFIED")
            raise ValueError(f"{value!r} is no {self._title}: {known}")
        return self._by_name[name]


ALLOCATION_POLICIES = EnumTable(AllocationPolicy, lifecycle_pb2.AllocationPolicy.DESCRIPTOR, "ALLOCATION_POLICY_")
BACKENDS = EnumTable(Backend, workspace_pb2.Backend.DESCRIPTOR, "BACKEND_")
WORKSPACE_STATES = EnumTable(WorkspaceState, workspace_pb2.WorkspaceState.DESCRIPTOR, "WORKSPACE_STATE_")
PHASES = EnumTable(Phase, workspace_pb2.Progress.Phase.DESCRIPTOR, "PHASE_")
EXIT_REASONS = EnumTable(ExitReason, process_pb2.ExitReason.DESCRIPTOR, "EXIT_REASON_")
PROCESS_STATES = EnumTable(ProcessState, process_pb2.ProcessState.DESCRIPTOR, "PROCESS_STATE_")
FILE_TYPES = EnumTable(FileType, file_pb2.FileType.DESCRIPTOR, "FILE_TYPE_")
CHANGE_KINDS = EnumTable(ChangeKind, file_pb2.FileChange.Kind.DESCRIPTOR, "KIND_")
