"""Standard input on its way: kept until the guest has it, so that a broken connection loses and doubles nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

LIMIT_BYTES = 1 << 20
CHUNK_BYTES = 256 << 10


class StdinBuffer:
    """The bytes between what was acknowledged and what was written, by offset.

    >>> buffer = StdinBuffer()
    >>> buffer.append(b"abc"); buffer.end
    3
    >>> list(buffer.chunks(0)); buffer.acknowledge(2); list(buffer.chunks(buffer.acked))
    [(0, b'abc')]
    [(2, b'c')]
    """

    __slots__ = ("_chunks", "acked", "end")

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self.acked = 0
        """Offset of the first byte that is kept."""
        self.end = 0
        """Offset of the next byte to be written."""

    def begin(self, offset: int) -> None:
        """Set the offset of the first byte; only while nothing was written."""
        if self.end == self.acked:
            self.acked = self.end = offset

    @property
    def room(self) -> int:
        """How many bytes may be appended now."""
        return LIMIT_BYTES - (self.end - self.acked)

    def append(self, data: bytes) -> None:
        """Keep these bytes as the next."""
        if data:
            self._chunks.append(data)
            self.end += len(data)

    def acknowledge(self, offset: int) -> bool:
        """Forget what is below an offset; returns whether that was anything. No offset is beyond the end."""
        grown = min(offset, self.end) - self.acked
        if grown <= 0:
            return False
        self.acked += grown
        while grown:
            first = self._chunks[0]
            if len(first) > grown:
                self._chunks[0] = first[grown:]
                break
            grown -= len(first)
            self._chunks.popleft()
        return True

    def chunks(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """What is kept from an offset on, at the time of the call."""
        position = self.acked
        for chunk in tuple(self._chunks):
            end = position + len(chunk)
            if end > offset:
                skip = max(0, offset - position)
                yield position + skip, chunk[skip:]
            position = end

    def clear(self) -> None:
        """Forget everything: nobody will read it."""
        self._chunks.clear()
        self.acked = self.end
