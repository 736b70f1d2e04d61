"""openat2 with RESOLVE_BENEATH: the kernel's own answer to where a path below a root leads."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

_OPENAT2 = 437
_BENEATH = 0x08
_NO_MAGICLINKS = 0x02


class _How(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def open_beneath(root: Path, path: str, *, follow: bool) -> tuple[int, int] | int:
    """Device and inode of what the kernel finds, or the errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    how = _How(flags, 0, _BENEATH | _NO_MAGICLINKS)
    directory = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        number = errno.EAGAIN
        descriptor = -1
        while descriptor < 0 and number == errno.EAGAIN:  # somebody renamed something meanwhile
            descriptor = libc.syscall(_OPENAT2, directory, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
            number = ctypes.get_errno()
    finally:
        os.close(directory)
    if descriptor < 0:
        return number
    try:
        status = os.fstat(descriptor)
        return (status.st_dev, status.st_ino)
    finally:
        os.close(descriptor)


BENEATH_WORKS = isinstance(open_beneath(Path("/"), "proc", follow=True), tuple)
