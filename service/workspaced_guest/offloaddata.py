"""Data files: bytes under their hash, shared by all sessions; and the parts in which offloads are gathered."""

from __future__ import annotations

import os
from contextlib import contextmanager

from . import params as read
from . import parts
from .content import hash_file, hash_parameter, new_hash
from .fault import Fault
from .managed import check_name, look, open_directory, open_file
from .offloadlist import DATA
from .paths import Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from .guest import Guest
    from .parcel import Parcel
    from .receiver import Payload
    from .stream import BlockingStream

    Params = dict[str, Any]

_HASH_DIGITS = 64
# Nobody changes a file whose name is the hash of its content.
_MODE = 0o444


def store_data(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Store what the client sends as `data/<sha256><ext>`. Idempotent; cancellation leaves nothing."""
    extension = read.text(params, "ext", "", limit=32)
    wanted = hash_parameter(params, "sha256")
    check_name("0" * _HASH_DIGITS + extension, "ext")
    parts.sweep(guest)
    directory = open_directory(guest.workdir, DATA, make=True)
    try:
        with new_part(guest, directory, "data") as (part, descriptor):
            found = fill(stream, part, descriptor, _arriving(stream))
            if wanted is not None and found != wanted:
                raise _mismatch(found)
            stream.check()
            name = found + extension
            existing = _put_data(stream, directory, part, descriptor, name, found)
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            return {"sha256": found, "existing": existing, **described(name, status)}
    finally:
        os.close(directory)


def store_blobs(guest: Guest, stream: BlockingStream, parcel: Parcel) -> None:
    """Store the data files of a parcel, each verified to have the hash that its name says."""
    if not parcel.blobs:
        return
    directory = open_directory(guest.workdir, DATA, make=True)
    try:
        for name, start, length in parcel.blobs:
            wanted = check_name(name, "parcel")[:_HASH_DIGITS]
            if _is_stored(stream, directory, name, length, wanted):
                continue
            with new_part(guest, directory, "data") as (part, descriptor):
                found = fill(stream, part, descriptor, parcel.content.pieces(start, length))
                if found != wanted:
                    raise _mismatch(found)
                _put_data(stream, directory, part, descriptor, name, found)
    finally:
        os.close(directory)


def _put_data(
    stream: BlockingStream, directory: int, part: parts.Part, descriptor: int, name: str, sha256: str
) -> bool:
    """Make the part the data file `name`; whether that was there already, with the right content."""
    if _is_stored(stream, directory, name, os.fstat(descriptor).st_size, sha256):
        return True
    os.fchmod(descriptor, _MODE)
    os.fsync(descriptor)
    # What has this name and another content is damaged, and replaced.
    os.rename(part.name, name, src_dir_fd=directory, dst_dir_fd=directory)
    os.fsync(directory)
    return False


def _is_stored(stream: BlockingStream, directory: int, name: str, size: int, sha256: str) -> bool:
    status = look(directory, name)
    if status is None or status.st_size != size:
        return False
    descriptor = open_file(directory, name, os.O_RDONLY)
    try:
        if hash_file(stream, descriptor) != sha256:
            return False
        # Whoever wrote it may not have come so far.
        os.fsync(descriptor)
        os.fsync(directory)
        return True
    finally:
        os.close(descriptor)


@contextmanager
def new_part(guest: Guest, directory: int, stem: str) -> Iterator[tuple[parts.Part, int]]:
    """A part in a directory, open; gone afterwards unless it was given another name."""
    part = parts.Part(guest, place_of(directory, stem), None)
    try:
        descriptor = part.open()
        try:
            yield part, descriptor
        finally:
            os.close(descriptor)
    finally:
        part.remove()


def _arriving(stream: BlockingStream) -> Iterator[Payload]:
    while True:
        data = stream.receive()
        if data is None:
            return
        yield data
        stream.reuse(data)


def fill(stream: BlockingStream, part: parts.Part, descriptor: int, pieces: Iterable[Payload]) -> str:
    """Write pieces to a part; returns their hash."""
    digest = new_hash()
    position = 0
    for piece in pieces:
        stream.check()
        part.write(descriptor, piece, position)
        digest.update(piece)
        position += len(piece)
    return digest.hexdigest()


def described(name: str, status: os.stat_result) -> Params:
    return {"name": name, "size": status.st_size, "mtime_ns": str(max(0, status.st_mtime_ns))}


def place_of(directory: int, name: str) -> Place:
    """For what works on places; the directory stays ours to close."""
    return Place(directory, name, name, name, False)


def _mismatch(found: str) -> Fault:
    return Fault("DATA_LOSS", "HASH_MISMATCH", "what arrived has another SHA-256 than was announced", found=found)
