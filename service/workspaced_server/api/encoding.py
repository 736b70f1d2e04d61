"""Responses that carry many bytes, encoded by hand: one copy of the data instead of three.

Each function returns the bytes that serialising the message would give; a test compares them.
"""

from __future__ import annotations


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
