"""Files between the guest and the API."""

from __future__ import annotations

from typing import Final

from workspaced.v1 import file_pb2
from workspaced_server.api import answers

_TYPES: Final = {
    "file": file_pb2.FILE_TYPE_FILE,
    "directory": file_pb2.FILE_TYPE_DIRECTORY,
    "symlink": file_pb2.FILE_TYPE_SYMLINK,
    "fifo": file_pb2.FILE_TYPE_OTHER,
    "socket": file_pb2.FILE_TYPE_OTHER,
    "device": file_pb2.FILE_TYPE_OTHER,
}

_KINDS: Final = {
    "created": file_pb2.FileChange.KIND_CREATED,
    "modified": file_pb2.FileChange.KIND_MODIFIED,
    "deleted": file_pb2.FileChange.KIND_DELETED,
    "moved": file_pb2.FileChange.KIND_MOVED,
}


def file_info(stat: answers.Answer, sha256: str = "") -> file_pb2.FileInfo:
    """The API's FileInfo of a guest's stat. Raises WorkspacedError GUEST_ERROR when it is malformed."""
    kind = _TYPES.get(answers.text(stat, "type"))
    if kind is None:
        raise answers.malformed()
    return file_pb2.FileInfo(
        path=answers.text(stat, "path"),
        raw_path=_raw(stat, "path"),
        type=kind,
        size=answers.integer(stat, "size"),
        mode=answers.integer(stat, "mode", high=0o7777),
        modify_time=answers.nanoseconds(_nanoseconds(stat)),
        user=answers.text(stat, "user"),
        group=answers.text(stat, "group"),
        link_target=answers.text(stat, "target"),
        sha256=sha256,
    )


def file_change(event: answers.Answer) -> file_pb2.FileChange:
    """The API's FileChange of an event of a watch. Raises WorkspacedError GUEST_ERROR when it is malformed."""
    kind = _KINDS.get(answers.text(event, "kind"))
    if kind is None:
        raise answers.malformed()
    return file_pb2.FileChange(
        kind=kind,
        path=answers.text(event, "path"),
        to=answers.text(event, "to"),
        type=_TYPES.get(answers.text(event, "type"), file_pb2.FILE_TYPE_UNSPECIFIED),
    )


def _nanoseconds(stat: answers.Answer) -> int:
    text = answers.text(stat, "mtime_ns", "0")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 20:
        raise answers.malformed()
    # A timestamp ends with the year 9999; file systems do not.
    return max(-62_135_596_800 * 10**9, min(int(text), 253_402_300_799 * 10**9))


def _raw(answer: answers.Answer, name: str) -> bytes:
    """The bytes of a path that is not UTF-8, else nothing."""
    value = answer.get(name)
    if not isinstance(value, str) or value == answers.printable(value):
        return b""
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise answers.malformed() from None
