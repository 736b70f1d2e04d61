"""What the server tells of workspaces, ports and itself, as frozen dataclasses. Times are aware, in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from google.protobuf.timestamp_pb2 import Timestamp

from .enums import BACKENDS, PHASES, WORKSPACE_STATES, Backend, Phase, WorkspaceState
from .v1 import options_pb2, port_pb2, server_pb2, workspace_pb2


def when(stamp: Timestamp) -> datetime | None:
    """A time, or ``None`` for one that is not set."""
    return stamp.ToDatetime(timezone.utc) if stamp.seconds or stamp.nanos else None


@dataclass(frozen=True)
class Progress:
    """How far a workspace in state INITIALIZING is."""

    phase: Phase
    fraction: float | None
    """Part of the phase that is done, 0 to 1; ``None`` when unknown."""
    message: str


@dataclass(frozen=True)
class WorkspaceInfo:
    """A workspace as the server knows it."""

    workspace_id: str
    backend: Backend
    state: WorkspaceState
    state_reason: str
    """Why it is in this state, for people; set with DEGRADED and FAILED."""
    image: str
    workdir: str
    """Absolute path of its directory, as its processes see it."""
    labels: Mapping[str, str]
    owner: str
    create_time: datetime | None
    update_time: datetime | None
    last_used_time: datetime | None
    expire_time: datetime | None
    """When it will be closed for idleness."""
    progress: Progress | None
    revision: int
    """Grows with every change."""
    spec: workspace_pb2.WorkspaceSpec
    """Its whole spec, with secrets redacted."""

    @classmethod
    def from_proto(cls, proto: workspace_pb2.Workspace) -> WorkspaceInfo:
        """From the message."""
        progress = None
        if proto.HasField("progress"):
            part = proto.progress
            progress = Progress(PHASES.member(part.phase), part.fraction if part.fraction >= 0 else None, part.message)
        return cls(
            workspace_id=proto.workspace_id,
            backend=BACKENDS.member(proto.backend),
            state=WORKSPACE_STATES.member(proto.state),
            state_reason=proto.state_reason,
            image=proto.spec.image,
            workdir=proto.workdir,
            labels=dict(proto.labels),
            owner=proto.owner,
            create_time=when(proto.create_time),
            update_time=when(proto.update_time),
            last_used_time=when(proto.last_used_time),
            expire_time=when(proto.expire_time),
            progress=progress,
            revision=proto.revision,
            spec=proto.spec,
        )


@dataclass(frozen=True)
class PortInfo:
    """A TCP port that listens inside a workspace."""

    port: int
    address: str
    process_id: str
    """The process that listens; empty when unknown."""
    pid: int

    @classmethod
    def from_proto(cls, proto: port_pb2.Port) -> PortInfo:
        """From the message."""
        return cls(proto.port, proto.address, proto.process_id, proto.pid)


@dataclass(frozen=True)
class BackendInfo:
    """What the server knows of a backend."""

    backend: Backend
    available: bool
    unavailable_reason: str
    version: str
    capabilities: frozenset[str]
    """Names of the fields of ``workspaced.v1.Capabilities`` that hold, for example ``"isolation"``."""

    @classmethod
    def from_proto(cls, proto: server_pb2.BackendInfo) -> BackendInfo:
        """From the message."""
        capabilities = frozenset(field.name for field, value in proto.capabilities.ListFields() if value is True)
        backend = BACKENDS.member(proto.backend)
        return cls(backend, proto.available, proto.unavailable_reason, proto.version, capabilities)


@dataclass(frozen=True)
class Limits:
    """What the server accepts, in bytes but for the page size."""

    max_request_bytes: int
    max_chunk_bytes: int
    max_run_output_bytes: int
    max_journal_bytes: int
    max_page_size: int


@dataclass(frozen=True)
class ServerInfo:
    """What a server is and can do."""

    version: str
    api_revision: int
    backends: tuple[BackendInfo, ...]
    default_backend: Backend
    limits: Limits
    principal: str
    scopes: tuple[str, ...]
    """What the token allows: ``"read"``, ``"execute"``, ``"manage"``, ``"admin"``."""
    start_time: datetime | None
    instance_id: str
    """Changes with each start of the server."""
    templates: tuple[str, ...]

    @classmethod
    def from_proto(cls, proto: server_pb2.GetServerInfoResponse) -> ServerInfo:
        """From the message."""
        limits = proto.limits
        names = options_pb2.Scope.DESCRIPTOR.values_by_number
        return cls(
            version=proto.version,
            api_revision=proto.api_revision,
            backends=tuple(BackendInfo.from_proto(backend) for backend in proto.backends),
            default_backend=BACKENDS.member(proto.default_backend),
            limits=Limits(
                limits.max_request_bytes,
                limits.max_chunk_bytes,
                limits.max_run_output_bytes,
                limits.max_journal_bytes,
                limits.max_page_size,
            ),
            principal=proto.principal,
            scopes=tuple(names[n].name.removeprefix("SCOPE_").lower() for n in proto.scopes if n in names),
            start_time=when(proto.start_time),
            instance_id=proto.instance_id,
            templates=tuple(proto.templates),
        )
