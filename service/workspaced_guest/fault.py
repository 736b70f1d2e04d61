"""The one exception that becomes an ERROR frame."""

from __future__ import annotations

import errno as _errno
import os

_MAX_TEXT = 4096


class Fault(Exception):
    """An operation failed in a way that its caller should hear about.

    `code` is a gRPC status name, `reason` one of the reasons of the protocol, `message` may be shown to the
    workspace's user, `metadata` maps strings to strings.
    """

    def __init__(self, code: str, reason: str, message: str, **metadata: object) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.metadata = {key: str(value) for key, value in metadata.items()}

    def payload(self) -> dict[str, object]:
        """The JSON object of the ERROR frame; texts are cut to what one frame holds."""
        return {
            "code": self.code,
            "reason": self.reason,
            "message": _cut(self.message),
            "metadata": {key: _cut(value) for key, value in self.metadata.items()},
        }


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def invalid(message: str, **metadata: object) -> Fault:
    """An argument that can't be accepted, whatever the state of the workspace."""
    return Fault("INVALID_ARGUMENT", "ARGUMENT_INVALID", message, **metadata)


def from_os_error(error: OSError, path: str | None = None) -> Fault:
    """The fault that stands for an `OSError` of a file operation; `path` as the caller named it."""
    number = error.errno or 0
    code, reason = _BY_ERRNO.get(number, ("INTERNAL", "OS_ERROR"))
    name = _errno.errorcode.get(number, str(number))
    subject = f"{shorten(path)}: " if path is not None else ""
    metadata = {"errno": name}
    if path is not None:
        metadata["path"] = printable(path)
    return Fault(code, reason, f"{subject}{error.strerror or os.strerror(number)}", **metadata)


def printable(path: str) -> str:
    """The path as valid UTF-8, bytes that are not shown as `\\xff`; for messages and metadata."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def shorten(path: str) -> str:
    """The path for a message: printable, on one line, no longer than a person reads."""
    line = printable(path).replace("\n", "\\n").replace("\r", "\\r")
    return line if len(line) <= 300 else line[:148] + "…" + line[-148:]


_BY_ERRNO = {
    _errno.ENOENT: ("NOT_FOUND", "FILE_NOT_FOUND"),
    _errno.EEXIST: ("ALREADY_EXISTS", "FILE_EXISTS"),
    _errno.ENOTDIR: ("FAILED_PRECONDITION", "NOT_A_DIRECTORY"),
    _errno.EISDIR: ("FAILED_PRECONDITION", "IS_A_DIRECTORY"),
    _errno.ENOTEMPTY: ("FAILED_PRECONDITION", "DIRECTORY_NOT_EMPTY"),
    _errno.ENXIO: ("FAILED_PRECONDITION", "NOT_A_FILE"),
    _errno.ENODEV: ("FAILED_PRECONDITION", "NOT_A_FILE"),
    _errno.EBUSY: ("FAILED_PRECONDITION", "FILE_BUSY"),
    _errno.ETXTBSY: ("FAILED_PRECONDITION", "FILE_BUSY"),
    _errno.ELOOP: ("FAILED_PRECONDITION", "LINK_LOOP"),
    _errno.EROFS: ("FAILED_PRECONDITION", "READ_ONLY"),
    _errno.EXDEV: ("FAILED_PRECONDITION", "OTHER_FILE_SYSTEM"),
    _errno.EACCES: ("PERMISSION_DENIED", "FILE_PERMISSION_DENIED"),
    _errno.EPERM: ("PERMISSION_DENIED", "FILE_PERMISSION_DENIED"),
    _errno.ENOSPC: ("RESOURCE_EXHAUSTED", "DISK_FULL"),
    _errno.EDQUOT: ("RESOURCE_EXHAUSTED", "DISK_FULL"),
    _errno.EMFILE: ("RESOURCE_EXHAUSTED", "LIMIT_REACHED"),
    _errno.ENFILE: ("RESOURCE_EXHAUSTED", "LIMIT_REACHED"),
    _errno.ENOMEM: ("RESOURCE_EXHAUSTED", "LIMIT_REACHED"),
    _errno.EMLINK: ("RESOURCE_EXHAUSTED", "LIMIT_REACHED"),
    _errno.EFBIG: ("RESOURCE_EXHAUSTED", "LIMIT_REACHED"),
    _errno.ENAMETOOLONG: ("INVALID_ARGUMENT", "ARGUMENT_INVALID"),
    _errno.EINVAL: ("INVALID_ARGUMENT", "ARGUMENT_INVALID"),
}
