"""Frames: the bytes between the server and the guest (`docs/guest-protocol.md`). No input or output happens here.

The server imports this module too; it is the only one that it imports.
"""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union

    Buffer = Union[bytes, bytearray, memoryview]
    Frame = tuple[int, int, bytes]

VERSION = 1

HELLO = 0
OPEN = 1
MESSAGE = 2
DATA = 3
CREDIT = 4
END = 5
RESULT = 6
ERROR = 7
CANCEL = 8
PING = 9
PONG = 10
GOAWAY = 11

NAMES = (
    "HELLO",
    "OPEN",
    "MESSAGE",
    "DATA",
    "CREDIT",
    "END",
    "RESULT",
    "ERROR",
    "CANCEL",
    "PING",
    "PONG",
    "GOAWAY",
)

HEADER = struct.Struct(">IBI")
MAX_DATA = 262_144
MAX_PAYLOAD = MAX_DATA + 64
MAX_HELLO = 4096
MAX_STREAM = 0xFFFFFFFF
MAX_CREDIT = 1 << 40
WINDOW = 1 << 20
# What is kept of one process, as JSON: it has to fit one frame, with what is said around it.
MAX_DESCRIPTION = MAX_PAYLOAD - 2048

# A record is DATA of an attachment: tag, offset in the journal, then the bytes.
RECORD = struct.Struct(">BQ")
STDOUT = 1
STDERR = 2
PTY = 3
TAG_NAMES = {STDOUT: "stdout", STDERR: "stderr", PTY: "pty"}

# A frame that trickles in is joined now and then: a chunk costs far more memory than a byte.
_MAX_CHUNKS = 64
# Below this, copying once more is cheaper than counting.
_SHORT = 4096

_CREDIT = struct.Struct(">I")
_CHANNEL_TYPES = frozenset((HELLO, PING, PONG, GOAWAY))
_FIXED_LENGTHS = {CREDIT: 4, END: 0, CANCEL: 0, PING: 8, PONG: 8}
_SENT_BY = {
    "client": frozenset((HELLO, OPEN, MESSAGE, DATA, CREDIT, END, CANCEL, PING, PONG)),
    "guest": frozenset((HELLO, MESSAGE, DATA, CREDIT, END, RESULT, ERROR, PING, PONG, GOAWAY)),
}


class ProtocolError(Exception):
    """The peer sent what the protocol does not allow; the channel can't go on."""


def encode(kind: int, stream: int = 0, payload: Buffer = b"") -> bytes:
    """One whole frame. Raises ValueError when the payload is too long."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"payload of {len(payload)} bytes, at most {MAX_PAYLOAD} are allowed")
    return HEADER.pack(len(payload), kind, stream) + payload


def encode_json(value: dict[str, Any]) -> bytes:
    """A JSON payload; lone surrogates travel as escapes."""
    return _dumps(value).encode("ascii")


def decode_json(payload: Buffer) -> dict[str, Any]:
    """The object of a JSON payload. Raises ProtocolError when it is not one."""
    try:
        value = _loads(str(payload, "utf-8"))
    except (ValueError, RecursionError):
        raise ProtocolError("malformed JSON") from None
    if not isinstance(value, dict):
        raise ProtocolError("a JSON payload must be an object")
    return value


def encode_credit(count: int) -> bytes:
    """The payload of CREDIT: 0 to 2**32-1 bytes granted."""
    return _CREDIT.pack(count)


def decode_credit(payload: Buffer) -> int:
    """The bytes granted by a CREDIT payload."""
    (count,) = _CREDIT.unpack(payload)
    return int(count)


class Parser:
    """Cuts what one peer sends into frames, in any portions. Nothing past the bounds of the protocol is ever kept.

    Checks what can be told without knowing the streams: lengths, types, who may send what, HELLO first and only first
    (a guest may say GOAWAY instead). After a ProtocolError the parser refuses everything.
    """

    __slots__ = ("_allowed", "_chunks", "_error", "_greeted", "_missing", "_size")

    def __init__(self, peer: str) -> None:
        """`peer` is who sends the bytes: "client" or "guest"."""
        self._allowed = _SENT_BY[peer]
        self._chunks: list[bytes] = []
        self._size = 0
        self._missing = HEADER.size
        self._greeted = False
        self._error: ProtocolError | None = None

    @property
    def buffered(self) -> int:
        """Bytes kept of a frame that is not complete."""
        return self._size

    def hand_over(self, minimum: int) -> tuple[int, int, bytes] | None:
        """The DATA frame that has begun, if it has a payload of at least `minimum` bytes: stream, length of the payload
        and what has come of it. The caller gathers the rest, and feeds what follows that. Ask after each `feed`."""
        if self._size < HEADER.size:
            return None
        length, kind, stream = HEADER.unpack_from(self._chunks[0])
        if kind != DATA or length < minimum or len(self._chunks) > 1:
            return None
        begun = self._chunks.pop()[HEADER.size :]
        self._size = 0
        self._missing = HEADER.size
        return stream, length, begun

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes, as (type, stream, payload). Raises ProtocolError."""
        if self._error is not None:
            raise self._error
        try:
            return self._feed(data)
        except ProtocolError as error:
            self._error = error
            self._chunks.clear()
            self._size = 0
            raise

    def _feed(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        if self._chunks:
            self._chunks.append(data)
            self._size += len(data)
            if len(data) < self._missing:
                self._missing -= len(data)
                if len(self._chunks) >= _MAX_CHUNKS:
                    self._chunks = [b"".join(self._chunks)]
                return frames
            if len(self._chunks[0]) >= 9 and len(data) > _SHORT:
                data = self._complete(frames, data)
            else:
                data = b"".join(self._chunks)
            self._chunks.clear()
            self._size = 0
        position = 0
        available = len(data)
        while available - position >= 9:
            length, kind, stream = HEADER.unpack_from(data, position)
            self._check(length, kind, stream)
            start = position + 9
            if available - start < length:
                self._missing = start + length - available
                break
            frames.append((kind, stream, data[start : start + length]))
            self._greeted = self._greeted or kind == HELLO
            position = start + length
        else:
            self._missing = 9 - (available - position)
        if position < available:
            rest = data[position:] if position else data
            self._chunks.append(rest)
            self._size = len(rest)
        return frames

    def _complete(self, frames: list[Frame], data: bytes) -> bytes:
        """Ends a frame whose header has come, with one copy of its bytes; returns what follows it."""
        _, kind, stream = HEADER.unpack_from(self._chunks[0])
        self._chunks[0] = self._chunks[0][9:]
        self._chunks[-1] = data[: self._missing]
        frames.append((kind, stream, b"".join(self._chunks)))
        self._greeted = self._greeted or kind == HELLO
        return data[self._missing :]

    def _check(self, length: int, kind: int, stream: int) -> None:
        if kind not in self._allowed:
            raise ProtocolError(f"frame type {kind} is unknown or not this side's to send")
        if length > MAX_PAYLOAD:
            raise ProtocolError(f"payload of {length} bytes, at most {MAX_PAYLOAD} are allowed")
        if (stream == 0) is not (kind in _CHANNEL_TYPES):
            raise ProtocolError(f"{NAMES[kind]} on stream {stream}")
        if length != _FIXED_LENGTHS.get(kind, length):
            raise ProtocolError(f"{NAMES[kind]} with a payload of {length} bytes")
        if self._greeted:
            if kind == HELLO:
                raise ProtocolError("a second HELLO")
        elif kind in (HELLO, GOAWAY):
            if length > MAX_HELLO:
                raise ProtocolError(f"{NAMES[kind]} of {length} bytes, at most {MAX_HELLO} are allowed")
        else:
            raise ProtocolError(f"{NAMES[kind]} before HELLO")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_dumps = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode
_loads = json.JSONDecoder(parse_constant=_no_constant).decode
