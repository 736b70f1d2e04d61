"""tool.write and tool.edit: a file replaced as a whole, or in one place.

An edit is made on the very content that its reader last read or wrote, by its hash. Bytes around it stay as they are,
and a line end that is written becomes one of those that are there.
"""

from __future__ import annotations

import os
import threading

from . import params as read
from . import transfer
from .content import new_hash
from .fault import Fault, invalid
from .paths import resolve
from .tools_read import WHOLE_BYTES, read_whole, whole_files
from .tools_seen import recall, remember

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .guest import Guest
    from .paths import Place
    from .stream import BlockingStream

    Params = dict[str, Any]

_MAX_TEXT = 16 << 20
_MAX_MATCHES = 100_000
# Edits of one file follow one another, so that two of one reader at once both find what it knows.
_turns = [threading.Lock() for _ in range(64)]


def write_file(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Write what the client sends as the whole content, making directories; atomic, as file.write is."""
    reader = read.text(params, "reader", limit=256)
    path = params.get("path")
    try:
        with resolve(guest.workdir, path) as place:
            created = place.peek() is None
    except Fault as fault:
        if fault.reason != "FILE_NOT_FOUND":
            raise
        created = True
    result = transfer.write_file(guest, stream, {"path": path, "parents": True})
    with resolve(guest.workdir, path) as place:
        remember(reader, place, result["sha256"])
    return {"created": created, "size": result["stat"]["size"]}


def edit_file(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Replace text that the client sends, `old_size` bytes of the old and then the new; atomic.

    RESULT says `refused` when the reader has not read the file (`unread`), when its content is another since
    (`changed`), when it is larger than 16 MiB (`large`), and when the old text is not there (`absent`) or in several
    places (`ambiguous`).
    """
    reader = read.text(params, "reader", limit=256)
    old_size = read.integer(params, "old_size", low=1, high=_MAX_TEXT)
    replace_all = read.boolean(params, "replace_all")
    data = _gather(stream)
    old, new = data[:old_size], data[old_size:]
    with resolve(guest.workdir, params.get("path")) as place:
        status = os.fstat(place.directory)
        with _turns[hash((status.st_dev, status.st_ino, place.name)) % len(_turns)], whole_files:
            return _edit(guest, stream, place, reader, _Change(old, new, replace_all))


def _edit(guest: Guest, stream: BlockingStream, place: Place, reader: str, change: _Change) -> Params:
    descriptor = place.open_file()
    try:
        content = read_whole(stream, descriptor)
    finally:
        os.close(descriptor)
    if content is None:
        return {"refused": "large", "size": WHOLE_BYTES}
    known = recall(reader, place)
    if known is None:
        return {"refused": "unread"}
    digest = new_hash()
    digest.update(content)
    if digest.hexdigest() != known:
        return {"refused": "changed"}
    result = change.apply(content)
    if isinstance(result, dict):
        return result
    replaced, answer = result
    feed: Any = _Content(stream, replaced)
    try:
        written = transfer.write_file(guest, feed, {"path": place.given, "if_match": known})
    except Fault as fault:
        if fault.reason != "CONTENT_CHANGED":
            raise
        return {"refused": "changed"}
    remember(reader, place, written["sha256"])
    return answer


class _Change:
    def __init__(self, old: bytes, new: bytes, replace_all: bool) -> None:
        self.old = old
        self.new = new
        self.replace_all = replace_all

    def apply(self, content: bytes) -> tuple[bytes, Params] | Params:
        """The new content and the answer, or the refusal."""
        ends = content.count(b"\n")
        crlf = content.count(b"\r\n")
        old, new = self.old, self.new
        if crlf and crlf == ends:
            old, new = _with_crlf(old), _with_crlf(new)
        elif crlf and b"\n" in old + new:
            return self._mixed(content)
        first = content.find(old)
        if first < 0:
            return {"refused": "absent"}
        if not self.replace_all:
            if content.find(old, first + 1) >= 0:
                return {"refused": "ambiguous", "count": content.count(old)}
            return content[:first] + new + content[first + len(old) :], _answer(content, first, 1)
        count = content.count(old)
        if len(content) + count * (len(new) - len(old)) > 2 * WHOLE_BYTES:
            return {"refused": "large", "size": 2 * WHOLE_BYTES}
        return content.replace(old, new), _answer(content, first, count)

    def _mixed(self, content: bytes) -> tuple[bytes, Params] | Params:
        # A line end that is looked for is either; one that is written is that of the line where the match begins.
        import re

        pattern = re.compile(rb"\r?\n".join(re.escape(part) for part in self.old.split(b"\n")))
        matches = []
        for match in pattern.finditer(content):
            matches.append(match)
            if len(matches) > _MAX_MATCHES:
                return {"refused": "large", "size": _MAX_MATCHES}
        if not matches:
            return {"refused": "absent"}
        again = None if self.replace_all else pattern.search(content, matches[0].start() + 1)
        if again is not None:
            return {"refused": "ambiguous", "count": max(2, len(matches))}
        pieces = []
        position = 0
        for match in matches:
            end = content.find(b"\n", match.start())
            if end < 0:
                end = content.rfind(b"\n")
            crlf = content[max(0, end - 1) : end] == b"\r"
            pieces += [content[position : match.start()], _with_crlf(self.new) if crlf else self.new]
            position = match.end()
        return b"".join([*pieces, content[position:]]), _answer(content, matches[0].start(), len(matches))


def _with_crlf(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _answer(content: bytes, position: int, count: int) -> Params:
    return {"replaced": count, "line": content.count(b"\n", 0, position) + 1}


def _gather(stream: BlockingStream) -> bytes:
    data = bytearray()
    while True:
        piece = stream.receive()
        if piece is None:
            return bytes(data)
        data += piece
        stream.reuse(piece)
        if len(data) > 2 * _MAX_TEXT:
            raise invalid("the texts are larger than 32 MiB", field="old_size")


class _Content:
    """The stream of a write whose content is here already."""

    def __init__(self, stream: BlockingStream, content: bytes) -> None:
        self.check = stream.check
        self._content = content

    def message(self, message: Params) -> None:
        """Nobody waits for it."""

    def reuse(self, data: bytes) -> None:
        """Content is no buffer."""

    def receive(self) -> bytes | None:
        """The content, once."""
        content, self._content = self._content, b""
        return content or None
