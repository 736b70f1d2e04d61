"""Directories beside the partitions of `skills`, in which what is to appear at once is made, and what is to go at once
is removed. One that a killed guest left is removed by the next operation.
"""

from __future__ import annotations

import errno
import os
import threading

from . import log
from .archive import FILE, walk
from .copying import remove_tree
from .rename import SYSCALLS, rename_exclusively

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from .stream import BlockingStream

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PREFIX = ".staging-"
_EXCHANGE = 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL)
# Above, one sync of the file system costs less than one for each file.
_MAX_SYNCS = 64

_lock = threading.Lock()
_active: set[str] = set()


class Staging:
    """An empty directory of one operation, removed with all it holds when its `with` ends."""

    def __init__(self, parent: int) -> None:
        """Make it in the directory `parent`, which stays the caller's."""
        self._parent = parent
        self._name = _PREFIX + os.urandom(8).hex()
        with _lock:
            _active.add(self._name)
        try:
            os.mkdir(self._name, 0o700, dir_fd=parent)
            self.directory = os.open(self._name, OPEN_DIRECTORY, dir_fd=parent)
        except BaseException:
            self._remove()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.directory)
        self._remove()

    def make(self, name: str) -> int:
        """Make a directory in it, and open it."""
        os.mkdir(name, 0o755, dir_fd=self.directory)
        return os.open(name, OPEN_DIRECTORY, dir_fd=self.directory)

    def _remove(self) -> None:
        _remove(self._parent, self._name)
        with _lock:
            _active.discard(self._name)


def sweep(parent: int) -> None:
    """Remove what killed guests left in a directory."""
    for name in os.listdir(parent):
        if name.startswith(_PREFIX):
            with _lock:
                left = name not in _active
            if left:
                _remove(parent, name)


def _remove(parent: int, name: str) -> None:
    try:
        remove_tree(None, parent, name)
    except FileNotFoundError:
        return  # a reset of the workspace was faster
    except OSError as error:
        # The next operation tries again; this one has done what it was asked for, or tells its own failure.
        log.write(f"{name} stays for now: {error}")


def exchange(source: int, name: str, target: int, target_name: str, spare: str) -> None:
    """Let `name` in directory `source` and `target_name` in directory `target` change places, at once.

    Where the kernel or the file system can't, the second becomes `spare` in `source`, and is missing for a moment.
    """
    number = SYSCALLS.get(os.uname().machine)
    if number is not None:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        if libc.syscall(number, source, os.fsencode(name), target, os.fsencode(target_name), _EXCHANGE) == 0:
            return
        error = ctypes.get_errno()
        if error not in _UNSUPPORTED:
            raise OSError(error, os.strerror(error))
    os.rename(target_name, spare, src_dir_fd=target, dst_dir_fd=source)
    try:
        rename_exclusively(source, name, target, target_name)
    except BaseException:
        rename_exclusively(source, spare, target, target_name)
        raise


def sync_tree(stream: BlockingStream, directory: int) -> None:
    """Bring a tree to the disk, so that a name it gets afterwards never stands for half of it."""
    count = 0
    for _, kind, place, name in walk(stream, directory):
        if kind != FILE:
            continue
        count += 1
        if count > _MAX_SYNCS:
            _sync_file_system(directory)
            return
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    os.fsync(directory)


def _sync_file_system(directory: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(directory):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
