"""What to run: the `spec` of process.start and pipe.spawn, checked."""

from __future__ import annotations

import os

from . import params as read
from .fault import invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Params = dict[str, Any]

MAX_SECONDS = 366 * 86400.0
_MAX_ARGUMENTS = 65536
_MAX_LABELS = 64
_ID_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def check_id(value: object) -> str:
    """A process id as the protocol allows it, or ARGUMENT_INVALID."""
    if (
        not isinstance(value, str)
        or not 1 <= len(value) <= 128
        or not _ID_CHARACTERS.issuperset(value)
        or value[0] in "._-"
    ):
        raise invalid("process_id must match [A-Za-z0-9][A-Za-z0-9._-]{0,127}", field="process_id")
    return value


def check_labels(params: Params) -> dict[str, str]:
    """The `labels` of a process."""
    labels = read.mapping(params, "labels")
    if len(labels) > _MAX_LABELS or not all(isinstance(value, str) for value in labels.values()):
        raise invalid(f"labels are at most {_MAX_LABELS} strings", field="labels")
    return labels


def window_size(value: object) -> tuple[int, int]:
    """(cols, rows) of a terminal."""
    if not isinstance(value, dict):
        raise invalid("pty must be an object", field="pty")
    return read.integer(value, "cols", 80, 1, 65535), read.integer(value, "rows", 24, 1, 65535)


class Spec:
    """A checked spec. Times are seconds, sizes bytes."""

    def __init__(self, params: Params) -> None:
        self.raw = params
        self.argv: list[str] | None = None
        self.shell: str | None = None
        self._command(params)
        self.cwd = read.text(params, "cwd", "") or "."
        self.env = _environment(params)
        self.user = read.optional_text(params, "user", limit=256) or None
        self.pty = window_size(params["pty"]) if params.get("pty") is not None else None
        self.stdin = read.boolean(params, "stdin") or self.pty is not None
        self.merge = read.boolean(params, "merge") and self.pty is None
        self.timeout = None if params.get("timeout") is None else read.number(params, "timeout", high=MAX_SECONDS)
        self.kill_grace = read.number(params, "kill_grace", 5.0, high=MAX_SECONDS)
        self.kill_on_disconnect = _choice(params, "disconnect_policy", "keep", "kill") == "kill"
        self.disconnect_grace = read.number(params, "disconnect_grace", 10.0, high=MAX_SECONDS)
        self.drop = _choice(params, "overflow", "block", "drop") == "drop"
        self.journal_limit = read.integer(params, "journal_limit", 256 << 20, 16384, 1 << 40)
        self.drain = read.number(params, "drain", 0.2, high=60.0)
        self.nice = read.integer(params, "nice", 0, -20, 19)

    @property
    def arguments(self) -> list[str]:
        """What is executed."""
        return self.argv if self.argv is not None else ["/bin/sh", "-c", self.shell or ""]

    def command(self) -> Params:
        """The part of a process object that says what runs."""
        return {"argv": self.argv} if self.argv is not None else {"shell": self.shell}

    def _command(self, params: Params) -> None:
        argv = params.get("argv")
        shell = params.get("shell")
        if (argv is None) is (shell is None):
            raise invalid("a spec has either argv or shell", field="argv")
        if shell is not None:
            self.shell = read.text(params, "shell", limit=1 << 20)
        elif (
            not isinstance(argv, list)
            or not 1 <= len(argv) <= _MAX_ARGUMENTS
            or not all(isinstance(argument, str) and "\0" not in argument for argument in argv)
            or not argv[0]
        ):
            raise invalid("argv must be a list of strings without NUL, the first not empty", field="argv")
        else:
            self.argv = argv


def _choice(params: Params, name: str, default: str, other: str) -> str:
    value = params.get(name)
    if value is None:
        return default
    if value not in (default, other):
        raise invalid(f"{name} must be {default!r} or {other!r}", field=name)
    return str(value)


def _environment(params: Params) -> dict[bytes, bytes | None]:
    env: dict[bytes, bytes | None] = {}
    for name, value in read.mapping(params, "env").items():
        if not name or "=" in name or "\0" in name:
            raise invalid("a variable's name is not empty and holds neither = nor NUL", field="env")
        if value is not None and (not isinstance(value, str) or "\0" in value):
            raise invalid(f"the variable {name} must be a string without NUL, or null", field="env")
        try:
            env[os.fsencode(name)] = None if value is None else os.fsencode(value)
        except UnicodeEncodeError:
            raise invalid("a variable holds a surrogate that stands for no byte", field="env") from None
    return env
