"""file.read, file.write and file.append: the bytes of one file."""

from __future__ import annotations

import errno
import os
import stat
from _thread import start_new_thread

from . import params as read
from . import parts
from .content import CHUNK_BYTES, Match, feed_hash, hash_parameter, new_hash
from .fault import Fault, invalid, printable, shorten
from .filestat import describe
from .locks import entry_lock
from .paths import Place, require_file, resolve
from .rename import rename_exclusively
from .stream import StreamCancelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .guest import Guest
    from .receiver import Payload
    from .stream import BlockingStream

    Params = dict[str, Any]

APPEND_LIMIT_BYTES = 16 * 1024 * 1024
_DEFAULT_MODE = 0o644
_FLUSH_BYTES = 16 * 1024 * 1024
_LARGE_BYTES = 64 * 1024 * 1024
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def read_file(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Send a range of a file; what grows meanwhile is read until a read finds its end. Cancellation leaves nothing."""
    offset = read.integer(params, "offset", 0)
    limit = read.optional_integer(params, "limit")
    digest = new_hash() if read.boolean(params, "hash") else None
    with resolve(guest.workdir, params.get("path"), params.get("root")) as place:
        descriptor = place.open_file()
        try:
            stream.message({"stat": describe(os.fstat(descriptor), place.shown)})
            os.posix_fadvise(descriptor, offset, limit or 0, os.POSIX_FADV_SEQUENTIAL)
            position = offset
            end = None if limit is None else offset + limit
            while end is None or position < end:
                data = os.pread(descriptor, CHUNK_BYTES if end is None else min(CHUNK_BYTES, end - position), position)
                if not data:
                    break
                if digest is not None:
                    digest.update(data)
                stream.send(data)
                position += len(data)
            at_end = not os.pread(descriptor, 1, position)
        finally:
            os.close(descriptor)
    result: Params = {"bytes": position - offset, "eof": at_end}
    if digest is not None:
        result["sha256"] = digest.hexdigest()
    return result


def write_file(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Replace a file as a whole by what the client sends.

    The content is gathered in a part beside the target and put in its place by a rename, so that the target is the
    old file or the new one at any moment, and the old one after any failure. A failure leaves no part; cancellation
    leaves it for an hour if there is an `upload_id`, else not.
    """
    request = _WriteRequest(params)
    parts.sweep(guest)
    with resolve(guest.workdir, params.get("path"), params.get("root"), parents=request.parents) as place:
        present = _writable_target(place)
        if request.query_offset:
            return {"next_offset": parts.Part(guest, place, request.upload_id, claim=False).size()}
        if request.discard:
            parts.Part(guest, place, request.upload_id, claim=False).discard()
            return {"next_offset": 0}
        if request.create_only and present is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        match = None if request.if_match is None else Match(stream, place, request.if_match)
        part = parts.Part(guest, place, request.upload_id)
        try:
            return _fill_and_replace(stream, request, place, part, match)
        except StreamCancelled:
            if part.resumable:
                part.leave()
            else:
                part.remove()
            raise
        except BaseException:
            part.remove()
            raise


def append_file(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Append what the client sends, all of it in one write or nothing; at most 16 MiB.

    With `offset` the file must have just that size, so that a repeated append is noticed. Cancellation before END
    leaves nothing.
    """
    offset = read.optional_integer(params, "offset")
    mode = read.optional_integer(params, "mode", high=0o7777)
    sync = read.boolean(params, "sync", True)
    parents = read.boolean(params, "parents")
    data = _gather(stream)
    with resolve(guest.workdir, params.get("path"), params.get("root"), parents=parents) as place:
        _writable_target(place)
        with entry_lock(place):
            descriptor, made = _open_for_append(place, mode)
            try:
                size = os.fstat(descriptor).st_size
                if offset is not None and offset != size:
                    raise _offset_invalid(place, "OFFSET_INVALID", "expected", size)
                _append_all(descriptor, data, size)
                if sync:
                    os.fsync(descriptor)
                status = os.fstat(descriptor)
            except BaseException:
                if made:
                    os.unlink(place.name, dir_fd=place.directory)
                raise
            finally:
                os.close(descriptor)
        if sync and made:
            _sync_directory(place)
        return {"offset": size, "stat": describe(status, place.shown)}


class _WriteRequest:
    """The checked parameters of file.write."""

    def __init__(self, params: Params) -> None:
        self.mode = read.optional_integer(params, "mode", high=0o7777)
        self.create_only = read.boolean(params, "create_only")
        self.if_match = hash_parameter(params, "if_match")
        self.parents = read.boolean(params, "parents")
        self.upload_id = read.optional_text(params, "upload_id", limit=256) or None
        self.offset = read.optional_integer(params, "offset")
        self.query_offset = read.boolean(params, "query_offset")
        self.discard = read.boolean(params, "discard")
        self.sha256 = hash_parameter(params, "sha256")
        self.sync = read.boolean(params, "sync", True)
        self.hash = read.boolean(params, "hash", True)
        if self.sha256 is not None and not self.hash:
            raise invalid("no_hash and sha256 exclude each other: the content is compared by its hash", field="no_hash")
        if self.upload_id is None and (self.offset or self.query_offset or self.discard):
            raise invalid("offset, query_offset and discard need an upload_id", field="upload_id")


def _fill_and_replace(
    stream: BlockingStream, request: _WriteRequest, place: Place, part: parts.Part, match: Match | None
) -> Params:
    descriptor = part.open()
    try:
        there = os.fstat(descriptor).st_size
        position = there if request.offset is None else request.offset
        if position > there:
            part.leave()
            raise _offset_invalid(place, "UPLOAD_OFFSET_INVALID", "expected_offset", there)
        digest = new_hash() if request.hash else None
        if position and digest is not None:
            feed_hash(stream, digest, descriptor, position)
        stream.message({"offset": position})
        flushed = position
        while True:
            data = stream.receive()
            if data is None:
                break
            part.write(descriptor, data, position)
            if digest is not None:
                digest.update(data)
            position += len(data)
            stream.reuse(data)
            if request.sync and position - flushed >= _FLUSH_BYTES:
                # The disk begins now, so that the sync at the end has little left to wait for.
                os.posix_fadvise(descriptor, flushed, position - flushed, os.POSIX_FADV_DONTNEED)
                flushed = position
        part.require_current()
        if position < there:
            os.ftruncate(descriptor, position)
        found = digest.hexdigest() if digest is not None else ""
        if request.sha256 is not None and found != request.sha256:
            message = f"{shorten(place.given)}: what arrived has another SHA-256 than was announced"
            raise Fault("DATA_LOSS", "HASH_MISMATCH", message, path=printable(place.given), found=found)
        with entry_lock(place):
            present = _writable_target(place)
            _adopt(descriptor, present, request.mode)
            if request.sync:
                os.fsync(descriptor)
            if match is not None:
                match.require()
            stream.check()
            held = _hold(place, present)
            try:
                _replace(place, part, present is not None, request.create_only)
            finally:
                _let_go(held)
        part.done()
        if request.sync:
            _sync_directory(place)
        return {"stat": describe(os.fstat(descriptor), place.shown), "sha256": found}
    finally:
        os.close(descriptor)


def _writable_target(place: Place) -> os.stat_result | None:
    """What is there, if it is nothing or a regular file; else refuse."""
    if place.name == "." or place.must_be_directory:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    status = place.peek()
    if status is not None:
        require_file(status, place.given)
    return status


def _adopt(descriptor: int, present: os.stat_result | None, mode: int | None) -> None:
    """Give the new file the owner and mode of the one it replaces, as far as we may."""
    wanted = mode
    if present is not None:
        if wanted is None:
            wanted = stat.S_IMODE(present.st_mode)
        if not _keep_owner(descriptor, present):
            # Another owner must not inherit the right to run as the first.
            wanted &= ~(stat.S_ISUID | stat.S_ISGID)
    if wanted is None:
        wanted = _DEFAULT_MODE & ~_umask()
    os.fchmod(descriptor, wanted)


def _keep_owner(descriptor: int, present: os.stat_result) -> bool:
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) == (present.st_uid, present.st_gid):
        return True
    for uid in (present.st_uid, -1):
        try:
            os.fchown(descriptor, uid, present.st_gid)
        except PermissionError:
            continue
        return uid == present.st_uid or status.st_uid == present.st_uid
    return False


def _umask() -> int:
    # os.umask can only be read by setting it, for all threads.
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    return 0o022


def _replace(place: Place, part: parts.Part, present: bool, create_only: bool) -> None:
    directory = place.directory
    if not present:
        # By a link, which nobody's new file is lost by, and which a watch sees as a new file.
        try:
            os.link(part.name, place.name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
            os.unlink(part.name, dir_fd=directory)
            return
        except FileExistsError:
            if create_only:
                raise
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            if create_only:
                rename_exclusively(directory, part.name, directory, place.name)
                return
    elif create_only:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    os.rename(part.name, place.name, src_dir_fd=directory, dst_dir_fd=directory)


def _hold(place: Place, present: os.stat_result | None) -> int:
    """A descriptor that keeps a large file while it is replaced: to free it takes the file system long. Else -1."""
    if present is None or present.st_size < _LARGE_BYTES:
        return -1
    try:
        return os.open(place.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.directory)
    except OSError:
        # Gone meanwhile, or no descriptor is left: nothing depends on it.
        return -1


def _let_go(held: int) -> None:
    """Close it in a thread of its own, so that nobody waits for what that frees."""
    if held < 0:
        return
    try:
        start_new_thread(os.close, (held,))
    except RuntimeError:  # there is no thread to be had
        os.close(held)


def _sync_directory(place: Place) -> None:
    try:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place.directory)
    except PermissionError:
        # A directory that can be written but not read can't be synced by us; the file itself is.
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _gather(stream: BlockingStream) -> bytes:
    chunks: list[Payload] = []
    size = 0
    while True:
        data = stream.receive()
        if data is None:
            return b"".join(chunks)
        size += len(data)
        if size > APPEND_LIMIT_BYTES:
            raise Fault(
                "RESOURCE_EXHAUSTED", "LIMIT_REACHED", "an append holds at most 16 MiB", limit=APPEND_LIMIT_BYTES
            )
        chunks.append(data)


def _open_for_append(place: Place, mode: int | None) -> tuple[int, bool]:
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(place.name, flags, dir_fd=place.directory)
    except FileNotFoundError:
        descriptor = os.open(
            place.name, flags | os.O_CREAT | os.O_EXCL, _DEFAULT_MODE if mode is None else mode, dir_fd=place.directory
        )
        made = True
    else:
        made = False
    try:
        require_file(os.fstat(descriptor), place.given)
        if made and mode is not None:
            os.fchmod(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, made


def _append_all(descriptor: int, data: bytes, size: int) -> None:
    written = 0
    try:
        while written < len(data):
            # One write as a rule; the kernel cuts it short only when the disk is full or beyond 2 GiB.
            written += os.write(descriptor, memoryview(data)[written:] if written else data)
    except OSError:
        # Somebody else may have appended since: their bytes are not ours to cut.
        if written and os.fstat(descriptor).st_size == size + written:
            os.ftruncate(descriptor, size)
        raise


def _offset_invalid(place: Place, reason: str, key: str, expected: int) -> Fault:
    message = f"{shorten(place.given)}: the offset is not where the content ends, {expected}"
    return Fault("OUT_OF_RANGE", reason, message, path=printable(place.given), **{key: expected})
