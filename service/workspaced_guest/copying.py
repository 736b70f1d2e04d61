"""Copying files and trees, by descriptors all the way, with modes, times and links kept."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress

from .content import CHUNK_BYTES
from .fault import Fault, from_os_error
from .tree import TreeCursor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .stream import BlockingStream

    Entries = Iterator[str]

_STEP_BYTES = 8 * 1024 * 1024
_NO_COPY_IN_KERNEL = (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM)
# Files with several names of which the copy remembers the first, so that the copies are one file too.
_HARD_LINKS = 65536


class Copier:
    """Copies one entry, of whatever kind, to a name that is free. What it made is left for the caller to remove."""

    def __init__(self, stream: BlockingStream, given: str, keep_owner: bool = False) -> None:
        """`given` is what the caller calls the source; `keep_owner` also keeps owners, as a move has to."""
        self.bytes = 0
        self._given = given
        self._trail: list[str] = []
        self._stream = stream
        self._keep_owner = keep_owner
        self._linked: dict[tuple[int, int], str] = {}

    def copy(self, source: int, name: str, target: int, target_name: str) -> None:
        """Copy `name` in directory `source` to `target_name` in directory `target`.

        Raises Fault for what can't be read, OSError for what can't be written.
        """
        with self._reading():
            status = os.stat(name, dir_fd=source, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            self._copy_leaf(source, name, status, target, target_name)
            return
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._reading():
            reading = TreeCursor(os.open(name, flags, dir_fd=source))
        try:
            os.mkdir(target_name, 0o700, dir_fd=target)
            writing = TreeCursor(os.open(target_name, flags, dir_fd=target))
            try:
                self._copy_tree(reading, writing)
                self._finish(writing.directory, status)
            finally:
                writing.close()
        finally:
            reading.close()

    def _copy_tree(self, reading: TreeCursor, writing: TreeCursor) -> None:
        top = os.dup(writing.directory)
        try:
            trail = self._trail
            levels: list[tuple[Entries, os.stat_result | None]] = [(iter(os.listdir(reading.directory)), None)]
            while levels:
                names, made = levels[-1]
                name = next(names, None)
                if name is None:
                    levels.pop()
                    if made is not None:
                        self._finish(writing.directory, made)
                        reading.up()
                        writing.up()
                        trail.pop()
                    continue
                self._stream.check()
                with self._reading(name):
                    try:
                        status = os.stat(name, dir_fd=reading.directory, follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # removed since the directory was read
                if stat.S_ISDIR(status.st_mode):
                    with self._reading(name):
                        reading.down(name)
                        names = iter(os.listdir(reading.directory))
                    os.mkdir(name, 0o700, dir_fd=writing.directory)
                    writing.down(name)
                    trail.append(name)
                    levels.append((names, status))
                elif not self._link_again(top, name, status, writing.directory):
                    self._copy_leaf(reading.directory, name, status, writing.directory, name)
        finally:
            os.close(top)

    @contextmanager
    def _reading(self, name: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise from_os_error(error, os.path.join(self._given, *self._trail, name).rstrip("/")) from error

    def _link_again(self, top: int, name: str, status: os.stat_result, target: int) -> bool:
        if status.st_nlink < 2:
            return False
        identity = (status.st_dev, status.st_ino)
        first = self._linked.get(identity)
        if first is not None:
            os.link(first, name, src_dir_fd=top, dst_dir_fd=target, follow_symlinks=False)
            return True
        path = "/".join([*self._trail, name])
        if len(self._linked) < _HARD_LINKS and len(os.fsencode(path)) < 4096:
            self._linked[identity] = path
        return False

    def _copy_leaf(self, source: int, name: str, status: os.stat_result, target: int, target_name: str) -> None:
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFREG:
            self._copy_file(source, name, target, target_name)
        elif kind == stat.S_IFLNK:
            os.symlink(os.readlink(name, dir_fd=source), target_name, dir_fd=target)
            if self._keep_owner:
                _chown_link(target_name, status, target)
            _set_times(target_name, status, target)
        elif kind == stat.S_IFIFO:
            os.mkfifo(target_name, stat.S_IMODE(status.st_mode), dir_fd=target)
        else:
            raise Fault("FAILED_PRECONDITION", "NOT_A_FILE", "sockets and devices can't be copied", name=name)

    def _copy_file(self, source: int, name: str, target: int, target_name: str) -> None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with self._reading(name if self._trail else ""):
            reading = os.open(name, flags, dir_fd=source)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            writing = os.open(target_name, flags, 0o600, dir_fd=target)
            try:
                self._copy_bytes(reading, writing)
                self._finish(writing, os.fstat(reading))
            finally:
                os.close(writing)
        finally:
            os.close(reading)

    def _copy_bytes(self, reading: int, writing: int) -> None:
        # A size of 0 may be that of a file in /proc, which the kernel copies as empty.
        in_kernel = os.fstat(reading).st_size > 0
        while True:
            self._stream.check()
            if in_kernel:
                try:
                    count = os.copy_file_range(reading, writing, _STEP_BYTES)
                except OSError as error:
                    if error.errno not in _NO_COPY_IN_KERNEL:
                        raise
                    in_kernel = False
                    continue
            else:
                data = os.read(reading, CHUNK_BYTES)
                count = len(data)
                view = memoryview(data)
                while view:
                    view = view[os.write(writing, view) :]
            if not count:
                return
            self.bytes += count

    def _finish(self, descriptor: int, status: os.stat_result) -> None:
        mode = stat.S_IMODE(status.st_mode)
        made = os.fstat(descriptor)
        if self._keep_owner:
            _chown(descriptor, status)
            made = os.fstat(descriptor)
        if (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
            mode &= ~(stat.S_ISUID | stat.S_ISGID)
        os.fchmod(descriptor, mode)
        os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))


def remove_tree(stream: BlockingStream | None, directory: int, name: str) -> int:
    """Remove one entry and what is below it; how many entries that were. Never follows a link.

    Directories without write permission are given it first. With `stream`, cancellation stops it half-way.
    """
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=directory)
        return 1
    _make_removable(directory, name, status)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    cursor = TreeCursor(os.open(name, flags, dir_fd=directory))
    try:
        removed = _remove_below(stream, cursor)
    finally:
        cursor.close()
    os.rmdir(name, dir_fd=directory)
    return removed + 1


def _remove_below(stream: BlockingStream | None, cursor: TreeCursor) -> int:
    removed = 0
    trail: list[str] = []
    levels: list[Entries] = [iter(os.listdir(cursor.directory))]
    while levels:
        if stream is not None:
            stream.check()
        name = next(levels[-1], None)
        if name is None:
            levels.pop()
            if levels:
                cursor.up()
                with suppress(FileNotFoundError):
                    os.rmdir(trail.pop(), dir_fd=cursor.directory)
                    removed += 1
            continue
        try:
            os.unlink(name, dir_fd=cursor.directory)
            removed += 1
            continue
        except FileNotFoundError:
            continue
        except (IsADirectoryError, PermissionError):
            # Some file systems answer EPERM for a directory.
            status = _status(cursor.directory, name)
            if status is not None and not stat.S_ISDIR(status.st_mode):
                raise
        if status is None:
            continue
        try:
            _make_removable(cursor.directory, name, status)
            cursor.down(name)
        except FileNotFoundError:
            continue  # somebody else removes it too
        trail.append(name)
        levels.append(iter(os.listdir(cursor.directory)))
    return removed


def _status(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _make_removable(directory: int, name: str, status: os.stat_result) -> None:
    if status.st_mode & 0o700 == 0o700 or os.geteuid() not in (status.st_uid, 0):
        return
    # By descriptor, so that a link put in its place meanwhile is not followed.
    descriptor = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IMODE(status.st_mode) | 0o700)
    finally:
        os.close(descriptor)


def _chown(descriptor: int, status: os.stat_result) -> None:
    try:
        os.fchown(descriptor, status.st_uid, status.st_gid)
    except PermissionError:
        # Only root may give files away; a move across file systems by anyone else makes them his own, as mv does.
        return


def _chown_link(name: str, status: os.stat_result, directory: int) -> None:
    try:
        os.chown(name, status.st_uid, status.st_gid, dir_fd=directory, follow_symlinks=False)
    except PermissionError:
        return


def _set_times(name: str, status: os.stat_result, directory: int) -> None:
    os.utime(name, ns=(status.st_atime_ns, status.st_mtime_ns), dir_fd=directory, follow_symlinks=False)
