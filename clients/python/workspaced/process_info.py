"""What is known of a process: its record, its end, and the events of its output."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from .enums import EXIT_REASONS, PROCESS_STATES, ExitReason, ProcessState
from .info import when
from .v1 import process_pb2


class Output(NamedTuple):
    """Bytes that a process wrote."""

    stream: str
    """``"stdout"``, ``"stderr"`` or ``"pty"``."""
    data: bytes
    offset: int
    """Offset of the first byte in the journal, which counts the bytes of all streams."""


class Gap(NamedTuple):
    """Bytes from ``start`` to before ``end`` of the journal are no longer kept.

    Has what :class:`Output` has, without a byte in it, so that who only wants the bytes that are left reads both alike.
    """

    start: int
    end: int

    @property
    def stream(self) -> str:
        """Of no stream: ``""``."""
        return ""

    @property
    def data(self) -> bytes:
        """Nothing: ``b""``."""
        return b""

    @property
    def offset(self) -> int:
        """``start``."""
        return self.start


@dataclass(frozen=True)
class ResourceUsage:
    """What a process and its reaped children used."""

    user_seconds: float
    system_seconds: float
    max_rss_bytes: int
    """Peak resident memory of the largest process."""


@dataclass(frozen=True)
class Exit:
    """How a process ended. At most one of ``exit_code`` and ``signal`` is set; neither with reason LOST."""

    reason: ExitReason
    exit_code: int | None
    signal: str | None
    """Name without SIG, for example ``"KILL"``."""
    usage: ResourceUsage | None
    output_incomplete: bool
    """Some output was or may have been lost."""
    drained: bool
    """Another process still held the output open when the exit was reported."""
    exit_time: datetime | None

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with code 0."""
        return self.reason is ExitReason.EXITED and self.exit_code == 0

    def describe(self) -> str:
        """How it ended, in words."""
        status = f"exit code {self.exit_code}" if self.exit_code is not None else f"signal {self.signal or 'unknown'}"
        if self.reason in (ExitReason.EXITED, ExitReason.SIGNALED):
            return status
        return f"{self.reason.value.lower().replace('_', ' ')} ({status})"

    @classmethod
    def from_proto(cls, proto: process_pb2.ProcessExit) -> Exit:
        """From the message."""
        status = proto.WhichOneof("status")
        usage = None
        if proto.HasField("usage"):
            user, system = proto.usage.user_time, proto.usage.system_time
            usage = ResourceUsage(
                user.seconds + user.nanos / 1e9, system.seconds + system.nanos / 1e9, proto.usage.max_rss_bytes
            )
        return cls(
            reason=EXIT_REASONS.member(proto.reason),
            exit_code=proto.exit_code if status == "exit_code" else None,
            signal=proto.signal if status == "signal" else None,
            usage=usage,
            output_incomplete=proto.output_incomplete,
            drained=proto.drained,
            exit_time=when(proto.exit_time),
        )


@dataclass(frozen=True)
class ProcessInfo:
    """A process as its workspace knows it."""

    process_id: str
    pid: int
    state: ProcessState
    command: str | tuple[str, ...]
    """A shell's command line, or a program and its arguments."""
    start_time: datetime | None
    first_offset: int
    """Offset of the oldest byte of output that is still kept."""
    next_offset: int
    """Length of all output so far."""
    stdin_offset: int
    """How many bytes of standard input were accepted."""
    stdin_open: bool
    exit: Exit | None
    spec: process_pb2.ProcessSpec
    """Its whole spec, with secrets redacted."""

    @classmethod
    def from_proto(cls, proto: process_pb2.Process) -> ProcessInfo:
        """From the message."""
        spec = proto.spec
        return cls(
            process_id=proto.process_id,
            pid=proto.pid,
            state=PROCESS_STATES.member(proto.state),
            command=tuple(spec.argv.args) if spec.WhichOneof("command") == "argv" else spec.shell_command,
            start_time=when(proto.start_time),
            first_offset=proto.first_offset,
            next_offset=proto.next_offset,
            stdin_offset=proto.stdin_offset,
            stdin_open=proto.stdin_open,
            exit=Exit.from_proto(proto.exit) if proto.HasField("exit") else None,
            spec=spec,
        )
