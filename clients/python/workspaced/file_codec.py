"""The two calls that carry the bytes of files, with messages of data packed by hand: one copy instead of three."""

from __future__ import annotations

from typing import Any

import grpc

from .v1 import file_pb2

_DATA = b"\x12"  # field 2, which both messages have their bytes in
_SERVICE = file_pb2.DESCRIPTOR.services_by_name["FileService"].full_name


class FileCalls:
    """``ReadFile`` gives its data as bytes and all else as messages; ``WriteFile`` takes what :func:`packed` made, and
    messages."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.read: grpc.aio.UnaryStreamMultiCallable[Any, Any] = channel.unary_stream(
            f"/{_SERVICE}/ReadFile",
            request_serializer=file_pb2.ReadFileRequest.SerializeToString,
            response_deserializer=unpacked,
        )
        self.write: grpc.aio.StreamUnaryMultiCallable[Any, Any] = channel.stream_unary(
            f"/{_SERVICE}/WriteFile",
            request_serializer=_serialize,
            response_deserializer=file_pb2.WriteFileResponse.FromString,
        )


def packed(data: bytes) -> bytes:
    """``WriteFileRequest{data}`` as it is sent."""
    return b"".join((_DATA, _varint(len(data)), data))


def unpacked(message: bytes) -> bytes | file_pb2.ReadFileResponse:
    """The data of a ``ReadFileResponse``, or what else it is."""
    if message[:1] == _DATA:
        size = 0
        for position, digit in enumerate(message[1:6]):
            size |= (digit & 0x7F) << (7 * position)
            if digit < 0x80:
                # One that holds more than the data, as a later server may send, is read in full.
                if size and size == len(message) - position - 2:
                    return message[position + 2 :]
                break
    read = file_pb2.ReadFileResponse.FromString(message)
    return read.data or read


def _serialize(message: bytes | file_pb2.WriteFileRequest) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
