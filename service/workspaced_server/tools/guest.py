"""Asking the guest, and what a failure there means to a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from workspaced_server.errors import WorkspacedError
from workspaced_server.guest import answers
from workspaced_server.workspaces.handle import Handle

_MAX_BYTES: Final = 8 << 20

# Failures that a model can do something about. All others are errors of the call.
_FOR_THE_MODEL: Final = frozenset(
    (
        "ARGUMENT_INVALID",
        "FILE_NOT_FOUND",
        "FILE_EXISTS",
        "NOT_A_DIRECTORY",
        "IS_A_DIRECTORY",
        "NOT_A_FILE",
        "FILE_BUSY",
        "LINK_LOOP",
        "READ_ONLY",
        "FILE_PERMISSION_DENIED",
        "CONTENT_CHANGED",
        "DISK_FULL",
        "PROCESS_START_FAILED",
        "PROCESS_NOT_FOUND",
        "OFFSET_INVALID",
        "LIMIT_REACHED",
    )
)
_TEXTS: Final[Mapping[str, str]] = {
    "FILE_NOT_FOUND": "{path} does not exist. A relative path starts at the workspace's directory; Glob finds files.",
    "IS_A_DIRECTORY": "{path} is a directory. Glob lists the files in it.",
    "NOT_A_DIRECTORY": "{path}: something on the way is not a directory.",
    "NOT_A_FILE": "{path} is not a regular file.",
    "FILE_PERMISSION_DENIED": "{path}: permission denied.",
    "LINK_LOOP": "{path}: symbolic links lead in a circle.",
    "READ_ONLY": "{path}: the file system is read-only.",
    "FILE_BUSY": "{path} is in use by the system.",
    "PROCESS_NOT_FOUND": "There is no process {path}: it was never started, or ended more than ten minutes ago.",
    "DISK_FULL": "{path}: there is no space left on the disk. Nothing was changed.",
}


async def ask(
    handle: Handle, op: str, params: Mapping[str, object], data: bytes | None = None
) -> tuple[bytes, dict[str, Any]]:
    """The DATA and the RESULT of an operation that `data` is sent to. Raises WorkspacedError, ChannelLost."""
    found = bytearray()
    async with handle.guest.open(op, params) as stream:
        if data is not None:
            await stream.send(data)
            stream.end()
        while (item := await stream.receive()) is not None:
            if isinstance(item, bytes):
                found += item
                if len(found) > _MAX_BYTES:
                    raise answers.malformed()
        return bytes(found), stream.result


def explain(error: WorkspacedError, path: str) -> str:
    """What to tell a model of a failure with `path`. Raises the error when it is none of the model's."""
    if error.reason not in _FOR_THE_MODEL:
        raise error
    text = _TEXTS.get(error.reason)
    return text.format(path=path) if text is not None else error.message
