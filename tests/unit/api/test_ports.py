"""PortService over a real guest."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TypeAlias

import grpc
import pytest

from tests.support.real_guest import WORKSPACE, reason, violations
from workspaced.v1 import port_pb2 as port_pb
from workspaced.v1 import port_pb2_grpc

pytestmark = pytest.mark.anyio

Stub: TypeAlias = "port_pb2_grpc.PortServiceAsyncStub"


def opening(port: int) -> port_pb.TunnelRequest:
    return port_pb.TunnelRequest(open=port_pb.TunnelOpen(workspace_id=WORKSPACE, port=port))


async def part(call: grpc.aio.StreamStreamCall[port_pb.TunnelRequest, port_pb.TunnelResponse]) -> str | None:
    """The kind of the next response."""
    response = await call.read()
    assert isinstance(response, port_pb.TunnelResponse)
    return response.WhichOneof("part")


@pytest.fixture
async def echo(anyio_backend: str) -> AsyncIterator[int]:
    """A port that answers, once its client has half-closed, with all it was sent."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionResetError):
            writer.write(await reader.read())
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_bytes_both_ways_and_half_closes(ports: Stub, echo: int) -> None:
    data = bytes(range(256)) * 8000
    call = ports.Tunnel()
    await call.write(opening(echo))
    assert await part(call) == "opened"
    for start in range(0, len(data), 1 << 20):
        await call.write(port_pb.TunnelRequest(data=data[start : start + (1 << 20)]))
    await call.done_writing()
    received, parts = bytearray(), []
    while isinstance(response := await call.read(), port_pb.TunnelResponse):
        received += response.data
        parts.append(response.WhichOneof("part"))
    assert bytes(received) == data
    assert parts[-1] == "half_closed"
    assert await call.code() is grpc.StatusCode.OK


async def test_the_port_may_half_close_first(ports: Stub) -> None:
    heard = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        writer.write_eof()
        heard.set_result(await reader.read())
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        call = ports.Tunnel()
        await call.write(opening(server.sockets[0].getsockname()[1]))
        parts = [await part(call) for _ in range(3)]
        assert parts == ["opened", "data", "half_closed"]
        await call.write(port_pb.TunnelRequest(data=b"still here"))
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await heard == b"still here"


async def test_nothing_listens(ports: Stub) -> None:
    call = ports.Tunnel()
    await call.write(opening(1))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert (caught.value.code(), reason(caught.value)) == (grpc.StatusCode.FAILED_PRECONDITION, "PORT_REFUSED")


async def test_requests_that_make_no_sense(ports: Stub, echo: int) -> None:
    data = port_pb.TunnelRequest(data=b"x")
    for requests, field in (
        ((), "open"),
        ((data,), "open"),
        ((opening(0),), "port"),
        ((opening(70_000),), "port"),
        ((opening(echo), opening(echo)), "open"),
    ):
        call = ports.Tunnel()
        for request in requests:
            await call.write(request)
        await call.done_writing()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
        assert violations(caught.value) == {field}


async def test_list_pages(ports: Stub, echo: int) -> None:
    found, token = [], ""
    while True:
        request = port_pb.ListPortsRequest(workspace_id=WORKSPACE, page_size=1, page_token=token)
        page = await ports.ListPorts(request)
        assert len(page.ports) <= 1
        found += [port.port for port in page.ports]
        token = page.next_page_token
        if not token:
            break
    assert echo in found
    assert found == sorted(found)
    for bad in ("x", "!!", "bm8gbnVtYmVy"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ports.ListPorts(port_pb.ListPortsRequest(workspace_id=WORKSPACE, page_token=bad))
        assert violations(caught.value) == {"page_token"}
