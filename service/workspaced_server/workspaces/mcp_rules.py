"""Rules for declarations of MCP servers, in specs of workspaces and in requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from workspaced.v1 import mcp_pb2

Note = Callable[[str, str], None]
"""Takes a field and the rule that it breaks."""

_NAME: Final = re.compile(r"(?!\.)[A-Za-z0-9_.-]{1,64}")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_ENV_NAME: Final = re.compile(r"[^=\0]+")
# What the HTTP client itself decides.
_OWN_HEADERS: Final = frozenset({"connection", "content-length", "te", "trailer", "transfer-encoding", "upgrade"})
_MAX_BYTES: Final = 128 * 1024
_MAX_DEFAULTS: Final = 100
_MAX_SECONDS: Final = 10 * 366 * 86_400


def check_defaults(mcps: Sequence[mcp_pb2.Mcp], field: str, note: Note) -> None:
    """Note what is wrong with the default MCP servers of a spec."""
    seen: set[str] = set()
    for index, mcp in enumerate(mcps):
        check_mcp(mcp, f"{field}[{index}]", note)
        if mcp.name in seen:
            note(f"{field}[{index}].name", "is the name of another one before it")
        seen.add(mcp.name)
    if len(mcps) > _MAX_DEFAULTS:
        note(field, f"holds more than {_MAX_DEFAULTS}")


def check_mcp(mcp: mcp_pb2.Mcp, field: str, note: Note) -> None:
    """Note what is wrong with a declaration."""
    if not _NAME.fullmatch(mcp.name):
        note(f"{field}.name", "must be 1 to 64 letters, digits, '_', '.' or '-', not starting with a dot")
    match mcp.WhichOneof("transport"):
        case "stdio":
            _check_stdio(mcp.stdio, f"{field}.stdio", note)
        case "http":
            _check_http(mcp.http, f"{field}.http", note)
        case _:
            note(field, "needs a transport: set stdio or http")
    if mcp.HasField("call_timeout"):
        length = mcp.call_timeout.seconds + mcp.call_timeout.nanos / 1e9
        if not 0 < length <= _MAX_SECONDS:
            note(f"{field}.call_timeout", "must be more than 0 and at most ten years: leave it out for no limit")
    if mcp.ByteSize() > _MAX_BYTES:
        note(field, f"is larger than {_MAX_BYTES} bytes")


def _check_stdio(stdio: mcp_pb2.McpStdio, field: str, note: Note) -> None:
    if not stdio.command:
        note(f"{field}.command", "must not be empty: give a program")
    if "\0" in stdio.command or any("\0" in argument for argument in stdio.args) or "\0" in stdio.cwd:
        note(field, "must not hold NUL characters")
    for name, value in stdio.env.items():
        if not _ENV_NAME.fullmatch(name):
            note(f"{field}.env", "a name must not be empty and holds neither '=' nor NUL")
        elif "\0" in value:
            note(f"{field}.env[{name[:64]!r}]", "must not hold a NUL character")


def _check_http(http: mcp_pb2.McpHttp, field: str, note: Note) -> None:
    if not is_url(http.url):
        note(f"{field}.url", "must be an http or https URL with a host, without spaces, control characters or fragment")
    if http.kind not in mcp_pb2.McpHttpKind.values():
        note(f"{field}.kind", f"{http.kind} is no value of McpHttpKind that this server knows")
    for name, value in http.headers.items():
        if not _HEADER.fullmatch(name):
            note(f"{field}.headers", f"{name[:64]!r} is no name of a header")
        elif name.lower() in _OWN_HEADERS:
            note(f"{field}.headers", f"{name} is set by the transport: leave it out")
        elif not value.isascii() or any(ord(character) < 32 and character != "\t" for character in value):
            note(f"{field}.headers[{name[:64]!r}]", "must be printable ASCII on one line")


def is_url(text: str) -> bool:
    """Whether an HTTP client can use it."""
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or 0 < parts.port < 65_536)
            and not parts.fragment
            and len(text) <= 8192
            and not any(ord(character) <= 32 or ord(character) == 127 for character in text)
        )
    except ValueError:
        return False
