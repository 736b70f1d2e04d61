"""What went wrong: one line that says what, why and the way out, and the exit code of each kind."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from .output import visible

if TYPE_CHECKING:
    import workspaced

FAILED = 1
USAGE = 2
UNREACHABLE = 3
NOT_FOUND = 4
NOT_ALLOWED = 5
INTERRUPTED = 130


@dataclass
class Failure(Exception):
    """An error to be shown as it is. ``hint`` is the way out, ``stderr`` the end of what a program wrote; ``details``
    are for ``--json``.
    """

    message: str
    hint: str = ""
    exit_code: int = FAILED
    details: dict[str, object] = field(default_factory=dict)
    stderr: str = ""

    def __str__(self) -> str:
        return self.message


# The way out, by reason. `{name}` is a value of the error's metadata.
HINTS = {
    "WORKSPACE_NOT_FOUND": "`workspaced ls` shows those there are",
    "PROCESS_NOT_FOUND": "`workspaced ps ID` shows those there are; one is kept for 10 minutes after its end",
    "WORKSPACE_NOT_READY": "`workspaced init --id ID` makes it ready again",
    "WORKSPACE_SPEC_MISMATCH": "choose another --id, or `workspaced rm` the old one first",
    "PROCESS_EXISTS": "choose another --id, or `workspaced attach` to the one there is",
    "WORKSPACE_UNREACHABLE": "`workspaced init --id ID` recovers it",
    "BACKEND_UNAVAILABLE": "`workspaced doctor` says why",
    "GUEST_PYTHON_MISSING": "--install-python brings it, or choose an image with python3",
    "IMAGE_NOT_FOUND": "check the name, and that the server may pull it",
    "OPTION_NOT_ALLOWED": "the server's configuration has to allow it",
    "SERVER_DRAINING": "the server is being stopped; try again when it is back",
    "PORT_REFUSED": "start what should listen there first",
    "STDIN_CLOSED": "start it with -i to write to it",
    "NO_PTY": "start it with -t to have a terminal",
    "OFFSET_INVALID": "`workspaced ps ID` shows how much output there is",
}

_BY_CODE = {
    "UNAUTHENTICATED": "give a token with --token, WORKSPACED_TOKEN or --token-file",
    "PERMISSION_DENIED": "use a token with the scope that this needs",
}

_EXIT_CODES = {
    "UNAVAILABLE": UNREACHABLE,
    "DEADLINE_EXCEEDED": UNREACHABLE,
    "NOT_FOUND": NOT_FOUND,
    "UNAUTHENTICATED": NOT_ALLOWED,
    "PERMISSION_DENIED": NOT_ALLOWED,
}


def describe(error: BaseException) -> Failure | None:
    """The failure to show for an exception; None for one that is a fault of this program."""
    error = _innermost(error)
    if isinstance(error, Failure):
        return error
    if isinstance(error, click.UsageError):
        where = error.ctx.command_path if error.ctx is not None else "workspaced"
        return Failure(error.format_message(), f"`{where} --help` explains it", USAGE)
    if isinstance(error, click.ClickException):
        return Failure(error.format_message(), exit_code=error.exit_code)
    library = sys.modules.get("workspaced")
    if library is not None and isinstance(error, library.WorkspacedError):
        return _of_call(error)
    if isinstance(error, OSError):
        path = f"{error.filename}: " if error.filename else ""
        return Failure(f"{path}{error.strerror or error}")
    if isinstance(error, ValueError) and _raised_in_library(error):
        return Failure(str(error), exit_code=USAGE)
    return None


def _raised_in_library(error: BaseException) -> bool:
    """Whether the client refused an argument, as opposed to a fault here."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("workspaced.")


def _innermost(error: BaseException) -> BaseException:
    """The first leaf of nested exception groups: the others followed from it."""
    while isinstance(error, BaseExceptionGroup):
        error = next(_known_first(error))
    return error


def _known_first(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    yield from (error for error in group.exceptions if not isinstance(error, BrokenPipeError))
    yield from group.exceptions


def _of_call(error: workspaced.WorkspacedError) -> Failure:
    message = error.message
    if error.code == "UNAVAILABLE" and not error.reason:
        cause = message.rpartition(": ")[2]  # what comes before it is grpc's own way of telling an address
        message = f"the server cannot be reached ({cause})"
    for violation in error.violations:
        message += f"; {violation.field}: {violation.description}"
    hint = HINTS.get(error.reason) or _BY_CODE.get(error.code, "")
    if error.code == "UNAVAILABLE" and not error.reason:
        hint = "is `workspaced serve` running? --server names another address, `workspaced doctor` looks closer"
    if error.code == "INTERNAL" and error.request_id:
        hint = f"the server's log tells more about request {error.request_id}"
    exit_code = _EXIT_CODES.get(error.code, FAILED)
    if error.reason == "PROCESS_START_FAILED":
        missing = error.metadata.get("errno", "") in {"ENOENT", "2"} or "no such file" in message.lower()
        exit_code = 127 if missing else 126
    details: dict[str, object] = {"code": error.code, "reason": error.reason, "metadata": dict(error.metadata)}
    if error.request_id:
        details["request_id"] = error.request_id
    return Failure(message, hint, exit_code, details, error.metadata.get("stderr_tail", ""))


def report(failure: Failure, *, as_json: bool) -> None:
    """Say it on standard error: one line, with what a program wrote below it, or one JSON document."""
    if as_json:
        error = {"message": failure.message, **failure.details, "hint": failure.hint, "exit_code": failure.exit_code}
        print(json.dumps({"error": error}, ensure_ascii=False), file=sys.stderr)
        return
    message = visible(" ".join(failure.message.split())).rstrip(".")
    hint = f". {failure.hint[:1].upper()}{failure.hint[1:]}." if failure.hint else ""
    if failure.hint.startswith("`"):
        hint = f". {failure.hint}."
    print(f"workspaced: {message}{hint}", file=sys.stderr)
    for line in failure.stderr.splitlines():
        print(f"    {visible(line)}".rstrip(), file=sys.stderr)


def interrupted() -> int:
    """End the line that ^C left, and give the exit code."""
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return INTERRUPTED
