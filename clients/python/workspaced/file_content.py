"""What is to be written: bytes that can be sent again from any offset, or an iterator that cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from pathlib import Path
from typing import Protocol

CHUNK_BYTES = 1 << 18
"""Fewer and larger messages cost more: memory of that size is given back to the system, and fetched again."""
Data = bytes | bytearray | memoryview | str | Iterable[bytes] | AsyncIterable[bytes]


class Content(Protocol):
    """A source of a file's bytes."""

    repeatable: bool
    """Whether :meth:`chunks` may be called again, at another offset."""
    size: int | None

    def chunks(self, offset: int) -> AsyncIterator[bytes]:
        """The bytes from an offset, in chunks of at most 256 KiB."""


class BytesContent:
    """Bytes in memory."""

    repeatable = True

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(data).cast("B")
        self.size: int | None = len(self._view)

    async def chunks(self, offset: int) -> AsyncIterator[bytes]:
        """From memory."""
        for start in range(offset, len(self._view), CHUNK_BYTES):
            yield bytes(self._view[start : start + CHUNK_BYTES])


class PathContent:
    """A local file; it must not change while it is sent."""

    repeatable = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self.size: int | None = path.stat().st_size

    async def chunks(self, offset: int) -> AsyncIterator[bytes]:
        """From the disk, in a thread."""
        file = await asyncio.to_thread(self._path.open, "rb", buffering=0)
        try:
            file.seek(offset)
            while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield chunk
        finally:
            file.close()


class IteratedContent:
    """Whatever an iterator gives, once."""

    repeatable = False

    def __init__(self, source: Iterable[bytes] | AsyncIterable[bytes]) -> None:
        self._source = source
        self.size: int | None = None

    async def chunks(self, offset: int) -> AsyncIterator[bytes]:
        """From the iterator; small pieces are joined (nobody sees a file before its end), large ones are split."""
        if offset:
            raise ValueError("an iterator gives its bytes once")
        gathered = _Gathered()
        if isinstance(self._source, AsyncIterable):
            async for piece in self._source:
                for chunk in gathered.add(piece):
                    yield chunk
            for chunk in gathered.rest():
                yield chunk
            return
        # In a thread: the iterator may block, also on the synchronous face of this library.
        iterator = iter(self._source)

        def advance() -> bytes | None:
            return next(iterator, None)

        while True:
            following = await asyncio.to_thread(advance)
            if following is None:
                break
            for chunk in gathered.add(following):
                yield chunk
        for chunk in gathered.rest():
            yield chunk


def content_of(data: Data) -> Content:
    """The content for what a caller gave. A string is encoded as UTF-8."""
    if isinstance(data, str):
        return BytesContent(data.encode())
    if isinstance(data, (bytes, bytearray, memoryview)):
        return BytesContent(data)
    return IteratedContent(data)


class _Gathered:
    """Pieces of any size made into chunks of `CHUNK_BYTES`."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes | bytearray | memoryview) -> list[bytes]:
        """The chunks that are complete with this piece."""
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise TypeError(f"an iterator of bytes gave {type(piece).__name__}")
        # What may be changed once we ask for the next piece is copied now.
        self._pieces.append(piece if isinstance(piece, bytes) else bytes(piece))
        self._size += len(self._pieces[-1])
        if self._size < CHUNK_BYTES:
            return []
        joined = b"".join(self._pieces)
        if self._size == CHUNK_BYTES:
            self._pieces, self._size = [], 0
            return [joined]
        view = memoryview(joined)
        whole = self._size - self._size % CHUNK_BYTES
        self._pieces = [bytes(view[whole:])] if whole < self._size else []
        self._size -= whole
        return [bytes(view[start : start + CHUNK_BYTES]) for start in range(0, whole, CHUNK_BYTES)]

    def rest(self) -> list[bytes]:
        """What is left."""
        return [b"".join(self._pieces)] if self._size else []
