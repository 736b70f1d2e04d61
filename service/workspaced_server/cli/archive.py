"""Directories as one stream: packed here and unpacked there, or the other way round.

The other end is ``python3 -c`` in the workspace, which is there since the guest needs it. What comes from a workspace
is not trusted: nothing is written outside of the destination, or through a link.
"""

from __future__ import annotations

import os
import shutil
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
                refused = _refusal(root, member, real)
                if refused is None:
                    _place(tar, root / member.name, member)
            except OSError as error:
                refused = error.strerror or str(error)
            except (ValueError, OverflowError):
                refused = "a name or a time that a file cannot have"
            if refused is not None:
                tally.skipped.append((member.name, refused))
            elif not member.isdir():
                tally.files += 1
                tally.bytes += member.size


def _refusal(root: Path, member: tarfile.TarInfo, real: set[str]) -> str | None:
    """Why a member is not taken. Checked here since the filters of `tarfile` came only with Python 3.11.4."""
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return "not a file, directory or link"
    if _leads_out(member.name):
        return "it leads out of the directory"
    if member.islnk() or _leads_through_link(root, member.name, real):
        return "a link that leads out of the directory"
    if member.issym():
        parent = member.name.rpartition("/")[0]
        # The text of the target says one thing and, with other links on its way, the file system may say another.
        inside = os.path.realpath(root / parent / member.linkname)
        if (
            member.linkname.startswith("/")
            or _leads_out(os.path.normpath(f"./{parent}/{member.linkname}"))
            or not Path(inside).is_relative_to(os.path.realpath(root))
        ):
            return "a link that leads out of the directory"
    return None


def _leads_out(name: str) -> bool:
    return name.startswith("/") or ".." in name.split("/")


def _place(tar: tarfile.TarFile, path: Path, member: tarfile.TarInfo) -> None:
    if path.is_symlink() or (path.is_file() and not member.isdir()):
        path.unlink()  # a link is replaced, not written through
    path.parent.mkdir(parents=True, exist_ok=True)
    # Nobody else may write to what came from a workspace, and nothing of it takes another user's rights.
    mode = member.mode & 0o755
    if member.isdir():
        path.mkdir(exist_ok=True)
        if member.name != ".":
            path.chmod(mode | 0o700)
    elif member.issym():
        path.symlink_to(member.linkname)
    else:
        content = tar.extractfile(member)
        assert content is not None, "it is a regular file"
        with content, open(path, "xb", opener=_private) as file:
            try:
                shutil.copyfileobj(content, file, BLOCK_BYTES)
                file.flush()
                os.fchmod(file.fileno(), mode | 0o600)
                os.utime(file.fileno(), (member.mtime, member.mtime))
            except BaseException:
                path.unlink()
                raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _leads_through_link(root: Path, name: str, real: set[str]) -> bool:
    parent = name.rpartition("/")[0]
    if parent in real:
        return False
    if _leads_through_link(root, parent, real) or (root / parent).is_symlink():
        return True
    real.add(parent)
    return False
