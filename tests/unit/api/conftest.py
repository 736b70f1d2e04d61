"""A real guest and the servicers in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.real_guest import RealGuest, RunningServer, real_guest, serve
from workspaced.v1 import execution_pb2_grpc, file_pb2_grpc, port_pb2_grpc


@pytest.fixture
async def guest(tmp_path: Path, anyio_backend: str) -> AsyncIterator[RealGuest]:
    async with real_guest(tmp_path) as running:
        yield running


@pytest.fixture
async def server(guest: RealGuest) -> AsyncIterator[RunningServer]:
    channel = await guest.connect()
    try:
        async with serve(channel) as running:
            yield running
    finally:
        await channel.aclose()


@pytest.fixture
def execution(server: RunningServer) -> execution_pb2_grpc.ExecutionServiceAsyncStub:
    return execution_pb2_grpc.ExecutionServiceStub(server.channel)


@pytest.fixture
def files(server: RunningServer) -> file_pb2_grpc.FileServiceAsyncStub:
    return file_pb2_grpc.FileServiceStub(server.channel)


@pytest.fixture
def ports(server: RunningServer) -> port_pb2_grpc.PortServiceAsyncStub:
    return port_pb2_grpc.PortServiceStub(server.channel)
