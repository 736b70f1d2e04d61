"""The members of a zip by its central directory, stored or deflated, as Unix, Windows and macOS write it."""

from __future__ import annotations

import os
import stat
import struct
import zlib

from .archive import DIRECTORY, FILE, LINK, Member, broken, unsafe
from .content import CHUNK_BYTES
from .fault import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .archive import Limits

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_MAX_LINK_BYTES = 4096
_DOS_DIRECTORY = 0x10
_ENCRYPTED = 0x01 | 0x40 | 0x2000
_UTF8 = 0x800


def zip_members(descriptor: int, limits: Limits) -> Iterator[Member]:
    """The members in the order of the central directory. Raises Fault."""
    at, end, shift, count = _directory(descriptor, limits)
    seen = 0
    while at < end:
        seen += 1
        if seen > limits.members:
            raise limits.too_many()
        head = os.pread(descriptor, _CENTRAL.size, at)
        if len(head) < _CENTRAL.size or not head.startswith(b"PK\x01\x02"):
            raise _damaged()
        fields = _CENTRAL.unpack(head)
        tail = os.pread(descriptor, fields[10] + fields[11], at + _CENTRAL.size)
        if len(tail) < fields[10] + fields[11]:
            raise _damaged()
        at += _CENTRAL.size + fields[10] + fields[11] + fields[12]
        yield _member(descriptor, fields, tail, shift, limits)
    if at != end or seen != count:
        raise _damaged()


def _directory(descriptor: int, limits: Limits) -> tuple[int, int, int, int]:
    """Where the central directory begins and ends, what all offsets lack, and how many members there are."""
    size = os.fstat(descriptor).st_size
    length = min(size, _END.size + 65535)
    tail = os.pread(descriptor, length, size - length)
    found = tail.rfind(b"PK\x05\x06")
    while found >= 0 and not _is_end(tail, found):
        found = tail.rfind(b"PK\x05\x06", 0, found)
    if found < 0:
        raise broken("the archive is cut short: its directory is missing")
    count, bytes_, offset, _ = _END.unpack_from(tail, found)[4:]
    end = size - length + found
    if count == 0xFFFF or bytes_ == 0xFFFFFFFF or offset == 0xFFFFFFFF:
        locator = os.pread(descriptor, _LOCATOR.size, max(0, end - _LOCATOR.size))
        if locator.startswith(b"PK\x06\x07") and len(locator) == _LOCATOR.size:
            # Right before the locator; what it says is only where, were nothing put before the archive.
            end -= _LOCATOR.size + _END64.size
            head = os.pread(descriptor, _END64.size, max(0, end))
            if len(head) < _END64.size or not head.startswith(b"PK\x06\x06"):
                raise _damaged()
            count, bytes_, offset = _END64.unpack(head)[7:]
    if count > limits.members:
        raise limits.too_many()
    start = end - bytes_
    if start < 0 or offset > start:
        raise _damaged()
    return start, end, start - offset, count


def _is_end(tail: bytes, at: int) -> bool:
    return len(tail) - at >= _END.size and at + _END.size + int(_END.unpack_from(tail, at)[7]) <= len(tail)


def _member(descriptor: int, fields: tuple[int, ...], tail: bytes, shift: int, limits: Limits) -> Member:
    _, made_by, _, flags, method, _, _, crc, packed, size, name_bytes = fields[:11]
    attributes, offset = fields[15], fields[16]
    raw, extra = tail[:name_bytes], tail[name_bytes:]
    extras = _extras(extra)
    size, packed, offset = _wide(extras.get(1, b""), size, packed, offset)
    name = _name(raw, flags, extras.get(0x7075, b""))
    if flags & _ENCRYPTED:
        raise broken(f"{shorten(name)}: is encrypted")
    if method not in (0, 8):
        raise broken(f"{shorten(name)}: is compressed by method {method}; only deflate is supported")
    if size > limits.size:
        raise limits.too_large()
    content = _Content(descriptor, offset + shift, packed, size, crc, method)
    mode = attributes >> 16
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFLNK:
        if size > _MAX_LINK_BYTES:
            raise unsafe(name, "the link's target is too long")
        return Member(name, LINK, target=b"".join(content.chunks()).decode("utf-8", "surrogateescape"))
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise unsafe(name, "is a device, FIFO or socket")
    if name.endswith("/") or kind == stat.S_IFDIR or (not made_by >> 8 and attributes & _DOS_DIRECTORY):
        return Member(name, DIRECTORY)
    return Member(name, FILE, size, bool(mode & 0o100), chunks=content.chunks())


class _Content:
    """The bytes of one member."""

    def __init__(self, descriptor: int, offset: int, packed: int, size: int, crc: int, method: int) -> None:
        self._descriptor = descriptor
        self._offset = offset
        self._packed = packed
        self._size = size
        self._crc = crc
        self._method = method

    def chunks(self) -> Iterator[bytes]:
        """The content, checked at its end. Raises ARCHIVE_INVALID."""
        left, crc = self._size, 0
        pieces = self._stored() if self._method == 0 else self._inflated()
        for data in pieces:
            left -= len(data)
            if left < 0:
                raise _damaged()
            crc = zlib.crc32(data, crc)
            yield data
        if left or crc != self._crc:
            raise _damaged()

    def _stored(self) -> Iterator[bytes]:
        head = os.pread(self._descriptor, _LOCAL.size, self._offset)
        if len(head) < _LOCAL.size or not head.startswith(b"PK\x03\x04"):
            raise _damaged()
        fields = _LOCAL.unpack(head)
        at, left = self._offset + _LOCAL.size + fields[9] + fields[10], self._packed
        while left:
            data = os.pread(self._descriptor, min(left, CHUNK_BYTES), at)
            if not data:
                raise broken("the archive is cut short")
            at += len(data)
            left -= len(data)
            yield data

    def _inflated(self) -> Iterator[bytes]:
        decoder = zlib.decompressobj(-15)
        try:
            for data in self._stored():
                while data and not decoder.eof:
                    yield decoder.decompress(data, CHUNK_BYTES)
                    data = decoder.unconsumed_tail
        except zlib.error:
            raise _damaged() from None
        if not decoder.eof:
            raise _damaged()


def _name(raw: bytes, flags: int, unicode: bytes) -> str:
    """The name, separated by slashes. Archivers of Windows separate by backslashes, and macOS writes UTF-8 without
    saying so; what is no UTF-8 is the code page that zip began with.
    """
    if len(unicode) > 5 and unicode[0] == 1 and int.from_bytes(unicode[1:5], "little") == zlib.crc32(raw):
        raw = unicode[5:]
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        if flags & _UTF8:
            raise broken("a name in the archive is not the UTF-8 that it says") from None
        name = raw.decode("cp437")
    return name.replace("\\", "/")


def _extras(extra: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<2H", extra, at)
        found.setdefault(kind, extra[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def _wide(extra: bytes, *values: int) -> list[int]:
    """Size, packed size and offset, those that did not fit from the field of zip64."""
    found = []
    for value in values:
        if value == 0xFFFFFFFF and len(extra) >= 8:
            value, extra = int.from_bytes(extra[:8], "little"), extra[8:]
        found.append(value)
    return found


def _damaged() -> Exception:
    return broken("the archive is damaged")
