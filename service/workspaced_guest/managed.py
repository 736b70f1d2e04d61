"""Directories that are the workspace's own, such as `sessions`: reached name by name from the workdir, by descriptors,
and never through a link.
"""

from __future__ import annotations

import errno
import os
import stat

from .fault import Fault, from_os_error, invalid, printable, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NAME_BYTES = 255


def check_name(value: Any, field: str) -> str:
    """Return `value` if it can name a file here: 1 to 255 bytes, no `/` or NUL, not starting with a dot."""
    if isinstance(value, str) and value and value[0] != "." and "/" not in value and "\0" not in value:
        try:
            if len(value.encode("utf-8")) <= _NAME_BYTES:
                return value
        except UnicodeEncodeError:
            pass
    raise invalid(f"{field} must be a file name of at most {_NAME_BYTES} bytes", field=field)


def open_directory(workdir: str, *names: str, make: bool = False) -> int:
    """Open `workdir/names[0]/names[1]…` for reading its names; with `make` what is missing is made, durably.

    Raises PATH_ESCAPES for a link on the way, FileNotFoundError, and other faults.
    """
    current = os.open(workdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    given = ""
    for name in names:
        given = os.path.join(given, name)
        try:
            following = _enter(current, name, given, make)
        finally:
            os.close(current)
        current = following
    return current


def open_file(directory: int, name: str, flags: int, mode: int = 0o644) -> int:
    """Open a regular file, which is never a link; a new one with O_CREAT. Raises Fault, and FileNotFoundError."""
    try:
        descriptor = os.open(name, flags | _FILE, mode, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise refuse_link(name) from None
        if error.errno in (errno.ENXIO, errno.EISDIR):
            raise not_a_file(name) from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise not_a_file(name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def look(directory: int, name: str) -> os.stat_result | None:
    """What regular file is there, or None for nothing. Raises Fault for a link and anything else."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise refuse_link(name)
    if not stat.S_ISREG(status.st_mode):
        raise not_a_file(name)
    return status


def refuse_link(given: str) -> Fault:
    """The fault for a link where only a file or directory of the workspace's own can be."""
    message = f"{shorten(given)}: is a link, and leads out of its directory"
    return Fault("PERMISSION_DENIED", "PATH_ESCAPES", message, path=printable(given))


def not_a_file(given: str) -> Fault:
    """The fault for a directory, a FIFO or a device where only a file can be."""
    return from_os_error(OSError(errno.ENXIO, "not a regular file"), given)


def _enter(directory: int, name: str, given: str, make: bool) -> int:
    if make:
        try:
            os.mkdir(name, 0o755, dir_fd=directory)
            os.fsync(directory)
        except FileExistsError:
            pass
        except OSError as error:
            raise from_os_error(error, given) from error
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        raise
    except OSError as error:
        # Linux answers ENOTDIR for a link here.
        if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise refuse_link(given) from None
        raise from_os_error(error, given) from error
