"""What one offload call sends: a text and the data files that it refers to, gathered before anything takes effect.

The DATA of the stream is a row of items: a header (kind, length of the name, length of the content), the name, the
content. `L` is text, `B` a data file with its name, `E` the last one: a JSON object as its name, without content.
"""

from __future__ import annotations

import errno
import os
import struct

from . import wire
from .fault import invalid
from .offloadlog import ranges, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .receiver import Payload
    from .stream import BlockingStream

HEADER = struct.Struct(">cHQ")
_MEMORY_BYTES = 1024 * 1024
_BLOBS = 65536
_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)


class Spool:
    """Bytes on their way: in memory up to 1 MiB, else in a file without a name in the directory `home`. `close` it."""

    def __init__(self, home: int) -> None:
        self.size = 0
        self._home = home
        self._memory = bytearray()
        self._file = -1

    def write(self, data: Payload) -> None:
        """Add bytes. Raises OSError."""
        if self._file < 0 and len(self._memory) + len(data) <= _MEMORY_BYTES:
            self._memory += data
        else:
            if self._file < 0:
                self._file = _unnamed_file(self._home)
                write_all(self._file, bytes(self._memory), 0)
                self._memory = bytearray()
            write_all(self._file, data, self.size)
        self.size += len(data)

    def pieces(self, start: int, length: int) -> Iterator[bytes]:
        """The bytes of a range, in pieces of at most 1 MiB."""
        if self._file < 0:
            return iter((bytes(self._memory[start : start + length]),) if length else ())
        return ranges(self._file, start, start + length)

    def close(self) -> None:
        """Forget the bytes; again is harmless."""
        file, self._file = self._file, -1
        self._memory = bytearray()
        if file >= 0:
            os.close(file)


class Parcel:
    """All of what a call sent. `close` it."""

    def __init__(self, home: int) -> None:
        self.text = Spool(home)
        self.blobs: list[tuple[str, int, int]] = []  # name, and where its content is among `content`
        self.content = Spool(home)
        self.about: dict[str, Any] = {}

    def close(self) -> None:
        """Forget it."""
        self.text.close()
        self.content.close()

    def receive(self, stream: BlockingStream) -> None:
        """Gather what the client sends up to its END. Raises Fault, StreamCancelled."""
        source = _Source(stream)
        while True:
            kind, name_length, length = HEADER.unpack(source.exactly(HEADER.size))
            name = source.exactly(name_length)
            if kind == b"E":
                break
            if kind == b"L":
                spool = self.text
            elif kind == b"B" and len(self.blobs) < _BLOBS:
                spool = self.content
                self.blobs.append((name.decode("utf-8", "replace"), spool.size, length))
            else:
                raise invalid("the parcel has an item that is none, or too many of them", field="parcel")
            source.copy(length, spool)
        try:
            self.about = wire.decode_json(name)
        except wire.ProtocolError:
            raise invalid("the parcel's last item is no JSON object", field="parcel") from None
        if not source.at_end():
            raise invalid("the parcel goes on behind its last item", field="parcel")


class _Source:
    def __init__(self, stream: BlockingStream) -> None:
        self._stream = stream
        self._data: Payload = b""
        self._position = 0

    def exactly(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            found += self._take(count - len(found))
        return bytes(found)

    def copy(self, count: int, spool: Spool) -> None:
        while count:
            data = self._take(count)
            spool.write(data)
            count -= len(data)

    def at_end(self) -> bool:
        return self._position == len(self._data) and self._stream.receive() is None

    def _take(self, most: int) -> Payload:
        if self._position == len(self._data):
            data = self._stream.receive()
            if data is None:
                raise invalid("the parcel is cut short", field="parcel")
            self._data, self._position = data, 0
        data = self._data[self._position : self._position + most]
        self._position += len(data)
        return data


def _unnamed_file(home: int) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(".", flags | os.O_TMPFILE, 0o600, dir_fd=home)
    except OSError as error:
        if error.errno not in _NO_UNNAMED_FILES:
            raise
    # Named as a part of an upload is, so that listings leave it out in the moment that it has a name.
    name = f".offload.workspaced-{os.urandom(12).hex()}.part"
    file = os.open(name, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=home)
    try:
        os.unlink(name, dir_fd=home)
    except BaseException:
        os.close(file)
        raise
    return file
