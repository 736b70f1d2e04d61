"""The members of a tar as they come: ustar, GNU and pax headers, of any age, without sparse files."""

from __future__ import annotations

from .archive import DIRECTORY, FILE, LINK, Member, broken, unsafe
from .fault import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .archive import Limits, Reader

    Pax = dict[bytes, bytes]

_BLOCK = 512
# macOS keeps attributes of files in pax headers.
_MAX_EXTENSION_BYTES = 256 * 1024
_KINDS = {b"\0": FILE, b"0": FILE, b"7": FILE, b"5": DIRECTORY, b"2": LINK}
_REFUSED = {b"1": "a hard link", b"3": "a device", b"4": "a device", b"6": "a FIFO"}


def is_header(block: bytes) -> bool:
    """Whether 512 bytes are a tar's header, or the end of an empty one."""
    return not block.strip(b"\0") or _checksum(block)


def tar_members(reader: Reader, limits: Limits) -> Iterator[Member]:
    """The members in order; the content of each must be consumed before the next. Raises Fault."""
    pax: Pax = {}
    extensions = 0
    while True:
        block = reader.exactly(_BLOCK)
        if len(block) < _BLOCK:
            raise broken("the archive is cut short")
        if not block.strip(b"\0"):
            return
        if not _checksum(block):
            raise broken("the archive is damaged: a header has a wrong checksum")
        kind, size = block[156:157], _number(block[124:136])
        if kind in (b"x", b"g", b"L", b"K", b"V"):
            # One member has a handful; a row of them without end would keep us busy.
            extensions += 1
            if size > _MAX_EXTENSION_BYTES or extensions > 16:
                raise broken("the archive has headers that are too large")
            content = reader.exactly(_padded(size))[:size]
            if len(content) < size:
                raise broken("the archive is cut short")
            if kind == b"x":
                pax.update(_records(content))
            elif kind == b"L":
                pax.setdefault(b"path", content.rstrip(b"\0"))
            elif kind == b"K":
                pax.setdefault(b"linkpath", content.rstrip(b"\0"))
            continue
        yield from _member(reader, block, kind, size, pax, limits)
        pax = {}
        extensions = 0


def _member(reader: Reader, block: bytes, kind: bytes, size: int, pax: Pax, limits: Limits) -> Iterator[Member]:
    name = _text(pax.get(b"path") or _name(block))
    if kind in _REFUSED:
        raise unsafe(name, f"is {_REFUSED[kind]}")
    if kind not in _KINDS or any(key.startswith(b"GNU.sparse.") for key in pax):
        raise broken(f"{shorten(name)}: a kind of member that is not supported, such as a sparse file")
    found = _KINDS[kind]
    if found == FILE and name.endswith("/"):
        found = DIRECTORY  # tar before POSIX
    if b"size" in pax:
        if not pax[b"size"].isdigit() or len(pax[b"size"]) > 20:
            raise broken("the archive is damaged: a size is no number")
        size = int(pax[b"size"])
    if found != FILE:
        size = 0
    if size > limits.size:
        raise limits.too_large()
    target = _text(pax.get(b"linkpath") or _cut(block[157:257])) if found == LINK else ""
    yield Member(name, found, size, bool(_number(block[100:108]) & 0o100), target, reader.pieces(size))
    padding = _padded(size) - size
    if len(reader.exactly(padding)) < padding:
        raise broken("the archive is cut short")


def _name(block: bytes) -> bytes:
    name, prefix = _cut(block[:100]), b""
    if block[257:263] == b"ustar\0":
        prefix = _cut(block[345:500])
    return prefix + b"/" + name if prefix else name


def _cut(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _number(field: bytes) -> int:
    if field[0] & 0x80:
        # GNU: a number of base 256; negative ones are no sizes.
        value = int.from_bytes(field, "big") - (0x80 << 8 * (len(field) - 1))
        if field[0] != 0x80:
            raise broken("the archive is damaged: a number is out of range")
        return value
    digits = field.strip(b" \0")
    try:
        value = int(digits or b"0", 8)
    except ValueError:
        value = -1
    if value < 0:
        raise broken("the archive is damaged: a number is none")
    return value


def _checksum(block: bytes) -> bool:
    digits = block[148:156].strip(b" \0")
    if not digits or digits.strip(b"01234567"):
        return False
    rest = block[:148] + b" " * 8 + block[156:]
    # Some early tars added signed bytes.
    signed = sum(rest) - 256 * sum(1 for byte in rest if byte > 127)
    return int(digits, 8) in (sum(rest), signed)


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _records(content: bytes) -> Pax:
    found: Pax = {}
    at = 0
    while at < len(content):
        digits, space, _ = content[at : at + 12].partition(b" ")
        length = int(digits) if space and digits.isdigit() else 0
        record = content[at : at + length]
        key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        if len(record) < length or not equals or not record.endswith(b"\n"):
            raise broken("the archive is damaged: a pax header is malformed")
        if b"\0" in value and key in (b"path", b"linkpath"):
            raise broken("the archive is damaged: a name has a NUL")
        found[key] = value
        at += length
    return found
