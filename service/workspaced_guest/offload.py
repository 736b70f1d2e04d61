"""The `offload.` operations: contexts and tool results of sessions, and the data files that all sessions share.

Everything is below `sessions/<session>` and `data` of the workdir. A session has one lock, so that calls are ordered
and each one's entries stay together; an answer is given when what it tells is on the disk.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import closing, contextmanager, suppress

from . import params as read
from . import parts
from .content import new_hash
from .copying import remove_tree
from .fault import Fault
from .locks import entry_lock
from .managed import check_name, look, open_directory, open_file
from .offloaddata import described, fill, new_part, place_of, store_blobs, store_data
from .offloadlist import CONTEXT, LABEL, SESSIONS, list_offloads
from .offloadlog import NAME as LOG_NAME
from .offloadlog import RequestLog
from .offloadread import read_offload
from .parcel import Parcel
from .rename import link_exclusively
from .stream import blocking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from .guest import Guest
    from .offloadlog import Record
    from .stream import BlockingStream, Handler

    Params = dict[str, Any]

_RESULT_MODE = 0o644
_REQUEST_CHARACTERS = 128


def append(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Append the lines of a parcel to a context, after its data files are stored: all of it or nothing.

    Idempotent by `request_id` for 24 hours, also when the guest is killed between the append and the answer.
    Cancellation before the append leaves nothing.
    """
    request = _Request(params)
    with _received(guest, stream) as parcel:
        count = read.integer(parcel.about, "count", 0)
        digest = read.text(parcel.about, "digest", "")
        if parcel.blobs and request.id:
            with _session(guest, request) as directory, closing(RequestLog(directory)) as log:
                _settle(directory, log)
                known = log.find(request.id, "append", digest)
                if known is not None:
                    return _appended(directory, known)
        store_blobs(guest, stream, parcel)
        if not count:
            return _unchanged(guest, request)
        with _session(guest, request) as directory, closing(RequestLog(directory)) as log:
            stream.check()
            return _append(directory, log, parcel, request.id, digest, count)


def store_tool_result(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Store the text of a parcel as `tool_result-<id>.txt`, or `(1)` and so on behind the id where that is taken.

    Idempotent by `request_id`. Cancellation leaves nothing.
    """
    request = _Request(params)
    stem = check_name("tool_result-" + read.text(params, "id"), "id")
    check_name(stem + "(999999).txt", "id")
    parts.sweep(guest)
    with _received(guest, stream) as parcel:
        digest = read.text(parcel.about, "digest", "")
        with _session(guest, request) as directory, closing(RequestLog(directory)) as log:
            _settle(directory, log)
            known = None if request.id is None else log.find(request.id, "file", digest)
            if known is not None:
                return _stored(directory, known, True)
            store_blobs(guest, stream, parcel)
            with new_part(guest, directory, "tool_result") as (part, descriptor):
                fill(stream, part, descriptor, parcel.text.pieces(0, parcel.text.size))
                os.fchmod(descriptor, _RESULT_MODE)
                os.fsync(descriptor)
                stream.check()
                return _stored(directory, _publish(directory, log, part, descriptor, stem, request.id, digest), False)


def purge(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Remove a session's directory with all that is in it; a link is removed itself, never what it leads to."""
    name = check_name(params.get("session"), "session")
    try:
        sessions = open_directory(guest.workdir, SESSIONS)
    except FileNotFoundError:
        return {"removed": 0}
    try:
        try:
            directory = open_directory(guest.workdir, SESSIONS, name)
        except (FileNotFoundError, Fault):
            directory = -1  # nothing, or a link or file, which nobody offloads to
        if directory < 0:
            return {"removed": _remove(stream, sessions, name)}
        try:
            with entry_lock(place_of(directory, CONTEXT)):
                return {"removed": _remove(stream, sessions, name)}
        finally:
            os.close(directory)
    finally:
        os.close(sessions)


class _Request:
    """Which session is meant, and the id that makes the call harmless to repeat."""

    def __init__(self, params: Params) -> None:
        self.session = check_name(params.get("session"), "session")
        self.label = read.optional_text(params, "label", limit=1024)
        self.id = read.optional_text(params, "request_id", limit=_REQUEST_CHARACTERS) or None


def _append(directory: int, log: RequestLog, parcel: Parcel, request: str | None, digest: str, count: int) -> Params:
    try:
        descriptor, made = open_file(directory, CONTEXT, os.O_RDWR | os.O_APPEND), False
    except FileNotFoundError:
        descriptor, made = open_file(directory, CONTEXT, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL), True
    try:
        status = os.fstat(descriptor)
        start, unended = log.settle(descriptor, status)
        known = None if request is None else log.find(request, "append", digest)
        if known is not None:
            return _appended(directory, known)
        if unended:
            os.write(descriptor, b"\n")
            start += 1
        record: Record = {"request": request, "op": "append", "digest": digest, "inode": status.st_ino}
        record.update(start=start, end=start + parcel.text.size, count=count, time=time.time())
        place = -1
        if request is not None or count > 1:
            # A single line that was cut short is recognised without a record: it is no JSON.
            record["sha256"] = _hash(parcel.text.pieces(0, parcel.text.size))
            place = log.begin(record)
        written = 0
        try:
            for piece in parcel.text.pieces(0, parcel.text.size):
                view = memoryview(piece)
                while view:
                    count = os.write(descriptor, view)
                    written += count
                    view = view[count:]
            os.fsync(descriptor)
            if made:
                os.fsync(directory)
        except BaseException:
            # Somebody else may have appended since: their bytes are not ours to cut.
            if os.fstat(descriptor).st_size == start + written:
                os.ftruncate(descriptor, start)
            if place >= 0:
                log.end(place, False)
            raise
        if place >= 0:
            with suppress(OSError):  # the next call settles it by the hash
                log.end(place, True)
        return _answer(record, os.fstat(descriptor), False)
    except BaseException:
        if made and not os.fstat(descriptor).st_size:
            os.unlink(CONTEXT, dir_fd=directory)
        raise
    finally:
        os.close(descriptor)


def _publish(
    directory: int,
    log: RequestLog,
    part: parts.Part,
    descriptor: int,
    stem: str,
    request: str | None,
    digest: str,
) -> Record:
    """Give the part the first free name. Nothing is ever replaced, whoever makes files here."""
    status = os.fstat(descriptor)
    number = 0
    while True:
        name = f"{stem}({number}).txt" if number else f"{stem}.txt"
        number += 1
        try:
            os.stat(name, dir_fd=directory, follow_symlinks=False)
            continue
        except FileNotFoundError:
            pass
        record: Record = {"request": request, "op": "file", "digest": digest, "inode": status.st_ino}
        record.update(name=name, size=status.st_size, time=time.time())
        place = log.begin(record) if request is not None else -1
        try:
            link_exclusively(directory, part.name, name)
        except BaseException as error:
            if place >= 0:
                log.end(place, False)
            if isinstance(error, FileExistsError):
                continue
            raise
        os.fsync(directory)
        if place >= 0:
            with suppress(OSError):  # the next call settles it by the inode
                log.end(place, True)
        return record


@contextmanager
def _received(guest: Guest, stream: BlockingStream) -> Iterator[Parcel]:
    home = open_directory(guest.workdir)
    try:
        with closing(Parcel(home)) as parcel:
            parcel.receive(stream)
            yield parcel
    finally:
        os.close(home)


@contextmanager
def _session(guest: Guest, request: _Request) -> Iterator[int]:
    """The session's directory, made if it is missing, with its lock."""
    while True:
        directory = open_directory(guest.workdir, SESSIONS, request.session, make=True)
        try:
            with entry_lock(place_of(directory, CONTEXT)):
                if not os.fstat(directory).st_nlink:
                    continue  # purged before the lock was had
                if request.label is not None and look(directory, LABEL) is None:
                    _write_label(directory, request.label)
                yield directory
                return
        finally:
            os.close(directory)


def _settle(directory: int, log: RequestLog) -> None:
    """Settle what a killed guest left pending, of whatever kind."""
    log.settle_file()
    try:
        descriptor = open_file(directory, CONTEXT, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        log.settle(descriptor, os.fstat(descriptor))
    finally:
        os.close(descriptor)


def _unchanged(guest: Guest, request: _Request) -> Params:
    """The answer to a call without an entry, which makes nothing."""
    record: Record = {"start": 0, "end": 0, "count": 0, "time": time.time()}
    try:
        directory = open_directory(guest.workdir, SESSIONS, request.session)
    except FileNotFoundError:
        return _answer(record, None, False)
    try:
        with entry_lock(place_of(directory, CONTEXT)), closing(RequestLog(directory)) as log:
            _settle(directory, log)
            status = look(directory, CONTEXT)
        size = 0 if status is None else status.st_size
        return _answer({**record, "start": size, "end": size}, status, False)
    finally:
        os.close(directory)


def _appended(directory: int, record: Record) -> Params:
    return _answer(record, look(directory, CONTEXT), True)


def _answer(record: Record, status: os.stat_result | None, existing: bool) -> Params:
    size = record["end"] if status is None else status.st_size
    changed = int(record["time"] * 1e9) if status is None else status.st_mtime_ns
    answer = {"start": record["start"], "end": record["end"], "count": record["count"], "existing": existing}
    return {**answer, "size": size, "mtime_ns": str(changed)}


def _stored(directory: int, record: Record, existing: bool) -> Params:
    status = look(directory, record["name"])
    if status is not None:
        return {"existing": existing, **described(record["name"], status)}
    changed = str(int(record["time"] * 1e9))
    return {"existing": existing, "name": record["name"], "size": record["size"], "mtime_ns": changed}


def _remove(stream: BlockingStream, sessions: int, name: str) -> int:
    """Remove an entry of `sessions`; how many files that were, those that only serve us not counted."""
    try:
        status = os.stat(name, dir_fd=sessions, follow_symlinks=False)
    except FileNotFoundError:
        return 0
    files = 1
    if stat.S_ISDIR(status.st_mode):
        files = 0
        for _, _, names, _ in os.fwalk(name, dir_fd=sessions, follow_symlinks=False):
            files += sum(1 for found in names if found not in _OURS and not parts.is_part(found))
    remove_tree(stream, sessions, name)
    os.fsync(sessions)
    return files


_OURS = (LOG_NAME, LOG_NAME + ".new", LABEL)


def _write_label(directory: int, label: str) -> None:
    """Note the id of a session whose directory's name does not tell it."""
    descriptor = open_file(directory, LABEL, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(descriptor, label.encode("utf-8"))
    finally:
        os.close(descriptor)


def _hash(pieces: Iterable[bytes]) -> str:
    digest = new_hash()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


OFFLOAD_OPS: dict[str, Handler] = {
    "offload.append": blocking(append),
    "offload.tool_result": blocking(store_tool_result),
    "offload.data": blocking(store_data),
    "offload.list": blocking(list_offloads),
    "offload.read": blocking(read_offload),
    "offload.purge": blocking(purge),
}
