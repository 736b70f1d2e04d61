"""A real guest, the servicers in front of it, and a client that calls tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.real_guest import RealGuest, RunningServer, real_guest, serve
from workspaced.v1 import discovery_pb2_grpc, execution_pb2_grpc, tool_pb2
from workspaced_server.tools.values import struct_of


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


@dataclass
class Answer:
    """What a call gave: its events by kind, and its result."""

    events: list[tool_pb2.CallToolResponse] = field(default_factory=list)

    @property
    def kinds(self) -> list[str]:
        return [str(event.WhichOneof("event")) for event in self.events]

    @property
    def result(self) -> tool_pb2.ToolResult:
        assert self.kinds.count("result") == 1
        assert self.kinds[-1] == "result"
        return self.events[-1].result

    @property
    def text(self) -> str:
        """The text of the result."""
        return "\n".join(block.text.text for block in self.result.content if block.HasField("text"))

    @property
    def streamed(self) -> str:
        """The text of the events."""
        return "".join(event.text.delta for event in self.events)


@dataclass
class Caller:
    """Calls tools, and asks for lists of them."""

    execution: execution_pb2_grpc.ExecutionServiceAsyncStub
    discovery: discovery_pb2_grpc.DiscoveryServiceAsyncStub

    @classmethod
    def of(cls, server: RunningServer) -> Caller:
        return cls(
            execution_pb2_grpc.ExecutionServiceStub(server.channel),
            discovery_pb2_grpc.DiscoveryServiceStub(server.channel),
        )

    def open(self, name: str, given: dict[str, Any], **fields: Any) -> Any:
        """The stream of a call."""
        request = tool_pb2.CallToolRequest(workspace_id="w", name=name, input=struct_of(given), **fields)
        return self.execution.CallTool(request)

    async def call(self, name: str, given: dict[str, Any] | None = None, **fields: Any) -> Answer:
        """All of a call."""
        answer = Answer()
        async for event in self.open(name, given or {}, **fields):
            answer.events.append(event)
        return answer

    async def text(self, name: str, **given: Any) -> str:
        """The text of a call's result; an error begins with `!`."""
        answer = await self.call(name, given)
        return ("!" if answer.result.is_error else "") + answer.text


@pytest.fixture
def caller(server: RunningServer) -> Caller:
    return Caller.of(server)
