"""Rename to a name that must be free, at once, for files and directories."""

from __future__ import annotations

import errno
import os

# Numbers of renameat2, which older C libraries lack.
SYSCALLS = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "armv7l": 382, "armv6l": 382, "ppc64le": 357, "s390x": 347}
_NOREPLACE = 1
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL)
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def link_exclusively(directory: int, name: str, new_name: str) -> None:
    """Give a file a further name in its directory, or raise FileExistsError.

    Where the file system has no hard links, it is renamed.
    """
    try:
        os.link(name, new_name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        rename_exclusively(directory, name, directory, new_name)


def rename_exclusively(source: int, name: str, target: int, target_name: str) -> None:
    """Rename `name` in directory `source` to `target_name` in directory `target`, or raise FileExistsError.

    Where the kernel or the file system can't do it in one step, the check comes right before the rename.
    """
    number = SYSCALLS.get(os.uname().machine)
    if number is not None:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        if libc.syscall(number, source, os.fsencode(name), target, os.fsencode(target_name), _NOREPLACE) == 0:
            return
        error = ctypes.get_errno()
        if error not in _UNSUPPORTED:
            raise OSError(error, os.strerror(error))
    try:
        os.stat(target_name, dir_fd=target, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(name, target_name, src_dir_fd=source, dst_dir_fd=target)
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
