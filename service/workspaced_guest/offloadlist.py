"""offload.list: pages of what is stored, by path, and how contexts end while somebody appends to them."""

from __future__ import annotations

import os
import stat
from contextlib import closing

from . import params as read
from . import wire
from .fault import invalid
from .listing import sorted_names
from .locks import entry_lock
from .managed import check_name, open_directory, open_file
from .offloadlog import RequestLog
from .paths import Place
from .tree import TreeCursor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .guest import Guest
    from .stream import BlockingStream

    Params = dict[str, Any]

SESSIONS = "sessions"
DATA = "data"
CONTEXT = "context.jsonl"
LABEL = ".session"
_PREFIX = "tool_result-"
_SUFFIX = ".txt"
_KINDS = ("context", "tool_result", "data")
_PAGE_LIMIT = 1000
_PAGE_BYTES = 128 * 1024
_HASH_DIGITS = 64


def list_offloads(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """One page; reads only. `session` and `kind` leave out what is not of them."""
    size = min(read.integer(params, "page_size", _PAGE_LIMIT) or _PAGE_LIMIT, _PAGE_LIMIT)
    session = None if params.get("session") is None else check_name(params["session"], "session")
    kind = read.optional_text(params, "kind") or None
    if kind is not None and kind not in _KINDS:
        raise invalid("kind is none of context, tool_result and data", field="kind")
    after = _after(read.text(params, "page_token", ""))
    entries: list[Params] = []
    room = _PAGE_BYTES
    for entry in _entries(guest, stream, session, kind, after):
        entries.append(entry)
        room -= len(wire.encode_json(entry))
        if len(entries) >= size or room <= 0:
            path = [DATA, entry["name"]] if entry["kind"] == "data" else [SESSIONS, entry["session"], entry["name"]]
            return {"entries": entries, "next_page_token": "/".join(path)}
    return {"entries": entries, "next_page_token": ""}


def describe(directory: int, session: str | None, name: str) -> Params | None:
    """What is stored under a name in `data` (without `session`) or in a session's directory; None when it is nothing
    of ours. Raises FileNotFoundError, and Fault for a link in the place of a context.
    """
    kind = _kind(session, name)
    if kind is None:
        return None
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        return None
    entry: Params = {"kind": kind, "name": name, "size": status.st_size, "mtime_ns": str(max(0, status.st_mtime_ns))}
    if session is None:
        # A writable one was stored by somebody else, and its name need not be the hash of its content.
        return {**entry, "verified": not status.st_mode & 0o222}
    entry["session"] = session
    label = _label(directory) if session[0] == "%" else None
    if label is not None:
        entry["label"] = label
    if kind == "tool_result":
        entry["tool_call_id"] = _tool_call_id(directory, name)
        return entry
    entry["size"] = context_size(directory)
    return entry if entry["size"] else None


def context_size(directory: int) -> int:
    """The length of the context in a session's directory, without what a call that has not ended yet wrote."""
    with entry_lock(Place(directory, CONTEXT, CONTEXT, CONTEXT, False)):
        descriptor = open_file(directory, CONTEXT, os.O_RDONLY)
        try:
            with closing(RequestLog(directory, repair=False)) as log:
                return log.settle(descriptor, os.fstat(descriptor))[0]
        finally:
            os.close(descriptor)


def _entries(
    guest: Guest, stream: BlockingStream, session: str | None, kind: str | None, after: list[str]
) -> Iterator[Params]:
    if session is None and kind in (None, "data") and (not after or after[0] == DATA):
        yield from _below(guest, stream, None, kind, after[1] if after else None, DATA)
        after = []
    if kind == "data":
        return
    if session is not None:
        bound = after[2] if after[:2] == [SESSIONS, session] else None
        yield from _below(guest, stream, session, kind, bound, SESSIONS, session)
        return
    try:
        cursor = TreeCursor(open_directory(guest.workdir, SESSIONS))
    except FileNotFoundError:
        return
    with closing(cursor):
        if after:
            yield from _below(guest, stream, after[1], kind, after[2], SESSIONS, after[1])
        for name in sorted_names(stream, cursor, after[1] if after else None):
            status = os.stat(name, dir_fd=cursor.directory, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode) and _is_text(name) and not name.startswith("."):
                yield from _below(guest, stream, name, kind, None, SESSIONS, name)


def _below(
    guest: Guest, stream: BlockingStream, session: str | None, kind: str | None, after: str | None, *names: str
) -> Iterator[Params]:
    try:
        cursor = TreeCursor(open_directory(guest.workdir, *names))
    except FileNotFoundError:
        return
    with closing(cursor):
        for name in sorted_names(stream, cursor, after):
            if not _is_text(name) or kind not in (None, _kind(session, name)):
                continue
            try:
                entry = describe(cursor.directory, session, name)
            except FileNotFoundError:
                continue
            if entry is not None:
                yield entry


def _kind(session: str | None, name: str) -> str | None:
    if session is None:
        digits = name[:_HASH_DIGITS]
        hashed = len(digits) == _HASH_DIGITS and all(digit in "0123456789abcdef" for digit in digits)
        return "data" if hashed and name[_HASH_DIGITS:][:1] in ("", ".") else None
    if name == CONTEXT:
        return "context"
    whole = name.startswith(_PREFIX) and name.endswith(_SUFFIX) and len(name) > len(_PREFIX) + len(_SUFFIX)
    return "tool_result" if whole else None


def _tool_call_id(directory: int, name: str) -> str:
    """The id that a file is named after. A number in brackets belongs to the id only where there is no first file."""
    identifier = name[len(_PREFIX) : -len(_SUFFIX)]
    stem, bracket, number = identifier.rpartition("(")
    if not (bracket and stem and number[-1:] == ")" and number[:-1].isdigit()):
        return identifier
    try:
        os.stat(f"{_PREFIX}{stem}{_SUFFIX}", dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return identifier
    return stem


def _label(directory: int) -> str | None:
    try:
        descriptor = open_file(directory, LABEL, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, 1024).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def _is_text(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _after(token: str) -> list[str]:
    """The components of the last path of the page before. Raises ARGUMENT_INVALID for what is no token of ours."""
    if not token:
        return []
    names = token.split("/")
    if (names[:1], len(names)) not in (([DATA], 2), ([SESSIONS], 3)) or not all(names):
        raise invalid("page_token is not one that was given out", field="page_token")
    for name in names:
        check_name(name, "page_token")
    return names
