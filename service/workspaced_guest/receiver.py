"""Receiving frames with long payloads in their place: one copy, from the socket, into memory that is used again."""

from __future__ import annotations

from . import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

    Payload = Union[bytes, bytearray]
    Frame = tuple[int, int, Payload]

# Below this, a read of its own costs more than the copies that it saves.
_LONG_BYTES = 64 * 1024
# A window of them; they are freed whenever a stream ends.
_MAX_SPARE = wire.WINDOW // wire.MAX_DATA + 1


class Receiver:
    """A `wire.Parser` which gathers a long DATA payload in a bytearray and offers that to be received into.

    After the first of a stream's longest frames the place of the next is offered before its header has come, so that a
    frame is one read. Frames, bounds and errors are the parser's.
    """

    __slots__ = ("_ahead", "_body", "_filled", "_head", "_parser", "_spare", "_stream")

    def __init__(self, peer: str) -> None:
        """`peer` is who sends the bytes, as for the parser."""
        self._parser = wire.Parser(peer)
        self._body: bytearray | None = None
        self._filled = 0
        self._stream = 0
        self._head = bytearray(wire.HEADER.size)
        self._ahead: bytearray | None = None
        self._spare: list[bytearray] = []

    @property
    def buffered(self) -> int:
        """Bytes kept of a frame that is not complete."""
        return self._parser.buffered + self._filled

    def room(self) -> list[bytearray | memoryview] | None:
        """Where the next bytes are best received, by one scattering read of which `received` is told. None: `feed`."""
        if self._body is not None:
            return [memoryview(self._body)[self._filled :]]
        if self._ahead is not None and not self._parser.buffered:
            return [self._head, self._ahead]
        return None

    def received(self, count: int) -> list[Frame]:
        """The frames that `count` bytes in the buffers of `room` complete. Raises ProtocolError."""
        if self._body is not None:
            self._filled += count
            return self._completed(self._body)
        assert self._ahead is not None
        frames: list[Frame] = list(self._parser.feed(bytes(self._head[:count])))
        count -= len(self._head)
        if count < 0:
            return frames
        body = self._begin(self._ahead)
        if body is self._ahead:
            self._ahead = None
            self._filled = count
            frames += self._completed(body)
        elif count:
            frames += self.feed(bytes(self._ahead[:count]))
        return frames

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes, as (type, stream, payload). Raises ProtocolError."""
        frames: list[Frame] = []
        if self._body is not None:
            count = self._fill(self._body, data)
            frames += self._completed(self._body)
            data = data[count:]
        frames += self._parser.feed(data)
        self._begin(None)
        return frames

    def reuse(self, payload: Payload) -> None:
        """Take a payload back that nobody looks at any more. From any thread."""
        if isinstance(payload, bytearray) and len(payload) == wire.MAX_DATA and len(self._spare) < _MAX_SPARE:
            self._spare.append(payload)

    def trim(self) -> None:
        """Free what was taken back, and the place of a frame that has not begun."""
        self._spare.clear()
        self._ahead = None

    def _begin(self, ahead: bytearray | None) -> bytearray | None:
        """The place of the long payload whose header the parser has; `ahead` when that is of its length."""
        begun = self._parser.hand_over(_LONG_BYTES)
        if begun is None:
            return None
        self._stream, length, beginning = begun
        if ahead is None or length != len(ahead):
            ahead = self._spare.pop() if self._spare and length == wire.MAX_DATA else bytearray(length)
        self._body = ahead
        self._fill(ahead, beginning)
        return ahead

    def _fill(self, body: bytearray, data: bytes) -> int:
        """Goes on with a long payload; how many bytes belonged to it."""
        count = min(len(data), len(body) - self._filled)
        body[self._filled : self._filled + count] = memoryview(data)[:count]
        self._filled += count
        return count

    def _completed(self, body: bytearray) -> list[Frame]:
        if self._filled < len(body):
            return []
        self._body = None
        self._filled = 0
        if len(body) == wire.MAX_DATA and self._ahead is None:
            self._ahead = self._spare.pop() if self._spare else bytearray(wire.MAX_DATA)
        return [(wire.DATA, self._stream, body)]
