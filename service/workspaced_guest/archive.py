"""Expanding an archive that nobody vouches for: zip, tar and tar.gz, below one directory, within limits.

The formats are read here and not by `zipfile` and `tarfile`, because those gather what an attacker chooses in memory
(a directory of a million members, a header of gigabytes) before they can be asked, and differ between versions.
Whatever fails, the caller removes the directory.
"""

from __future__ import annotations

import errno
import os
import re
import zlib

from .content import CHUNK_BYTES, new_hash
from .fault import Fault, invalid, printable, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .stream import BlockingStream

    Entries = dict[str, tuple[str, str]]

FILE, DIRECTORY, LINK = "file", "directory", "link"
_MAX_DEPTH = 32
_MAX_NAME_BYTES = 1024
_MAX_LINK_BYTES = 1024
# What the headers of one member may take besides its content.
_OVERHEAD_BYTES = 4096
_CONTROL = re.compile("[\0-\x1f\x7f]")
_DRIVE = re.compile("[A-Za-z]:")
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def broken(message: str, **metadata: object) -> Fault:
    """The archive can't be read."""
    return Fault("INVALID_ARGUMENT", "ARCHIVE_INVALID", message, **metadata)


def unsafe(name: str, message: str) -> Fault:
    """A member that must not be expanded."""
    return Fault("INVALID_ARGUMENT", "ARCHIVE_UNSAFE", f"{shorten(name)}: {message}", member=printable(name)[:200])


class Limits:
    """What an archive may come to; everything is counted while it is expanded."""

    def __init__(self, size: int, members: int) -> None:
        self.size = size
        self.members = members

    @property
    def stored(self) -> int:
        """Bytes of the archive itself, and of a tar inside it."""
        return self.size + self.members * _OVERHEAD_BYTES + (1 << 20)

    def too_large(self) -> Fault:
        """It has more bytes."""
        message = f"the archive expands to more than {self.size} bytes"
        return Fault("RESOURCE_EXHAUSTED", "ARCHIVE_TOO_LARGE", message, limit=self.size, unit="bytes")

    def too_many(self) -> Fault:
        """It has more members, or directories on the way to them."""
        message = f"the archive has more than {self.members} members"
        return Fault("RESOURCE_EXHAUSTED", "ARCHIVE_TOO_LARGE", message, limit=self.members, unit="members")


class Member:
    """One member. `chunks` yields the content of a file, once, before the next member is asked for."""

    __slots__ = ("chunks", "executable", "kind", "name", "size", "target")

    def __init__(
        self,
        name: str,
        kind: str,
        size: int = 0,
        executable: bool = False,
        target: str = "",
        chunks: Iterable[bytes] = (),
    ) -> None:
        self.name = name
        self.kind = kind
        self.size = size
        self.executable = executable
        self.target = target
        self.chunks = chunks


class Incoming:
    """The archive as it comes from the client, which ends it by MESSAGE `{"end": true}`."""

    def __init__(self, stream: BlockingStream, limits: Limits) -> None:
        self._stream = stream
        self._limits = limits
        self._digest = new_hash()
        self._size = 0
        self._ended = False

    def chunk(self) -> bytes:
        """The next bytes; nothing at the end."""
        if self._ended:
            return b""
        item = self._stream.receive_item()
        if item is None:
            raise invalid("the stream ended before the archive did", field="archive")
        if isinstance(item, dict):
            if item.get("end") is not True:
                raise invalid("a message before the end of the archive", field="archive")
            self._ended = True
            return b""
        self._size += len(item)
        if self._size > self._limits.stored:
            raise self._limits.too_large()
        self._digest.update(item)
        return bytes(item)

    def finish(self) -> str:
        """Read what follows the last member; the SHA-256 of all."""
        while self.chunk():
            pass
        return self._digest.hexdigest()


class Reader:
    """Exact reads from a source of chunks."""

    def __init__(self, chunks: Iterator[bytes], limits: Limits) -> None:
        self._chunks = chunks
        self._limits = limits
        self._rest = b""
        self._at = 0
        self._count = 0

    def read(self, size: int) -> bytes:
        """At most `size` bytes, some at least; nothing at the end."""
        if self._at >= len(self._rest):
            self._rest = next(self._chunks, b"")
            self._at = 0
            self._count += len(self._rest)
            if self._count > self._limits.stored:
                raise self._limits.too_large()
        data = self._rest[self._at : self._at + size]
        self._at += len(data)
        return data

    def exactly(self, size: int) -> bytes:
        """Just `size` bytes, which the caller has bounded; fewer at the end."""
        parts = []
        while size:
            data = self.read(size)
            if not data:
                break
            parts.append(data)
            size -= len(data)
        return b"".join(parts)

    def pieces(self, size: int) -> Iterator[bytes]:
        """`size` bytes in pieces. Raises ARCHIVE_INVALID when they are not there."""
        while size:
            data = self.read(min(size, CHUNK_BYTES))
            if not data:
                raise broken("the archive is cut short")
            size -= len(data)
            yield data


def expand(stream: BlockingStream, directory: int, limits: Limits, wanted: str, sha256: str | None) -> Entries:
    """Expand the archive that comes over `stream` into an empty directory.

    `wanted` is `zip`, `tar`, `tar.gz`, or empty to go by the first bytes. Returns what was made: by path, the kind
    (`file`, `program`, `directory`, `link`) and the SHA-256 of a file's content or the target of a link.
    """
    incoming = Incoming(stream, limits)
    head = b""
    while len(head) < 512:
        data = incoming.chunk()
        if not data:
            break
        head += data
    found = _recognise(head)
    if wanted and wanted != found:
        raise broken(f"the archive is no {wanted}, but {found or 'nothing that is known'}")
    if not found:
        raise broken("the archive is neither zip, nor tar, nor tar.gz" if head else "the archive is empty")
    chunks = _chain(head, incoming)
    tree = Tree(stream, directory, limits)
    if found == "zip":
        from .zipmembers import zip_members

        # Its directory is at the end.
        spool = _spool(chunks, directory)
        try:
            for member in zip_members(spool, limits):
                tree.add(member)
        finally:
            os.close(spool)
    else:
        from .tarmembers import tar_members

        reader = Reader(chunks if found == "tar" else gunzip(chunks), limits)
        for member in tar_members(reader, limits):
            tree.add(member)
            # What the tree did not want.
            for _ in member.chunks:
                pass
        # What follows the tar's end says whether the compression is whole.
        while reader.read(CHUNK_BYTES):
            stream.check()
    got = incoming.finish()
    if sha256 is not None and got != sha256:
        raise Fault("DATA_LOSS", "HASH_MISMATCH", "what arrived has another SHA-256 than was announced", found=got)
    return tree.entries


def _recognise(head: bytes) -> str:
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if head.startswith(b"\x1f\x8b"):
        return "tar.gz"
    if len(head) >= 512:
        from .tarmembers import is_header

        if is_header(head[:512]):
            return "tar"
    return ""


def _chain(head: bytes, incoming: Incoming) -> Iterator[bytes]:
    yield head
    while True:
        data = incoming.chunk()
        if not data:
            return
        yield data


def _spool(chunks: Iterator[bytes], directory: int) -> int:
    descriptor = os.open(".archive", os.O_RDWR | _FLAGS & ~os.O_WRONLY, 0o600, dir_fd=directory)
    try:
        os.unlink(".archive", dir_fd=directory)
        for data in chunks:
            write_all(descriptor, data)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def gunzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """What a gzip stream holds, in bounded pieces; members one after the other are one."""
    decoder = zlib.decompressobj(31)
    try:
        for data in chunks:
            while data:
                if decoder.eof:
                    if not data.strip(b"\0"):
                        break  # padding
                    decoder = zlib.decompressobj(31)
                piece = decoder.decompress(data, CHUNK_BYTES)
                data = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
                if piece:
                    yield piece
    except zlib.error:
        raise broken("the archive's compression is damaged") from None
    if not decoder.eof:
        raise broken("the archive is cut short")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class Tree:
    """What is made of the members, below one directory that it does not own."""

    def __init__(self, stream: BlockingStream, top: int, limits: Limits) -> None:
        self.entries: Entries = {}
        self._stream = stream
        self._top = top
        self._limits = limits
        self._size = 0
        self._members = 0
        self._spelled: dict[str, str] = {}  # as a file system that ignores case sees it -> as it is

    def add(self, member: Member) -> None:
        """Make one member. Raises Fault, and then may have made a part of it."""
        self._stream.check()
        self._members += 1
        if self._members > self._limits.members:
            raise self._limits.too_many()
        parts = _parts(member.name)
        if self._size + member.size > self._limits.size:
            raise self._limits.too_large()
        if not parts or _is_litter(parts):
            return
        if member.kind == DIRECTORY:
            os.close(self._enter(parts, member.name))
            return
        directory = self._enter(parts[:-1], member.name)
        try:
            path = "/".join(parts)
            self._spell(path, member.name, new=True)
            if member.kind == LINK:
                _check_target(member, len(parts) - 1)
                os.symlink(member.target, parts[-1], dir_fd=directory)
                self.entries[path] = (LINK, member.target)
            else:
                kind = "program" if member.executable else FILE
                self.entries[path] = (kind, self._write(member, directory, parts[-1]))
        except FileExistsError:
            # Nobody but us knows the directory; its file system finds names equal that we do not.
            raise unsafe(member.name, "the name is taken by another member") from None
        finally:
            os.close(directory)

    def _write(self, member: Member, directory: int, name: str) -> str:
        digest = new_hash()
        descriptor = os.open(name, _FLAGS, 0o755 if member.executable else 0o644, dir_fd=directory)
        try:
            for data in member.chunks:
                self._stream.check()
                self._size += len(data)
                if self._size > self._limits.size:
                    raise self._limits.too_large()
                digest.update(data)
                write_all(descriptor, data)
        finally:
            os.close(descriptor)
        return digest.hexdigest()

    def _enter(self, parts: list[str], name: str) -> int:
        """Open a directory of the tree, making what is missing."""
        current = os.dup(self._top)
        try:
            for count, part in enumerate(parts, 1):
                path = "/".join(parts[:count])
                if self._spell(path, name):
                    os.mkdir(part, 0o755, dir_fd=current)
                    self.entries[path] = (DIRECTORY, "")
                elif self.entries[path][0] != DIRECTORY:
                    raise unsafe(name, f"{shorten(path)} is a directory and something else")
                following = os.open(part, _OPEN, dir_fd=current)
                os.close(current)
                current = following
        except FileExistsError:
            os.close(current)
            raise unsafe(name, "the name is taken by another member") from None
        except BaseException:
            os.close(current)
            raise
        return current

    def _spell(self, path: str, name: str, new: bool = False) -> bool:
        """Note the spelling of a path; whether it was not there. Refuses another spelling, and with `new` the same."""
        known = self._spelled.setdefault(folded(path), path)
        if known != path:
            raise unsafe(name, f"differs only in case or in its accents' encoding from {shorten(known)}")
        present = path in self.entries
        if present and new:
            raise unsafe(name, "the archive has it twice")
        if not present and len(self.entries) >= self._limits.members:
            raise self._limits.too_many()
        return not present


def folded(text: str) -> str:
    """What is equal for names that a file system may take for one."""
    if text.isascii():
        return text.lower()
    import unicodedata

    return unicodedata.normalize("NFC", text).casefold()


def _parts(name: str) -> list[str]:
    if _CONTROL.search(name):
        raise unsafe(name, "the name has a control character")
    if "\\" in name:
        raise unsafe(name, "the name has a backslash, which separates directories elsewhere")
    if name.startswith("/") or _DRIVE.match(name):
        raise unsafe(name, "the name is absolute")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise unsafe(name, "the name leads out of the archive")
    try:
        size, longest = len(name.encode()), max((len(part.encode()) for part in parts), default=0)
    except UnicodeEncodeError:
        raise broken(f"{shorten(name)}: the name is not UTF-8", member=printable(name)[:200]) from None
    if len(parts) > _MAX_DEPTH or size > _MAX_NAME_BYTES or longest > 255:
        raise unsafe(name, f"the name is too long: at most {_MAX_DEPTH} levels and {_MAX_NAME_BYTES} bytes")
    return parts


def _is_litter(parts: list[str]) -> bool:
    """What macOS adds to archives and no skill means."""
    return parts[0] == "__MACOSX" or parts[-1] == ".DS_Store" or parts[-1].startswith("._")


def _check_target(member: Member, depth: int) -> None:
    """A link may only lead further down, after going up no further than the top.

    A `..` behind a name could go up from wherever a second link of the archive leads.
    """
    target = member.target
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    if not target or target.startswith("/") or _DRIVE.match(target) or ups > depth or ".." in parts[ups:]:
        raise unsafe(member.name, f"the link leads out of the archive, to {shorten(target)}")
    if len(os.fsencode(target)) > _MAX_LINK_BYTES or _CONTROL.search(target) or "\\" in target:
        raise unsafe(member.name, "the link's target is no path that every system can have")


def walk(
    stream: BlockingStream, directory: int, prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, str, int, str]]:
    """What is below a directory, sorted by path: path, kind, and while it is looked at the directory and name.

    Links are not followed. What is deeper than an archive may be has kind `deep`, other things kind `other`.
    """
    with os.scandir(directory) as found:
        entries = [(entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name, entry) for entry in found]
    entries.sort(key=_first)
    for name, entry in entries:
        stream.check()
        path = prefix + entry.name
        if not name.endswith("/"):
            kind = LINK if entry.is_symlink() else FILE if entry.is_file(follow_symlinks=False) else "other"
            yield path, kind, directory, entry.name
            continue
        if depth >= _MAX_DEPTH:
            yield path, "deep", directory, entry.name
            continue
        yield path, DIRECTORY, directory, entry.name
        try:
            below = os.open(entry.name, _OPEN, dir_fd=directory)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                continue  # changed meanwhile
            raise
        try:
            yield from walk(stream, below, path + "/", depth + 1)
        finally:
            os.close(below)


def _first(pair: tuple[str, object]) -> str:
    return pair[0]


def entries_of(stream: BlockingStream, directory: int, most: int) -> Entries | None:
    """As `expand` returns it, of a directory that is there; None when it has more than `most` entries, or others than
    an archive makes.
    """
    found: Entries = {}
    for path, kind, place, name in walk(stream, directory):
        if len(found) >= most or kind not in (FILE, DIRECTORY, LINK):
            return None
        if kind == LINK:
            found[path] = (LINK, os.readlink(name, dir_fd=place))
        elif kind == DIRECTORY:
            found[path] = (DIRECTORY, "")
        else:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
            try:
                from .content import hash_file

                kind = "program" if os.fstat(descriptor).st_mode & 0o100 else FILE
                found[path] = (kind, hash_file(stream, descriptor))
            finally:
                os.close(descriptor)
    return found


def below(entries: Entries, top: str) -> Entries:
    """The entries of one directory of the archive, or of all with an empty `top`."""
    if not top:
        return entries
    prefix = top + "/"
    return {path[len(prefix) :]: entry for path, entry in entries.items() if path.startswith(prefix)}
