"""What is known of a file, and what happens to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from .enums import CHANGE_KINDS, FILE_TYPES, ChangeKind, FileType
from .info import when
from .v1 import file_pb2


@dataclass(frozen=True)
class FileInfo:
    """A file, directory or link."""

    path: str
    """Relative to the workspace's directory when it is inside, else absolute."""
    type: FileType
    size: int
    mode: int
    modify_time: datetime | None
    user: str
    group: str
    link_target: str
    sha256: str
    """Hash of its content in hexadecimal, when it was asked for."""
    raw_path: bytes
    """The path's bytes when they are not UTF-8, else empty."""

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self.type is FileType.DIRECTORY

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return self.type is FileType.FILE

    @classmethod
    def from_proto(cls, proto: file_pb2.FileInfo) -> FileInfo:
        """From the message."""
        return cls(
            path=proto.path,
            type=FILE_TYPES.member(proto.type),
            size=proto.size,
            mode=proto.mode,
            modify_time=when(proto.modify_time),
            user=proto.user,
            group=proto.group,
            link_target=proto.link_target,
            sha256=proto.sha256,
            raw_path=proto.raw_path,
        )


@dataclass(frozen=True)
class FileChange:
    """A change of a file."""

    kind: ChangeKind
    path: str
    to: str
    """Its new path, with MOVED."""
    type: FileType

    @classmethod
    def from_proto(cls, proto: file_pb2.FileChange) -> FileChange:
        """From the message."""
        return cls(CHANGE_KINDS.member(proto.kind), proto.path, proto.to, FILE_TYPES.member(proto.type))


@dataclass(frozen=True)
class WatchReady:
    """The watch stands: every later change is reported. It comes again after a broken connection: list again then."""

    polling: bool
    """Changes are found by polling every second."""


@dataclass(frozen=True)
class WatchOverflow:
    """Changes came faster than they could be reported: list again."""
