"""Where offloads are in a workspace, and what answers say of them."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from workspaced.v1 import offload_pb2 as pb
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.guest import answers
from workspaced_server.offload.media import media_type_of
from workspaced_server.offload.parcel import Workspace

SESSIONS: Final = "sessions"
DATA: Final = "data"
CONTEXT: Final = "context.jsonl"
KINDS: Final = {
    "context": pb.OFFLOAD_KIND_CONTEXT,
    "tool_result": pb.OFFLOAD_KIND_TOOL_RESULT,
    "data": pb.OFFLOAD_KIND_DATA,
}
KIND_NAMES: Final = {number: name for name, number in KINDS.items()}
_ABSENT: Final = "default"
_HASH_DIGITS: Final = 64


@dataclass(frozen=True, slots=True)
class Location:
    """A file below ``data`` (`session` is None) or below a session's directory."""

    session: str | None
    name: str

    @property
    def relative(self) -> str:
        """The path below the workspace's directory."""
        return "/".join((DATA,) if self.session is None else (SESSIONS, self.session)) + "/" + self.name

    @property
    def url(self) -> str:
        """The ``workspace:///`` URL."""
        return "workspace:///" + quote(self.relative, safe="/!$&'()*+,;=:@~")


def locate(workspace: Workspace, path: str) -> Location:
    """The file that a path or URL of an offload means. Raises OFFLOAD_NOT_FOUND for what cannot be one."""
    if path.startswith("workspace:"):
        parts = urlsplit(path)
        given = unquote(parts.path, errors="surrogateescape").lstrip("/")
        if parts.netloc or parts.query or parts.fragment:
            raise not_found(path)
    else:
        given = path
        workdir = workdir_of(workspace).rstrip("/") + "/"
        if given.startswith("/"):
            if not given.startswith(workdir):
                raise not_found(path)
            given = given[len(workdir) :]
    names = given.removeprefix("./").split("/")
    if any(name in ("", ".", "..") or name.startswith(".") or "\0" in name for name in names):
        raise not_found(path)
    if any("\ud800" <= character <= "\udfff" for name in names for character in name):
        raise not_found(path)
    match names:
        case ["data", name]:
            return Location(None, name)
        case ["sessions", session, name]:
            return Location(session, name)
    raise not_found(path)


def not_found(path: str) -> WorkspacedError:
    """Nothing is stored under this path."""
    shown = path if len(path) <= 200 else path[:199] + "…"
    return WorkspacedError(
        Code.NOT_FOUND,
        "OFFLOAD_NOT_FOUND",
        f"nothing is stored under {shown!r}: ListOffloads tells what is",
        {"path": shown},
    )


def workdir_of(workspace: Workspace) -> str:
    """The workspace's directory, as its processes see it."""
    return workspace.workdir or workspace.guest.hello.workdir


def describe(workspace: Workspace, location: Location, answer: answers.Answer, *, media_type: str = "") -> pb.Offload:
    """What an answer of the guest says of a file. Raises WorkspacedError when it makes no sense."""
    found = pb.Offload(
        path=posixpath.join(workdir_of(workspace), location.relative),
        url=location.url,
        size_bytes=answers.integer(answer, "size"),
        update_time=answers.nanoseconds(_nanoseconds(answer)),
    )
    if location.session is None:
        found.kind = pb.OFFLOAD_KIND_DATA
        found.media_type = media_type or media_type_of(location.name)
        if answers.flag(answer, "verified"):
            found.sha256 = location.name[:_HASH_DIGITS]
        return found
    found.session_id = answers.text(answer, "label") or session_of(location.session)
    if location.name == CONTEXT:
        found.kind = pb.OFFLOAD_KIND_CONTEXT
        found.media_type = "application/jsonl"
    else:
        found.kind = pb.OFFLOAD_KIND_TOOL_RESULT
        found.media_type = "text/plain"
        found.tool_call_id = answers.text(answer, "tool_call_id")
    return found


def location_of(answer: answers.Answer) -> Location:
    """Where an entry of a listing is. Raises WorkspacedError when it makes no sense."""
    name, session = answers.text(answer, "name"), answers.text(answer, "session")
    if not name or "/" in name or "/" in session or (answers.text(answer, "kind") == "data") != (not session):
        raise answers.malformed()
    return Location(session or None, name)


def session_of(directory: str) -> str:
    """The id whose directory this is, as `directory_name` names them; empty for the session without an id."""
    if directory == _ABSENT:
        return ""
    if directory == "%64efault":
        return _ABSENT
    return directory.replace("%25", "%")


def _nanoseconds(answer: answers.Answer) -> int:
    given = answers.text(answer, "mtime_ns")
    if not given.isdecimal() or len(given) > 19:
        raise answers.malformed()
    return int(given)
