"""What a backend has to do: own sandboxes, and open one byte stream to the guest inside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Protocol, runtime_checkable


class Phase(Enum):
    """Steps of provisioning; names as in the API."""

    QUEUED = 1
    PULLING_IMAGE = 2
    CREATING = 3
    STARTING = 4
    CONNECTING = 5
    INSTALLING_PYTHON = 6


class Progress(Protocol):
    """Told how far provisioning is: ``fraction`` from 0 to 1, or None when unknown. Cheap; may be called often."""

    def __call__(self, phase: Phase, fraction: float | None = None, message: str = "") -> None: ...


class ByteStream(Protocol):
    """A reliable, ordered byte stream. One task may send while another receives."""

    async def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of ``data``. Raises OSError when the stream is broken. Cancellation breaks the stream."""

    async def receive(self, max_bytes: int = 262144) -> bytes:
        """Return 1 to ``max_bytes`` bytes, or ``b""`` at the end. Raises OSError. Cancellation loses nothing."""

    async def aclose(self) -> None:
        """Close both directions. Idempotent; never raises."""


@runtime_checkable
class GatheringStream(ByteStream, Protocol):
    """A byte stream that sends what lies in several places without copying it together first."""

    async def send_parts(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send some buffers one after the other; else as `send`."""


class DriverError(Exception):
    """A backend refused or failed.

    ``reason`` is one of the API's reasons; ``retryable`` says whether the same call may succeed later; ``message`` may
    be shown to the caller.
    """

    def __init__(self, reason: str, message: str, *, retryable: bool = False, **metadata: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retryable = retryable
        self.metadata = metadata


class SandboxGone(DriverError):
    """The sandbox does not exist any more."""

    def __init__(self, message: str) -> None:
        super().__init__("WORKSPACE_UNREACHABLE", message, retryable=True)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do; fields as in ``workspaced.v1.Capabilities``."""

    isolation: bool = False
    persistence: bool = False
    suspends_memory: bool = False
    limits_cpu: bool = False
    limits_memory: bool = False
    limits_disk: bool = False
    limits_pids: bool = False
    gpus: bool = False
    network_none: bool = False
    network_allow_list: bool = False
    images: bool = False


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a backend answers now; ``reason`` says why not, ``version`` what answered."""

    available: bool
    reason: str = ""
    version: str = ""
    capabilities: Capabilities = field(default_factory=Capabilities)


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """A workspace's spec as a driver sees it: validated, defaults and template applied.

    ``key`` is a hash of (owner, workspace_id) in lower-case hexadecimal, the only identity that may go into names,
    paths and labels. ``labels`` are for people and the sweep. ``options`` are the backend's own, as a plain dict with
    the proto's field
    names. ``token`` is what the guest must prove. Sizes in bytes; 0 is the backend's default.
    """

    key: str
    token: str
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    cpu_millis: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    pids: int = 0
    gpus: int = 0
    network: str = "default"  # default | none | allow_list
    network_allow: tuple[str, ...] = ()
    workdir: str = ""
    user: str = ""
    persistent: bool | None = None  # None: the backend's default
    install_python: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SandboxRef:
    """How to find a sandbox again. ``data`` is JSON-able and stored in the registry; only its driver reads it.

    ``workdir`` is as processes inside see it. ``token`` as in the spec.
    """

    key: str
    token: str
    workdir: str
    data: Mapping[str, Any] = field(default_factory=dict)
    persistent: bool = True


class SandboxState(Enum):
    """What a provider says of a sandbox."""

    RUNNING = "running"
    SUSPENDED = "suspended"  # its files can be resumed by `provision`
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    """State, and why."""

    state: SandboxState
    detail: str = ""


class Driver(Protocol):
    """One backend. A driver owns sandboxes; it knows nothing of processes, files or MCP.

    All methods raise DriverError; all may be cancelled. Methods for different keys may run at the same time; the
    caller serialises those of one key.
    """

    name: str

    async def probe(self) -> Availability:
        """Whether the backend answers now. Never raises."""

    async def provision(self, spec: SandboxSpec, report: Progress) -> SandboxRef:
        """Create the sandbox, or find the one with this key (resuming it). Idempotent by key.

        On an error or cancellation nothing that this call made is left; what existed before stays.
        """

    async def open_channel(self, ref: SandboxRef) -> ByteStream:
        """Start the guest if it does not run, and open a new byte stream to it; several may be open.

        Raises SandboxGone when the sandbox does not run; DriverError GUEST_PYTHON_MISSING when the image has no
        python3.
        """

    async def status(self, ref: SandboxRef) -> SandboxStatus:
        """Ask the provider. Raises DriverError (retryable) when it cannot be asked, never guesses."""

    async def renew(self, ref: SandboxRef, until: datetime) -> None:
        """Extend the provider's own time-to-live where there is one."""

    async def suspend(self, ref: SandboxRef) -> None:
        """What CloseWorkspace does. The guest was told to stop before. Idempotent."""

    async def destroy(self, ref: SandboxRef) -> None:
        """Remove the sandbox and its files. Idempotent."""

    def list(self) -> AsyncIterator[SandboxRef]:
        """All sandboxes of this server's installation, for the sweep; ``token`` is empty."""
        ...

    async def aclose(self) -> None:
        """Release clients and threads. Sandboxes go on."""
