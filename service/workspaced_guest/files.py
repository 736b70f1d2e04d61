"""The `file.` operations: those on one entry, and the table of all."""

from __future__ import annotations

import errno
import os
import stat

from . import params as read
from .content import Match, hash_file, hash_parameter
from .copying import Copier, remove_tree
from .fault import Fault, from_os_error, invalid, shorten
from .filestat import describe_place
from .listing import list_files
from .locks import entry_lock
from .parts import Part
from .paths import Place, resolve
from .rename import rename_exclusively
from .stream import blocking
from .transfer import append_file, read_file, write_file
from .watch import watch_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .guest import Guest
    from .stream import BlockingStream, Handler

    Params = dict[str, Any]


def stat_file(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """What is known of a file, with its SHA-256 if asked for; reads only."""
    follow = read.boolean(params, "follow", True)
    hashed = read.boolean(params, "hash")
    with resolve(guest.workdir, params.get("path"), params.get("root"), follow=follow) as place:
        result: Params = {"stat": describe_place(place)}
        if hashed:
            descriptor = place.open_file()
            try:
                result["sha256"] = hash_file(stream, descriptor)
            finally:
                os.close(descriptor)
        return result


def make_directory(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Make a directory; idempotent with `exist_ok`. Parents that were made stay when the last step fails."""
    mode = read.optional_integer(params, "mode", high=0o7777)
    exist_ok = read.boolean(params, "exist_ok")
    parents = read.boolean(params, "parents")
    with resolve(guest.workdir, params.get("path"), params.get("root"), parents=parents) as place:
        created = True
        try:
            os.mkdir(place.name, 0o755 if mode is None else mode, dir_fd=place.directory)
        except FileExistsError:
            if not exist_ok or not stat.S_ISDIR(place.lstat().st_mode):
                raise
            created = False
        if created and mode is not None:
            # mkdir takes the umask off, and the upper bits on some systems.
            descriptor = place.open_directory()
            try:
                os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)
        return {"stat": describe_place(place), "created": created}


def move_file(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Move an entry; a link itself is moved. Atomic within a file system.

    Across file systems it is copied, put in place at once, and then removed: a failure or cancellation before that
    leaves the source whole and nothing at the target.
    """
    overwrite = read.boolean(params, "overwrite")
    root = params.get("root")
    with resolve(guest.workdir, params.get("path"), root, follow=False) as source:
        source.require_name()
        source.lstat()
        _refuse_workdir(guest, source)
        with resolve(guest.workdir, params.get("to"), root, follow=False, field="to") as target:
            _require_new_name(source, target)
            try:
                _rename(source.directory, source.name, target, overwrite)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _move_across(guest, stream, source, target, overwrite)
            return {"stat": describe_place(target)}


def copy_file(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Copy a file, or with `recursive` a directory; modes, times and links are kept, links are never followed.

    The copy appears whole or not at all; failure and cancellation remove what was made.
    """
    recursive = read.boolean(params, "recursive")
    overwrite = read.boolean(params, "overwrite")
    root = params.get("root")
    with resolve(guest.workdir, params.get("path"), root, follow=False) as source:
        status = source.lstat()
        if stat.S_ISDIR(status.st_mode) and not recursive:
            raise IsADirectoryError(errno.EISDIR, "Is a directory, and recursive is not set")
        with resolve(guest.workdir, params.get("to"), root, follow=False, field="to") as target:
            _require_new_name(source, target)
            copier = Copier(stream, source.given)
            _copy_into_place(guest, stream, copier, source, target, overwrite)
            return {"stat": describe_place(target), "bytes": copier.bytes}


def remove_file(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Remove an entry, a link itself and never its target; idempotent with `allow_missing`.

    Cancelled half-way through a directory, what is gone is gone. The workdir, what holds it, and a root are refused.
    """
    recursive = read.boolean(params, "recursive")
    allow_missing = read.boolean(params, "allow_missing")
    wanted = hash_parameter(params, "if_match")
    try:
        with resolve(guest.workdir, params.get("path"), params.get("root"), follow=False) as place:
            place.require_name()
            status = place.lstat()
            if stat.S_ISDIR(status.st_mode):
                _refuse_workdir(guest, place)
                if wanted is not None:
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                if recursive:
                    return {"removed": remove_tree(stream, place.directory, place.name)}
                os.rmdir(place.name, dir_fd=place.directory)
                return {"removed": 1}
            match = None if wanted is None else Match(stream, place, wanted)
            with entry_lock(place):
                if match is not None:
                    match.require()
                os.unlink(place.name, dir_fd=place.directory)
            return {"removed": 1}
    except Fault as fault:
        if allow_missing and fault.reason == "FILE_NOT_FOUND":
            return {"removed": 0}
        raise


def _require_new_name(source: Place, target: Place) -> None:
    """Refuse a target that can't be made of the source. Errors about it name the target."""
    target.require_name()
    try:
        if target.must_be_directory and not stat.S_ISDIR(source.lstat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except OSError as error:
        raise from_os_error(error, target.given) from error


def _rename(directory: int, name: str, target: Place, overwrite: bool) -> None:
    """Give an entry the target's name. Errors name the target, all but EXDEV, which is the caller's to handle."""
    try:
        with entry_lock(target):
            if overwrite:
                os.rename(name, target.name, src_dir_fd=directory, dst_dir_fd=target.directory)
            else:
                rename_exclusively(directory, name, target.directory, target.name)
    except FileNotFoundError:
        raise  # the source has gone
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise
        if error.errno == errno.EINVAL:
            raise invalid(f"{shorten(target.given)}: is inside of what is moved", field="to") from error
        raise from_os_error(error, target.given) from error


def _copy_into_place(
    guest: Guest, stream: BlockingStream, copier: Copier, source: Place, target: Place, overwrite: bool
) -> None:
    _refuse_inside(source, target)
    present = target.peek()
    if present is not None:
        if not overwrite:
            raise from_os_error(FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)), target.given)
        of_directory = stat.S_ISDIR(source.lstat().st_mode)
        if stat.S_ISDIR(present.st_mode) != of_directory:
            number = errno.ENOTDIR if of_directory else errno.EISDIR
            raise from_os_error(OSError(number, os.strerror(number)), target.given)
    part = Part(guest, target, None)
    try:
        part.record()
        copier.copy(source.directory, source.name, target.directory, part.name)
        _rename(target.directory, part.name, target, overwrite)
    except BaseException:
        _remove_part(target, part)
        raise
    part.done()


def _remove_part(target: Place, part: Part) -> None:
    try:
        remove_tree(None, target.directory, part.name)
    except FileNotFoundError:
        pass  # it failed before anything was made
    finally:
        part.done()


def _move_across(guest: Guest, stream: BlockingStream, source: Place, target: Place, overwrite: bool) -> None:
    _copy_into_place(guest, stream, Copier(stream, source.given, keep_owner=True), source, target, overwrite)
    remove_tree(None, source.directory, source.name)


def _refuse_inside(source: Place, target: Place) -> None:
    """Refuse to copy a directory into itself, which would never end."""
    status = source.lstat()
    if stat.S_ISDIR(status.st_mode) and (status.st_dev, status.st_ino) in _ancestors(target.directory):
        raise invalid(f"{shorten(target.given)}: is inside of what is copied", field="to")


def _refuse_workdir(guest: Guest, place: Place) -> None:
    status = place.lstat()
    directory = os.open(guest.workdir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if (status.st_dev, status.st_ino) in _ancestors(directory):
            raise invalid(f"{shorten(place.given)}: holds the workspace itself", field="path")
    finally:
        os.close(directory)


def _ancestors(directory: int) -> set[tuple[int, int]]:
    """Device and inode of a directory and of all above it."""
    found: set[tuple[int, int]] = set()
    current = os.dup(directory)
    try:
        while True:
            status = os.fstat(current)
            identity = (status.st_dev, status.st_ino)
            if identity in found:
                return found
            found.add(identity)
            above = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=current)
            os.close(current)
            current = above
    finally:
        os.close(current)


FILE_OPS: dict[str, Handler] = {
    "file.stat": blocking(stat_file),
    "file.list": blocking(list_files),
    "file.read": blocking(read_file),
    "file.write": blocking(write_file),
    "file.append": blocking(append_file),
    "file.mkdir": blocking(make_directory),
    "file.move": blocking(move_file),
    "file.copy": blocking(copy_file),
    "file.remove": blocking(remove_file),
    "file.watch": watch_files,
}
