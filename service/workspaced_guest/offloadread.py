"""offload.read: bytes of something stored, or the lines of a context from one of them on."""

from __future__ import annotations

import os

from . import params as read
from .content import CHUNK_BYTES
from .fault import Fault
from .managed import check_name, open_directory, open_file
from .offloadlist import DATA, SESSIONS, describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .guest import Guest
    from .stream import BlockingStream

    Params = dict[str, Any]

_SCAN_BYTES = 256 * 1024


def read_offload(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Send a range of bytes, or with `skip` what follows so many lines, up to the length told first; reads only."""
    session = None if params.get("session") is None else check_name(params["session"], "session")
    name = check_name(params.get("name"), "name")
    offset = read.integer(params, "offset", 0)
    length = read.optional_integer(params, "length")
    skip = read.optional_integer(params, "skip")
    try:
        directory = open_directory(guest.workdir, *((DATA,) if session is None else (SESSIONS, session)))
    except FileNotFoundError:
        raise _not_found() from None
    try:
        try:
            entry = describe(directory, session, name)
            if entry is None:
                raise _not_found()
            descriptor = open_file(directory, name, os.O_RDONLY)
        except FileNotFoundError:
            raise _not_found() from None
    finally:
        os.close(directory)
    try:
        size = entry["size"]
        if skip is not None:
            if entry["kind"] != "context":
                raise Fault("FAILED_PRECONDITION", "OFFLOAD_NOT_A_CONTEXT", "only a context holds messages")
            stream.message({"entry": entry})
            offset = _line(stream, descriptor, skip, size)
        elif offset > size:
            message = f"the offset is beyond the end of the offload, {size}"
            raise Fault("OUT_OF_RANGE", "OFFSET_INVALID", message, expected=size)
        else:
            stream.message({"entry": entry})
        end = size if length is None else min(size, offset + length)
        position = offset
        while position < end:
            data = os.pread(descriptor, min(CHUNK_BYTES, end - position), position)
            if not data:
                raise Fault("ABORTED", "CONTENT_CHANGED", "the file became shorter while it was read")
            stream.send(data)
            position += len(data)
    finally:
        os.close(descriptor)
    return {"offset": offset, "bytes": position - offset}


def _line(stream: BlockingStream, descriptor: int, skip: int, end: int) -> int:
    """The offset behind so many lines, or the end where there are not as many."""
    position = 0
    buffer = bytearray(_SCAN_BYTES)
    view = memoryview(buffer)
    while skip and position < end:
        stream.check()
        count = os.preadv(descriptor, [view[: end - position]], position)
        if not count:
            return end
        lines = buffer.count(b"\n", 0, count)
        if lines >= skip:
            found = -1
            for _ in range(skip):
                found = buffer.index(b"\n", found + 1)
            return position + found + 1
        skip -= lines
        position += count
    return position


def _not_found() -> Fault:
    return Fault("NOT_FOUND", "OFFLOAD_NOT_FOUND", "nothing is stored under this path")
