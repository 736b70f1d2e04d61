"""Hashes of file contents, and the precondition `if_match` that is made of them."""

from __future__ import annotations

import os

from . import params as read
from .fault import Fault, invalid, printable, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import _Hash
    from typing import Any

    from .paths import Place
    from .stream import BlockingStream

    Params = dict[str, Any]
    Identity = tuple[int, int, int, int]

CHUNK_BYTES = 256 * 1024
_HASH_BYTES = 1024 * 1024


def new_hash() -> _Hash:
    """A SHA-256; the module behind it is loaded when first needed."""
    import hashlib

    return hashlib.sha256()


def hash_parameter(params: Params, name: str) -> str | None:
    """A SHA-256 in hexadecimal, lower case, or None when absent."""
    value = read.optional_text(params, name)
    if not value:
        return None
    value = value.lower()
    if len(value) != 64 or any(digit not in "0123456789abcdef" for digit in value):
        raise invalid(f"{name} must be a SHA-256 in hexadecimal", field=name)
    return value


def feed_hash(stream: BlockingStream, digest: _Hash, descriptor: int, end: int | None = None) -> int:
    """Add the file from its beginning to `end` (or to where it ends now); how many bytes that were."""
    buffer = bytearray(_HASH_BYTES)
    view = memoryview(buffer)
    position = 0
    while end is None or position < end:
        stream.check()
        room = _HASH_BYTES if end is None else min(_HASH_BYTES, end - position)
        count = os.preadv(descriptor, [view[:room]], position)
        if not count:
            break
        digest.update(view[:count])
        position += count
    return position


def hash_file(stream: BlockingStream, descriptor: int) -> str:
    """The SHA-256 of an open file, in hexadecimal."""
    digest = new_hash()
    feed_hash(stream, digest, descriptor)
    return digest.hexdigest()


class Match:
    """The precondition that a file has a certain content, looked at before the work and again before the change."""

    def __init__(self, stream: BlockingStream, place: Place, wanted: str) -> None:
        """Raises CONTENT_CHANGED when the content is another or there is none."""
        self._stream = stream
        self._place = place
        self._wanted = wanted
        self._seen: Identity | None = None
        self.require()

    def require(self) -> None:
        """Check again; cheap while inode, size and times are those seen before."""
        try:
            descriptor = self._place.open_file()
        except FileNotFoundError:
            raise self._changed("missing") from None
        try:
            identity = _identity(os.fstat(descriptor))
            if identity == self._seen:
                return
            found = hash_file(self._stream, descriptor)
        finally:
            os.close(descriptor)
        if found != self._wanted:
            raise self._changed(found)
        self._seen = identity

    def _changed(self, found: str) -> Fault:
        given = self._place.given
        message = f"{shorten(given)}: the content is not the one that was expected"
        return Fault("ABORTED", "CONTENT_CHANGED", message, path=printable(given), found=found)


def _identity(status: os.stat_result) -> Identity:
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
