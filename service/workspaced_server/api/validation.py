"""Rules on request heads. Data chunks are never looked at here.

Each check raises INVALID_ARGUMENT with a field violation that names the field, the rule and the way out.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from workspaced.v1 import execution_pb2, file_pb2, port_pb2, process_pb2
from workspaced_server.api.limits import (
    DEFAULT_PAGE_SIZE,
    MAX_CHUNK_BYTES,
    MAX_JOURNAL_BYTES,
    MAX_PAGE_SIZE,
    MAX_PATH_BYTES,
    MAX_RUN_OUTPUT_BYTES,
    MIN_JOURNAL_BYTES,
)
from workspaced_server.errors import FieldViolation, invalid

PROCESS_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ENV_NAME = re.compile(r"[^=\0]+")
SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_MAX_DURATION_SECONDS = 10 * 366 * 86400

SIGNALS: Final = frozenset(member.name.removeprefix("SIG") for member in signal.Signals)


class Violations:
    """Gathers what is wrong with a request, so that a caller sees all of it at once."""

    def __init__(self) -> None:
        self._found: list[FieldViolation] = []

    def add(self, field: str, description: str) -> None:
        """Note that `field` breaks a rule."""
        self._found.append(FieldViolation(field, description))

    def require(self, holds: bool, field: str, description: str) -> None:
        """Note `description` unless the rule holds."""
        if not holds:
            self.add(field, description)

    def check(self) -> None:
        """Raise INVALID_ARGUMENT when something was noted."""
        if self._found:
            raise invalid(*self._found)


def check(request: Message) -> None:
    """Check a request, or the head of a stream, by the rules for its type. Raises WorkspacedError."""
    found = Violations()
    rule = _RULES.get(type(request).DESCRIPTOR.name)
    if rule is not None:
        rule(request, found)
    found.check()


def check_workspace_id(workspace_id: str) -> None:
    """The id must be one that InitializeWorkspace could have accepted; whether it exists is another question."""
    if not workspace_id:
        raise invalid(FieldViolation("workspace_id", "must not be empty: give the id of a workspace"))
    if len(workspace_id) > 256:
        raise invalid(FieldViolation("workspace_id", "must have at most 256 characters"))


def check_size(size: process_pb2.PtySize) -> None:
    """The size of a terminal. Raises WorkspacedError."""
    found = Violations()
    _pty(size, "resize", found)
    found.check()


def check_page(size: int, token: str, found: Violations) -> None:
    """Note what is wrong with the size and the token of a page."""
    _page(size, token, found)


def check_sha256(value: str, field: str, found: Violations) -> None:
    """Note a hash that is none; empty is one that was left out."""
    _sha256(value, field, found)


def signal_name(name: str, field: str = "signal") -> str:
    """The name without SIG, in capitals. Raises WorkspacedError for one that does not exist."""
    short = name.upper().removeprefix("SIG")
    if short not in SIGNALS:
        raise invalid(FieldViolation(field, f"{name[:32]!r} is no signal: give a name such as TERM, INT, KILL or HUP"))
    return short


def page_size(requested: int, default: int = DEFAULT_PAGE_SIZE) -> int:
    """The page size to use: the default for 0, at most 1,000. Raises WorkspacedError when negative."""
    if requested < 0:
        raise invalid(FieldViolation("page_size", "must not be negative: 0 is the default"))
    return min(requested, MAX_PAGE_SIZE) or default


def seconds(duration: Duration) -> float:
    """The length of a duration in seconds."""
    return float(duration.seconds) + duration.nanos / 1e9


def _duration(value: Duration, field: str, found: Violations, *, positive: bool = False) -> None:
    length = seconds(value)
    lowest = "more than 0" if positive else "0 or more"
    long_enough = length > 0 if positive else length >= 0
    if not long_enough or length > _MAX_DURATION_SECONDS or abs(value.nanos) > 999_999_999:
        found.add(field, f"must be {lowest} and at most ten years: leave it out for the default")


def _process_id(value: str, field: str, found: Violations) -> None:
    if not PROCESS_ID.fullmatch(value):
        found.add(field, "must be 1 to 128 letters, digits, '.', '_' or '-', starting with a letter or digit")


def _path(value: str, field: str, found: Violations, *, may_be_empty: bool = False) -> None:
    if not value and not may_be_empty:
        found.add(field, "must not be empty: '.' is the workspace's directory")
    if "\0" in value:
        found.add(field, "must not hold a NUL character")
    if len(value.encode()) > MAX_PATH_BYTES:
        found.add(field, f"must have at most {MAX_PATH_BYTES} bytes")


def _sha256(value: str, field: str, found: Violations) -> None:
    if value and not SHA256.fullmatch(value):
        found.add(field, "must be a SHA-256 of 64 hexadecimal digits")


def _mode(value: int, field: str, found: Violations) -> None:
    if value > 0o7777:
        found.add(field, "must be permission bits, at most 07777 (octal)")


def _pty(size: process_pb2.PtySize, field: str, found: Violations) -> None:
    for name, value in (("cols", size.cols), ("rows", size.rows)):
        found.require(1 <= value <= 10_000, f"{field}.{name}", "must be from 1 to 10,000")


def _enum(message: Message, name: str, field: str, found: Violations) -> None:
    descriptor = message.DESCRIPTOR.fields_by_name[name].enum_type
    assert descriptor is not None
    if getattr(message, name) not in descriptor.values_by_number:
        found.add(field, f"is no value of {descriptor.name} that this server knows")


def _spec(spec: process_pb2.ProcessSpec, field: str, found: Violations) -> None:
    match spec.WhichOneof("command"):
        case "argv":
            arguments = spec.argv.args
            found.require(bool(arguments) and bool(arguments[0]), f"{field}.argv.args", "must start with a program")
            if any("\0" in argument for argument in arguments):
                found.add(f"{field}.argv.args", "must not hold NUL characters")
        case "shell_command":
            found.require(bool(spec.shell_command), f"{field}.shell_command", "must not be empty")
            found.require("\0" not in spec.shell_command, f"{field}.shell_command", "must not hold a NUL character")
        case _:
            found.add(field, "needs a command: set argv or shell_command")
    _path(spec.cwd, f"{field}.cwd", found, may_be_empty=True)
    for name, value in spec.env.items():
        if not _ENV_NAME.fullmatch(name):
            found.add(
                f"{field}.env", f"{name[:64]!r} is no name of a variable: it must not be empty nor hold '=' or NUL"
            )
        if "\0" in value:
            found.add(f"{field}.env[{name[:64]!r}]", "must not hold a NUL character")
    found.require(
        "\0" not in spec.user and len(spec.user) <= 256, f"{field}.user", "must be a user's name, uid or uid:gid"
    )
    if spec.HasField("pty"):
        _pty(spec.pty, f"{field}.pty", found)
    if spec.HasField("timeout"):
        _duration(spec.timeout, f"{field}.timeout", found, positive=True)
    if spec.HasField("kill_grace"):
        _duration(spec.kill_grace, f"{field}.kill_grace", found)
    for name in ("stdin", "disconnect_policy", "overflow_policy"):
        _enum(spec, name, f"{field}.{name}", found)
    limit = spec.journal_limit_bytes
    if limit and not MIN_JOURNAL_BYTES <= limit <= MAX_JOURNAL_BYTES:
        found.add(f"{field}.journal_limit_bytes", "must be from 64 KiB to 16 GiB, or 0 for 256 MiB")
    found.require(0 <= spec.nice <= 19, f"{field}.nice", "must be from 0 to 19")


def _start(request: execution_pb2.ExecStart | execution_pb2.StartProcessRequest, found: Violations) -> None:
    if request.process_id:
        _process_id(request.process_id, "process_id", found)
    _spec(request.spec, "spec", found)


def _run(request: execution_pb2.RunProcessRequest, found: Violations) -> None:
    if request.process_id:
        _process_id(request.process_id, "process_id", found)
    _spec(request.spec, "spec", found)
    found.require(len(request.stdin) <= MAX_CHUNK_BYTES, "stdin", "must have at most 1 MiB: use Exec for more")
    if request.max_output_bytes > MAX_RUN_OUTPUT_BYTES:
        found.add("max_output_bytes", "must be at most 1 MiB: use Exec or AttachProcess for more")
    found.require(not (request.stdin and request.spec.HasField("pty")), "stdin", "cannot be closed on a pty: use Exec")


def _named(request: execution_pb2.GetProcessRequest, found: Violations) -> None:
    _process_id(request.process_id, "process_id", found)


def _signal(request: execution_pb2.SignalProcessRequest, found: Violations) -> None:
    _process_id(request.process_id, "process_id", found)
    _enum(request, "scope", "scope", found)
    if request.signal.upper().removeprefix("SIG") not in SIGNALS:
        found.add("signal", f"{request.signal[:32]!r} is no signal: give a name such as TERM, INT, KILL or HUP")


def _write_stdin(request: execution_pb2.WriteStdinRequest, found: Violations) -> None:
    _process_id(request.process_id, "process_id", found)
    found.require(len(request.data) <= MAX_CHUNK_BYTES, "data", "must have at most 1 MiB: send it in several calls")


def _wait(request: execution_pb2.WaitProcessRequest, found: Violations) -> None:
    _process_id(request.process_id, "process_id", found)
    if request.HasField("timeout"):
        _duration(request.timeout, "timeout", found)


def _list_processes(request: execution_pb2.ListProcessesRequest, found: Violations) -> None:
    _page(request.page_size, request.page_token, found)
    _enum(request, "state", "state", found)


def _page(size: int, token: str, found: Violations) -> None:
    found.require(size >= 0, "page_size", "must not be negative: 0 is the default")
    found.require(len(token) <= 8192, "page_token", "must be the next_page_token of the previous page")


def _path_request(request: file_pb2.StatFileRequest, found: Violations) -> None:
    _path(request.path, "path", found)


def _list_files(request: file_pb2.ListFilesRequest, found: Violations) -> None:
    _path(request.path, "path", found, may_be_empty=True)
    _path(request.glob, "glob", found, may_be_empty=True)
    _page(request.page_size, request.page_token, found)


def _write_header(request: file_pb2.WriteFileHeader, found: Violations) -> None:
    _path(request.path, "path", found)
    _mode(request.mode, "mode", found)
    _sha256(request.if_match, "if_match", found)
    _sha256(request.sha256, "sha256", found)
    found.require(len(request.upload_id) <= 256, "upload_id", "must have at most 256 characters")
    if not request.upload_id:
        found.require(not request.offset, "offset", "needs an upload_id")
        found.require(not request.query_offset, "query_offset", "needs an upload_id")
        found.require(not request.discard, "discard", "needs an upload_id")
    if request.create_only and request.if_match:
        found.add("if_match", "cannot hold together with create_only: set one of them")


def _make_directory(request: file_pb2.MakeDirectoryRequest, found: Violations) -> None:
    _path(request.path, "path", found)
    _mode(request.mode, "mode", found)


def _two_paths(request: file_pb2.MoveFileRequest | file_pb2.CopyFileRequest, found: Violations) -> None:
    _path(request.source, "source", found)
    _path(request.destination, "destination", found)


def _remove(request: file_pb2.RemoveFileRequest, found: Violations) -> None:
    _path(request.path, "path", found)
    _sha256(request.if_match, "if_match", found)
    found.require(not (request.recursive and request.if_match), "if_match", "cannot hold for a directory: leave it out")


def _tunnel(request: port_pb2.TunnelOpen, found: Violations) -> None:
    found.require(1 <= request.port <= 65_535, "port", "must be from 1 to 65,535")
    found.require("\0" not in request.host and len(request.host) <= 255, "host", "must be a host name or address")


def _list_ports(request: port_pb2.ListPortsRequest, found: Violations) -> None:
    _page(request.page_size, request.page_token, found)


_RULES: Final[Mapping[str, Callable[..., None]]] = {
    "ExecStart": _start,
    "StartProcessRequest": _start,
    "RunProcessRequest": _run,
    "ExecAttach": _named,
    "AttachProcessRequest": _named,
    "GetProcessRequest": _named,
    "ListProcessesRequest": _list_processes,
    "SignalProcessRequest": _signal,
    "WriteStdinRequest": _write_stdin,
    "WaitProcessRequest": _wait,
    "ReadFileRequest": _path_request,
    "StatFileRequest": _path_request,
    "WatchFilesRequest": _path_request,
    "WriteFileHeader": _write_header,
    "ListFilesRequest": _list_files,
    "MakeDirectoryRequest": _make_directory,
    "MoveFileRequest": _two_paths,
    "CopyFileRequest": _two_paths,
    "RemoveFileRequest": _remove,
    "TunnelOpen": _tunnel,
    "ListPortsRequest": _list_ports,
}
