"""Archives of skills, byte for byte as tools of other systems write them, and as attackers do."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

TEXT = "---\nname: {name}\ndescription: What {name} is for.\n---\n\nDo it.\n"

UNIX, DOS, NTFS, MACOS = 3, 0, 10, 19


def skill_md(name: str = "pdf", text: str = TEXT) -> bytes:
    """A valid SKILL.md."""
    return text.format(name=name).encode()


def tar(files: Mapping[str, bytes], *, mode: str = "w") -> bytes:
    """A tar of regular files as Python writes it; those whose content starts with ``#!`` are executable."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mode = 0o755 if content.startswith(b"#!") else 0o644
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def tar_header(
    name: bytes, kind: bytes = b"0", size: int = 0, *, link: bytes = b"", mode: int = 0o644, prefix: bytes = b""
) -> bytes:
    """One header of a ustar."""
    block = bytearray(512)
    block[: len(name[:100])] = name[:100]
    block[100:108] = b"%07o\0" % mode
    block[108:124] = b"0000000\0" * 2
    if size < 8**11:
        block[124:136] = b"%011o\0" % size
    else:
        block[124:136] = b"\x80" + size.to_bytes(11, "big")
    block[136:148] = b"%011o\0" % 1_700_000_000
    block[156:157] = kind
    block[157 : 157 + len(link[:100])] = link[:100]
    block[257:265] = b"ustar\x0000"
    block[345 : 345 + len(prefix)] = prefix
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def tar_member(name: str, content: bytes = b"", kind: bytes = b"0", *, link: str = "", mode: int = 0o644) -> bytes:
    """A header and its padded content."""
    header = tar_header(name.encode("utf-8", "surrogateescape"), kind, len(content), link=link.encode(), mode=mode)
    return header + content + bytes(-len(content) % 512)


def raw_tar(*members: bytes) -> bytes:
    """A tar of these members, with its end."""
    return b"".join(members) + bytes(1024)


def hostile_skill(*members: bytes) -> bytes:
    """A tar with a valid SKILL.md and what an attacker adds."""
    return raw_tar(tar_member("SKILL.md", skill_md()), *members)


def tar_bomb() -> bytes:
    """10 GB of zeros in a tar.gz of 10 MB, whose header says so."""
    head = tar_member("SKILL.md", skill_md()) + tar_header(b"zeros", b"0", 10 << 30)
    return gzip.compress(head, 1) + gzip.compress(bytes(10 << 20), 9) * 1024


def lying_tar_bomb() -> bytes:
    """The zeros of 10 GB as a row of members that fit each."""
    megabytes = gzip.compress(bytes(10 << 20), 9) * 40
    head = gzip.compress(tar_member("SKILL.md", skill_md()), 1)
    return head + b"".join(
        gzip.compress(tar_header(b"a/%d" % number, b"0", 400 << 20), 1) + megabytes for number in range(25)
    )


def header_bomb() -> bytes:
    """A pax header of 10 GB."""
    return gzip.compress(tar_header(b"x", b"x", 10 << 30), 1) + gzip.compress(bytes(10 << 20), 9) * 1024


@dataclass(frozen=True)
class ZipMember:
    """One member of a zip, as raw as it can be."""

    name: bytes
    content: bytes = b""
    system: int = UNIX
    mode: int = 0o100644
    attributes: int = 0  # the low 16 bits of the external ones
    flags: int = 0
    method: int = 8
    descriptor: bool = False  # sizes follow the content, as macOS writes them
    extra: bytes = b""
    size: int | None = None  # what the directory claims


def raw_zip(members: Iterable[ZipMember], *, comment: bytes = b"", count: int | None = None) -> bytes:
    """A zip of these members."""
    body, directory = bytearray(), bytearray()
    total = 0
    for member in members:
        total += 1
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed = deflate.compress(member.content) + deflate.flush() if member.method == 8 else member.content
        crc = zlib.crc32(member.content)
        flags = member.flags | (8 if member.descriptor else 0)
        size = len(member.content) if member.size is None else member.size
        offset = len(body)
        numbers = (0, 0, 0) if member.descriptor else (crc, len(packed), size)
        local = struct.pack(
            "<4s5H3L2H", b"PK\x03\x04", 20, flags, member.method, 0x6000, 0x5621, *numbers, len(member.name),
            len(member.extra),
        )  # fmt: skip
        body += local + member.name + member.extra + packed
        if member.descriptor:
            body += struct.pack("<4s3L", b"PK\x07\x08", crc, len(packed), size)
        external = (member.mode << 16 if member.system in (UNIX, MACOS) else 0) | member.attributes
        directory += struct.pack(
            "<4s6H3L5H2L", b"PK\x01\x02", member.system << 8 | 20, 20, flags, member.method, 0x6000, 0x5621, crc,
            len(packed), size, len(member.name), len(member.extra), 0, 0, 0, external, offset,
        )  # fmt: skip
        directory += member.name + member.extra
    total = min(total if count is None else count, 0xFFFF)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, total, total, len(directory), len(body), len(comment))
    return bytes(body + directory) + end + comment


def zip_of(files: Mapping[str, bytes]) -> bytes:
    """A plain zip."""
    return raw_zip(
        ZipMember(name.encode(), content, mode=0o100755 if content.startswith(b"#!") else 0o100644)
        for name, content in files.items()
    )


def windows_zip(files: Mapping[str, bytes], wrapper: str = "") -> bytes:
    """As .NET's ZipFile writes it on Windows: backslashes, DOS attributes, members for directories, names without the
    flag of UTF-8.
    """
    base = f"{wrapper}\\" if wrapper else ""
    members = []
    seen: set[str] = set()
    for name, content in files.items():
        parts = name.split("/")
        for depth in range(1, len(parts)):
            directory = "\\".join(parts[:depth]) + "\\"
            if directory not in seen:
                seen.add(directory)
                members.append(ZipMember((base + directory).encode(), system=DOS, attributes=0x10, method=0))
        members.append(ZipMember((base + "\\".join(parts)).encode(), content, system=DOS, attributes=0x20))
    return raw_zip(members)


def macos_zip(files: Mapping[str, bytes], wrapper: str) -> bytes:
    """As the Finder compresses a folder: sizes behind the content, UTF-8 without its flag, Unix times, and litter."""
    extra = struct.pack("<2H2L2H", 0x5855, 12, 1_700_000_000, 1_700_000_000, 501, 20)
    double = struct.pack(">2L16sH", 0x00051607, 0x00020000, b"Mac OS X        ", 2) + bytes(50)
    members = [ZipMember(f"{wrapper}/".encode(), mode=0o40755, method=0, extra=extra)]
    for name, content in {**files, ".DS_Store": b"\0\0\0\1Bud1" + bytes(100)}.items():
        mode = 0o100755 if content.startswith(b"#!") else 0o100644
        head, _, last = name.rpartition("/")
        beside = f"__MACOSX/{wrapper}/{head + '/' if head else ''}._{last}"
        members.append(ZipMember(f"{wrapper}/{name}".encode(), content, mode=mode, descriptor=True, extra=extra))
        members.append(ZipMember(beside.encode(), double, descriptor=True, extra=extra))
    return raw_zip(members)


def zip_bomb() -> bytes:
    """10 GB of zeros in a zip of 10 MB, one member that says so."""
    piece = zlib.compressobj(9, zlib.DEFLATED, -15)
    zeros = bytes(10 << 20)
    packed = b"".join(piece.compress(zeros) for _ in range(20)) + piece.flush()
    return raw_zip([ZipMember(b"SKILL.md", skill_md()), ZipMember(b"zeros", packed, method=0)]).replace(
        struct.pack("<L", len(packed)) * 2, struct.pack("<2L", len(packed), 3 << 30)
    )


def million_members() -> bytes:
    """A zip that has a million members, by its directory of zip64, all of them the same bytes."""
    record = raw_zip([ZipMember(b"SKILL.md", skill_md())])
    local, central = record.partition(b"PK\x01\x02")[0], b"PK\x01\x02" + record.partition(b"PK\x01\x02")[2][:-26]
    count = 1_000_000
    directory = central * count
    at = len(local)
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(directory), at)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, at + len(directory), 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return local + directory + end64 + locator + end


def million_members_tar() -> bytes:
    """A tar.gz with a million empty files."""
    numbers = b"".join(tar_header(b"%07d" % number) for number in range(12_000))
    return gzip.compress(tar_member("SKILL.md", skill_md()) + numbers, 1)
