"""Messages that carry many bytes, encoded and decoded by hand: one copy of the data instead of three, or none.

Encoding gives the bytes that serialising the message would give; tests compare both directions with the library's.
"""

from __future__ import annotations

from workspaced.v1 import file_pb2

_DATA = 0x12  # tag of field 2, of bytes


def varint(value: int) -> bytes:
    """A base-128 varint of a number that is not negative."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def process_output(stream: int, offset: int, *pieces: bytes | memoryview) -> bytes:
    """``ExecResponse{event{output{stream, offset, data}}}``, `data` in pieces; `AttachProcessResponse` has the same
    shape.
    """
    head = b"\x08" + varint(stream)
    if offset:
        head += b"\x10" + varint(offset)
    size = sum(map(len, pieces))
    head += b"\x1a" + varint(size)
    output = b"\x12" + varint(len(head) + size) + head
    return b"".join((b"\x0a", varint(len(output) + size), output, *pieces))


def file_data(data: bytes | memoryview) -> bytes:
    """``ReadFileResponse{data}``; `TunnelResponse` has the same shape."""
    return b"".join((b"\x12", varint(len(data)), data))


def offload_chunk(offset: int, data: bytes | memoryview) -> bytes:
    """``ReadOffloadResponse{chunk{offset, data}}``."""
    head = (b"\x08" + varint(offset) if offset else b"") + b"\x12" + varint(len(data))
    return b"".join((b"\x12", varint(len(head) + len(data)), head, data))


def write_file_request(message: bytes) -> file_pb2.WriteFileRequest | memoryview:
    """A ``WriteFileRequest``; one of nothing but data is given as a view of it. Raises DecodeError."""
    if message and message[0] == _DATA:
        size = 0
        for position, digit in enumerate(message[1:6]):
            size |= (digit & 0x7F) << (7 * position)
            if digit < 0x80:
                # One that holds more than the data, as a later client may send, is read in full.
                if size == len(message) - position - 2:
                    return memoryview(message)[position + 2 :]
                break
    return file_pb2.WriteFileRequest.FromString(message)
