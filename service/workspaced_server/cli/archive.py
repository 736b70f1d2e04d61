"""Directories as one stream: packed here and unpacked there, or the other way round.

The other end is ``python3 -c`` in the workspace, which is there since the guest needs it. What comes from a workspace
is not trusted: nothing is written outside of the destination, or through a link.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

BLOCK_BYTES = 256 << 10

# Both programs run on Python 3.9. Argument: the directory.
PACK = r"""
import os, stat, sys, tarfile
root, out, status, entries, total = sys.argv[1], sys.stdout.buffer, 0, [], 0
def fail(error):
    global status
    status = 1
    print("%s: %s" % (error.filename, error.strerror), file=sys.stderr)
if not os.path.isdir(root):
    sys.exit("%s: not a directory" % root)
for directory, names, files in os.walk(root, onerror=fail):
    links = [name for name in names if os.path.islink(os.path.join(directory, name))]
    for name in [""] + sorted(files + links):
        path = os.path.join(directory, name) if name else directory
        try:
            found = os.lstat(path)
        except OSError as error:
            fail(error)
            continue
        if stat.S_ISREG(found.st_mode):
            total += found.st_size
        entries.append((path, "." if path == root else os.path.relpath(path, root)))
out.write(b"%d\n" % total)
with tarfile.open(fileobj=out, mode="w|", bufsize=262144, format=tarfile.PAX_FORMAT) as tar:
    for path, name in entries:
        file = None
        try:
            tar.inodes.clear()
            member = tar.gettarinfo(path, name)
            if member is None:
                raise OSError(0, "a socket is not copied", path)
            if name == ".":
                member = tar.gettarinfo(os.path.join(path, ""), name)
            if member.isreg():
                file = open(path, "rb")
            elif not (member.isdir() or member.issym()):
                raise OSError(0, "not a file, directory or link", path)
        except OSError as error:
            fail(error)
            continue
        tar.addfile(member, file)
        if file:
            file.close()
sys.exit(status)
"""

UNPACK = r"""
import os, sys, tarfile
root, status, directories = sys.argv[1], 0, []
os.makedirs(root, exist_ok=True)
trusted = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
with tarfile.open(fileobj=sys.stdin.buffer, mode="r|", bufsize=262144) as tar:
    for member in tar:
        path = os.path.join(root, member.name)
        try:
            if os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path)) and member.name != ".":
                os.unlink(path)
            if member.isdir():
                directories.append((path, member.mode, member.mtime))
                os.makedirs(path, exist_ok=True)
                os.chmod(path, member.mode | 0o700)
            else:
                tar.extract(member, root, **trusted)
        except OSError as error:
            status = 1
            print("%s: %s" % (member.name, error.strerror or error), file=sys.stderr)
for path, mode, mtime in reversed(directories):
    os.chmod(path, mode)
    os.utime(path, (mtime, mtime))
sys.exit(status)
"""


@dataclass
class Tally:
    """What was copied, and what was not: (name, why)."""

    files: int = 0
    bytes: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)


def entries(root: Path) -> Iterator[tuple[Path, str, os.stat_result]]:
    """Everything below a directory, itself as ``.`` first: path, name in the archive, and what it is."""
    yield root, ".", root.stat()
    stack = [(root, "")]
    while stack:
        directory, prefix = stack.pop()
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            found = entry.stat(follow_symlinks=False)
            yield Path(entry.path), f"{prefix}{entry.name}", found
            if stat.S_ISDIR(found.st_mode):
                stack.append((Path(entry.path), f"{prefix}{entry.name}/"))


def content_bytes(root: Path) -> int:
    """Bytes of all regular files below a directory."""
    return sum(found.st_size for _, _, found in entries(root) if stat.S_ISREG(found.st_mode))


def pack(root: Path, write: Callable[[bytes], None], tally: Tally) -> None:
    """Write a directory as a tar stream. Owners stay behind; pipes, sockets and devices are skipped and tallied."""

    class Sink:
        def write(self, data: bytes) -> int:
            write(data)
            return len(data)

    sink = cast("IO[bytes]", Sink())
    with tarfile.open(fileobj=sink, mode="w|", bufsize=BLOCK_BYTES, format=tarfile.PAX_FORMAT) as tar:
        for path, name, found in entries(root):
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) or stat.S_ISLNK(found.st_mode)):
                tally.skipped.append((name, "not a file, directory or link"))
                continue
            member = tarfile.TarInfo(name)
            member.mode = stat.S_IMODE(found.st_mode)
            member.mtime = int(found.st_mtime)
            if stat.S_ISDIR(found.st_mode):
                member.type = tarfile.DIRTYPE
                tar.addfile(member)
            elif stat.S_ISLNK(found.st_mode):
                member.type = tarfile.SYMTYPE
                member.linkname = str(path.readlink())
                tar.addfile(member)
                tally.files += 1
            else:
                try:
                    file = path.open("rb")
                except OSError as error:
                    tally.skipped.append((name, error.strerror or str(error)))
                    continue
                with file:
                    member.size = os.fstat(file.fileno()).st_size
                    tar.addfile(member, file)
                tally.files += 1
                tally.bytes += member.size


def unpack(root: Path, read: Callable[[int], bytes], tally: Tally) -> None:
    """Read a tar stream into a directory, which is made. What leads out of it is skipped and tallied."""

    class Source:
        def read(self, count: int) -> bytes:
            return read(count)

    root.mkdir(parents=True, exist_ok=True)
    real = {""}  # directories below the root that are no links, by name
    with tarfile.open(fileobj=cast("IO[bytes]", Source()), mode="r|", bufsize=BLOCK_BYTES) as tar:
        for member in tar:
            try:
                safe = tarfile.data_filter(member, str(root))
                if safe.islnk() or _leads_through_link(root, safe.name, real):
                    raise tarfile.LinkOutsideDestinationError(member, safe.linkname)
                _place(tar, root, safe, member.mode or 0)
            except tarfile.FilterError as error:
                tally.skipped.append((member.name, _why(error)))
            except OSError as error:
                tally.skipped.append((member.name, error.strerror or str(error)))
            else:
                if not member.isdir():
                    tally.files += 1
                    tally.bytes += member.size


def _place(tar: tarfile.TarFile, root: Path, member: tarfile.TarInfo, mode: int) -> None:
    path = root / member.name
    if member.isdir():
        path.mkdir(exist_ok=True)
        if member.name != ".":
            path.chmod(mode & 0o755 | 0o700)
        return
    if path.is_symlink() or path.is_file():
        path.unlink()  # a link is replaced, not written through
    tar.extract(member, root, filter="data")


def _leads_through_link(root: Path, name: str, real: set[str]) -> bool:
    parent = name.rpartition("/")[0]
    if parent in real:
        return False
    if _leads_through_link(root, parent, real) or (root / parent).is_symlink():
        return True
    real.add(parent)
    return False


def _why(error: tarfile.FilterError) -> str:
    if isinstance(error, tarfile.SpecialFileError):
        return "not a file, directory or link"
    if isinstance(error, (tarfile.AbsoluteLinkError, tarfile.LinkOutsideDestinationError)):
        return "a link that leads out of the directory"
    return "it leads out of the directory"
