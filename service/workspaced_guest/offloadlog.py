"""The log of one session's offloads: what was begun, and what was answered under which `request_id`.

`.requests` in the session's directory has one line a step: a letter, a space and a JSON object. The letter is `P`
while the step is pending, `D` when it is done, `A` when it was given up, and is changed in its place. A step is on
the disk as pending before anything else is written; what a killed guest left pending is settled by whoever comes next.
The caller holds the session's lock.
"""

from __future__ import annotations

import json
import os
import time

from .content import new_hash
from .fault import Fault
from .managed import open_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .receiver import Payload

    Record = dict[str, Any]

NAME = ".requests"
KEPT_SECONDS = 86400.0
# Beyond this the log is written anew with what is still to be known, in half of it.
_LIMIT_BYTES = 4 * 1024 * 1024
_LINE_BYTES = 8192
_CHUNK_BYTES = 1024 * 1024
_COMMON = {"request": (str, type(None)), "digest": str, "inode": int, "time": (int, float)}
_FIELDS: dict[str, dict[str, Any]] = {
    "append": {**_COMMON, "start": int, "end": int, "count": int, "sha256": str},
    "file": {**_COMMON, "name": str, "size": int},
}
# A last line without its newline that is longer than this is taken as it is.
_TAIL_BYTES = 16 * 1024 * 1024


class RequestLog:
    """The log of the session whose directory is open as `directory`; owns its descriptor: `close` it.

    With `repair` false nothing is changed: what is pending is told as it would be settled.
    """

    def __init__(self, directory: int, repair: bool = True) -> None:
        self._directory = directory
        self._repair = repair
        self._file = -1
        try:
            self._file = open_file(directory, NAME, os.O_RDWR if repair else os.O_RDONLY)
        except FileNotFoundError:
            return

    def close(self) -> None:
        """Close the file; again is harmless."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def find(self, request: str, op: str, digest: str) -> Record | None:
        """What was answered under this id in the last 24 hours. Raises REQUEST_ID_REUSED when it was something else."""
        if self._file < 0:
            return None
        text = _read(self._file, 0, os.fstat(self._file).st_size)
        mark = _mark(request)
        position = len(text)
        while True:
            position = text.rfind(mark, 0, position)
            if position < 1:
                return None
            # A value can look like the mark as well, but does not stand at the beginning of a line.
            if position > 1 and text[position - 2 : position - 1] != b"\n":
                continue
            record = _record(text[position - 1 : text.find(b"\n", position)], b"D")
            if record is not None:
                break
        if record["time"] < time.time() - KEPT_SECONDS:
            return None
        if record["op"] != op or record["digest"] != digest:
            message = "this request_id was used for another content in the last 24 hours: use a new one"
            raise Fault("ALREADY_EXISTS", "REQUEST_ID_REUSED", message, request_id=request)
        return record

    def begin(self, record: Record) -> int:
        """Note a step as pending; returns where, for `end`. Durable. Raises OSError, and then has noted nothing."""
        if self._file < 0:
            self._file = open_file(self._directory, NAME, os.O_RDWR | os.O_CREAT, 0o600)
            os.fsync(self._directory)
        size = os.fstat(self._file).st_size
        if size > _LIMIT_BYTES:
            size = self._renew(size)
        line = b"P " + json.dumps(record, separators=(",", ":")).encode() + b"\n"
        try:
            write_all(self._file, line, size)
            os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, size)
            raise
        return size

    def end(self, place: int, done: bool) -> None:
        """Settle the step at `place`. Not synced: were it lost, the next to come would find out again."""
        os.pwrite(self._file, b"D" if done else b"A", place)

    def pending(self) -> tuple[int, Record] | None:
        """The last step, with its place, if it is pending. A line that was cut short began nothing, and is removed."""
        if self._file < 0:
            return None
        size = os.fstat(self._file).st_size
        first = max(0, size - _LINE_BYTES)
        tail = _read(self._file, first, size)
        whole = tail.rfind(b"\n") + 1
        if whole < len(tail):
            size = first + whole
            if self._repair:
                os.ftruncate(self._file, size)
        begin = tail.rfind(b"\n", 0, whole - 1) + 1 if whole else 0
        record = _record(tail[begin:whole], b"P")
        return None if record is None else (first + begin, record)

    def settle(self, context: int, status: os.stat_result) -> tuple[int, bool]:
        """Where the entries of a context end, and whether the last one lacks its newline.

        What a killed guest had written of an unfinished call is not part of it, and is cut off.
        """
        size = status.st_size
        left = self.pending()
        if left is not None and left[1]["op"] == "append":
            size = self._settle_append(context, status, left[0], left[1])
        if not size or os.pread(context, 1, size - 1) == b"\n":
            return size, False
        first = max(0, size - _TAIL_BYTES)
        tail = _read(context, first, size)
        line = tail.rfind(b"\n") + 1
        if (not line and first) or _is_json(tail[line:]):
            # Somebody else's, whole but for its newline.
            return size, True
        size = first + line
        if self._repair:
            os.ftruncate(context, size)
        return size, False

    def _settle_append(self, context: int, status: os.stat_result, place: int, record: Record) -> int:
        size, start, end = status.st_size, record["start"], record["end"]
        done = False
        if status.st_ino == record["inode"] and size > start:
            done = size >= end and _hash(context, start, end) == record["sha256"]
            if not done and size <= end:
                size = start
                if self._repair:
                    os.ftruncate(context, size)
            if self._repair:
                os.fsync(context)
                os.fsync(self._directory)
        if self._repair:
            self.end(place, done)
        return size

    def settle_file(self) -> None:
        """Settle a pending step that publishes a file: it is done if the file is the one that was to be published."""
        left = self.pending()
        if left is None or left[1]["op"] != "file":
            return
        place, record = left
        try:
            status = os.stat(record["name"], dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            self.end(place, False)
        else:
            os.fsync(self._directory)
            self.end(place, status.st_ino == record["inode"])

    def _renew(self, size: int) -> int:
        """Write the log anew with the latest that can still be asked for; returns its size."""
        text = _read(self._file, 0, size)
        oldest = time.time() - KEPT_SECONDS
        lines: list[bytes] = []
        room = _LIMIT_BYTES // 2
        for line in reversed(text.splitlines(True)):
            record = _record(line, b"D")
            if record is not None and record["request"] is not None and record["time"] >= oldest:
                room -= len(line)
                if room < 0:
                    break
                lines.append(line)
        temporary = NAME + ".new"
        file = open_file(self._directory, temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            text = b"".join(reversed(lines))
            write_all(file, text, 0)
            os.fsync(file)
            os.rename(temporary, NAME, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            os.fsync(self._directory)
        except BaseException:
            os.close(file)
            raise
        os.close(self._file)
        self._file = file
        return len(text)


def write_all(file: int, data: Payload, position: int) -> None:
    """Write all of `data` at `position`."""
    written = os.pwrite(file, data, position)
    while written < len(data):
        written += os.pwrite(file, memoryview(data)[written:], position + written)


def ranges(file: int, start: int, end: int) -> Iterator[bytes]:
    """The bytes from `start` to `end`, or to where the file ends before, in pieces of at most 1 MiB."""
    while start < end:
        data = os.pread(file, min(_CHUNK_BYTES, end - start), start)
        if not data:
            return
        yield data
        start += len(data)


def _read(file: int, start: int, end: int) -> bytes:
    return b"".join(ranges(file, start, end))


def _hash(file: int, start: int, end: int) -> str:
    digest = new_hash()
    for data in ranges(file, start, end):
        digest.update(data)
    return digest.hexdigest()


def _mark(request: str) -> bytes:
    return b' {"request":' + json.dumps(request).encode() + b","


def _record(line: bytes, letter: bytes) -> Record | None:
    """The record of a line with this letter. None for any other, and for what somebody else made of it."""
    if line[:1] != letter:
        return None
    try:
        record = json.loads(line[2:])
        if all(isinstance(record[name], kind) for name, kind in _FIELDS[record["op"]].items()):
            found: Record = record
            return found
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return None


def _is_json(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
