"""What is encoded by hand reads back as the message it stands for, byte for byte."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from workspaced.file_codec import packed, unpacked
from workspaced.v1 import execution_pb2, file_pb2, port_pb2, process_pb2
from workspaced_server.api.encoding import file_data, process_output, varint, write_file_request

_data = st.binary(max_size=300) | st.integers(0, 70_000).map(bytes)


@given(
    st.sampled_from([process_pb2.STREAM_STDOUT, process_pb2.STREAM_STDERR, process_pb2.STREAM_PTY]),
    st.integers(0, (1 << 64) - 1),
    st.lists(_data, max_size=4),
)
def test_process_output(stream: process_pb2.Stream.ValueType, offset: int, pieces: list[bytes]) -> None:
    encoded = process_output(stream, offset, *(memoryview(piece) for piece in pieces))
    output = execution_pb2.ProcessOutput(stream=stream, offset=offset, data=b"".join(pieces))
    event = execution_pb2.ProcessEvent(output=output)
    assert execution_pb2.ExecResponse.FromString(encoded) == execution_pb2.ExecResponse(event=event)
    assert execution_pb2.AttachProcessResponse.FromString(encoded).event == event
    if output.data:
        assert encoded == execution_pb2.ExecResponse(event=event).SerializeToString()


@given(_data)
def test_file_data_and_tunnel_data(data: bytes) -> None:
    assert file_data(data) == file_pb2.ReadFileResponse(data=data).SerializeToString()
    assert port_pb2.TunnelResponse.FromString(file_data(data)) == port_pb2.TunnelResponse(data=data)


_messages = st.one_of(
    _data.map(lambda data: file_pb2.WriteFileRequest(data=data).SerializeToString()),
    st.binary(max_size=12),
    st.binary(max_size=12).map(lambda rest: b"\x12" + rest),
    st.lists(_data, min_size=2, max_size=2).map(
        lambda two: b"".join(file_pb2.WriteFileRequest(data=data).SerializeToString() for data in two)
    ),
    st.text(max_size=20).map(
        lambda path: file_pb2.WriteFileRequest(header=file_pb2.WriteFileHeader(path=path)).SerializeToString()
    ),
)


@given(_messages)
def test_write_file_request_reads_as_the_library_does(message: bytes) -> None:
    try:
        expected = file_pb2.WriteFileRequest.FromString(message)
    except DecodeError:
        with pytest.raises(DecodeError):
            write_file_request(message)
        return
    found = write_file_request(message)
    if isinstance(found, memoryview):
        assert (expected.WhichOneof("part"), expected.data) == ("data", bytes(found))
    else:
        assert found == expected


@given(_messages)
def test_the_client_reads_and_packs_as_the_library_does(message: bytes) -> None:
    try:
        expected = file_pb2.ReadFileResponse.FromString(message)
    except DecodeError:
        with pytest.raises(DecodeError):
            unpacked(message)
        return
    found = unpacked(message)
    if isinstance(found, bytes):
        assert (expected.WhichOneof("part"), expected.data) == ("data", found)
    else:
        assert found == expected
    assert packed(message) == file_pb2.WriteFileRequest(data=message).SerializeToString()


def test_varint() -> None:
    assert [varint(n).hex() for n in (0, 127, 128, 300, (1 << 64) - 1)] == [
        "00",
        "7f",
        "8001",
        "ac02",
        "ffffffffffffffffff01",
    ]
