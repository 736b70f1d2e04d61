"""What is encoded by hand reads back as the message it stands for, byte for byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workspaced.v1 import execution_pb2, file_pb2, port_pb2, process_pb2
from workspaced_server.api.encoding import file_data, process_output, varint

_data = st.binary(max_size=300) | st.integers(0, 70_000).map(bytes)


@given(
    st.sampled_from([process_pb2.STREAM_STDOUT, process_pb2.STREAM_STDERR, process_pb2.STREAM_PTY]),
    st.integers(0, (1 << 64) - 1),
    st.lists(_data, max_size=4),
)
def test_process_output(stream: process_pb2.Stream.ValueType, offset: int, pieces: list[bytes]) -> None:
    encoded = process_output(stream, offset, *map(memoryview, pieces))
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


def test_varint() -> None:
    assert [varint(n).hex() for n in (0, 127, 128, 300, (1 << 64) - 1)] == [
        "00",
        "7f",
        "8001",
        "ac02",
        "ffffffffffffffffff01",
    ]
