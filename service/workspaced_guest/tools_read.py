"""tool.read: lines of a text, or an image.

A file of up to 16 MiB is read as a whole, so that its hash is that of what is shown. Of a larger one only what is
needed is read: holes are skipped, and memory is bounded.
"""

from __future__ import annotations

import errno
import os
import threading

from . import params as read
from .content import CHUNK_BYTES, new_hash
from .paths import resolve
from .tools_seen import remember

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .guest import Guest
    from .stream import BlockingStream

    Params = dict[str, Any]

WHOLE_BYTES = 16 << 20
IMAGE_BYTES = 3 << 20
# Of one line, and four more, by which a longer one is told.
LINE_BYTES = 2000
OUTPUT_BYTES = 128 * 1024
_MAX_LINES = 10_000
SAMPLE_BYTES = 8192
_HOLE_BYTES = 512
# All bytes but the control characters that no text has.
_TEXT = bytes(set(range(32, 256)) | set(b"\a\b\t\n\v\f\r\x1b"))
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)

# Bounds what whole files take of the memory, whoever reads.
whole_files = threading.BoundedSemaphore(4)


def read_file(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Send lines, or the bytes of an image, as DATA; reads only. A negative `offset` counts lines from the end."""
    reader = read.text(params, "reader", limit=256)
    offset = read.integer(params, "offset", 1, low=-_MAX_LINES, high=1 << 53)
    limit = read.integer(params, "limit", 2000, low=1, high=_MAX_LINES)
    with resolve(guest.workdir, params.get("path")) as place:
        descriptor = place.open_file()
        try:
            size = os.fstat(descriptor).st_size
            answer = None
            if size <= WHOLE_BYTES:
                with whole_files:
                    content = read_whole(stream, descriptor)
                    if content is not None:
                        digest = new_hash()
                        digest.update(content)
                        answer = _answer(_Text(stream, descriptor, len(content), content), offset, limit)
                        answer[0]["sha256"] = digest.hexdigest()
                        remember(reader, place, digest.hexdigest())
                        del content
            if answer is None:
                size = os.fstat(descriptor).st_size
                answer = _answer(_Text(stream, descriptor, size, None), offset, limit)
        finally:
            os.close(descriptor)
    # Only now, since a client that reads slowly holds up nobody else.
    result, body = answer
    for start in range(0, len(body), CHUNK_BYTES):
        stream.send(body[start : start + CHUNK_BYTES])
    return result


def read_whole(stream: BlockingStream, descriptor: int) -> bytes | None:
    """All of a file of at most 16 MiB, else None. What tells no size, as in /proc, is read too."""
    pieces: list[bytes] = []
    size = 0
    while True:
        stream.check()
        piece = os.pread(descriptor, 1 << 20, size)
        if not piece:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.append(piece)
        size += len(piece)
        if size > WHOLE_BYTES:
            return None


def is_binary(sample: bytes) -> bool:
    """Whether the first 8 KiB of a file are those of no text. Zeros may be a hole, which a log may have."""
    text = sample
    if sample.startswith(bytes(_HOLE_BYTES)):
        text = text.lstrip(b"\0")
    if len(sample) == SAMPLE_BYTES:
        text = text.rstrip(b"\0")
    return b"\0" in text or len(text.translate(None, _TEXT)) * 10 > len(text)


def _answer(text: _Text, offset: int, limit: int) -> tuple[Params, bytes]:
    sample = text.chunk(0)[:SAMPLE_BYTES]
    media_type = _image_type(sample)
    if media_type is not None:
        result: Params = {"kind": "image", "media_type": media_type, "size": text.size, "sent": False}
        if text.content is None or text.size > IMAGE_BYTES:
            return result, b""
        return {**result, "sent": True}, text.content
    all_zero = text.content is not None and bool(sample) and not sample.strip(b"\0")
    if all_zero or is_binary(sample):
        return {"kind": "binary", "size": text.size, "head": sample[:16].hex()}, b""
    return _lines(text, offset, limit)


def _lines(text: _Text, offset: int, limit: int) -> tuple[Params, bytes]:
    result: Params = {"kind": "text", "size": text.size, "first": offset, "total": text.total()}
    missing = 0
    if offset < 0:
        position, found = text.from_end(-offset)
        total = result["total"]
        result["first"] = -found if total is None else total - found + 1
    else:
        result["first"] = offset = max(offset, 1)
        position, missing = text.skip(0, offset - 1)
    lines, position, at_end = ([], position, True) if missing else text.take(position, limit)
    if at_end and result["total"] is None and offset > 0:
        result["total"] = offset - 1 - missing + len(lines) + (missing > 0 and text.unended())
    return {**result, "lines": len(lines), "more": not at_end}, b"\n".join(lines)


def _image_type(head: bytes) -> str | None:
    for magic, media_type in _IMAGES:
        if head.startswith(magic):
            return media_type
    return "image/webp" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else None


class _Text:
    """A file's bytes by position: all in memory, or read as they are needed."""

    def __init__(self, stream: BlockingStream, descriptor: int, size: int, content: bytes | None) -> None:
        self.stream = stream
        self.descriptor = descriptor
        self.size = size
        self.content = content

    def chunk(self, position: int, count: int = CHUNK_BYTES) -> bytes:
        """Some bytes from `position` on; empty at the end."""
        if self.content is not None:
            return self.content[position : position + count]
        self.stream.check()
        return os.pread(self.descriptor, count, position)

    def total(self) -> int | None:
        """How many lines there are, where that is known without reading on."""
        return None if self.content is None else self.content.count(b"\n") + self.unended()

    def unended(self) -> bool:
        """Whether the last line has no end."""
        return self.size > 0 and self.chunk(self.size - 1, 1) != b"\n"

    def skip(self, position: int, count: int) -> tuple[int, int]:
        """The position behind the next `count` line ends, and how many of them were missing."""
        while count:
            position = self._behind_hole(position)
            chunk = self.chunk(position, 4 * CHUNK_BYTES)
            if not chunk:
                return position, count
            found = chunk.count(b"\n")
            if found < count:
                count -= found
                position += len(chunk)
                continue
            end = -1
            for _ in range(count):
                end = chunk.find(b"\n", end + 1)
            return position + end + 1, 0
        return position, 0

    def from_end(self, count: int) -> tuple[int, int]:
        """Where the last `count` lines begin, and how many lines there are from there."""
        end = self.size - (0 if self.unended() else 1)
        if self.size == 0:
            return 0, 0
        found = 0
        while end > 0:
            start = max(0, end - CHUNK_BYTES)
            chunk = self.chunk(start, end - start)
            at = len(chunk)
            while True:
                at = chunk.rfind(b"\n", 0, at)
                if at < 0:
                    break
                found += 1
                if found == count:
                    return start + at + 1, count
            end = start
        return 0, found + 1

    def take(self, position: int, limit: int) -> tuple[list[bytes], int, bool]:
        """Up to `limit` lines, each cut to what is shown; where they end, and whether that is the end of the file."""
        lines: list[bytes] = []
        room = OUTPUT_BYTES
        while len(lines) < limit and room > 0:
            line, position, found = self._line(position)
            if not found:
                return lines, position, True
            lines.append(line)
            room -= len(line) + 8
        return lines, position, not self.chunk(position, 1)

    def _line(self, position: int) -> tuple[bytes, int, bool]:
        chunk = self.chunk(position, LINE_BYTES + 4)
        end = chunk.find(b"\n")
        if end >= 0:
            return chunk[:end], position + end + 1, True
        if len(chunk) < LINE_BYTES + 4:
            return chunk, position + len(chunk), bool(chunk)
        return chunk, self.skip(position + len(chunk), 1)[0], True

    def _behind_hole(self, position: int) -> int:
        if self.content is not None:
            return position
        try:
            return os.lseek(self.descriptor, position, os.SEEK_DATA)
        except OSError as error:
            # Nothing but a hole up to the end; or a file system that knows no holes.
            return max(position, self.size) if error.errno == errno.ENXIO else position
