"""How output is put into messages: at once when it is little, in large ones when it is much."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc
import pytest

from tests.support.fake_guest import FakeGuest
from workspaced.v1 import execution_pb2
from workspaced_guest import wire
from workspaced_server.api.attachment import Attachment
from workspaced_server.errors import WorkspacedError, unreachable
from workspaced_server.guest.stream import GuestStream

pytestmark = pytest.mark.anyio

KIB = 1024


class Call:
    """A gRPC call whose reader takes everything at once."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[execution_pb2.ProcessOutput] = asyncio.Queue()

    async def write(self, message: bytes | execution_pb2.ExecResponse) -> None:
        response = message if not isinstance(message, bytes) else execution_pb2.ExecResponse.FromString(message)
        if response.event.HasField("output"):
            self.messages.put_nowait(response.event.output)

    async def sizes(self, count: int) -> list[int]:
        async with asyncio.timeout(5):
            return [len((await self.messages.get()).data) for _ in range(count)]


class Attached:
    """An attachment that runs, the guest it reads from, and the call it writes to."""

    def __init__(self, guest: FakeGuest, stream: GuestStream, wake: asyncio.Event) -> None:
        self.call = Call()
        self._guest = guest
        self._stream = stream
        self._offset = 0
        context = cast("grpc.aio.ServicerContext[Any, Any]", self.call)
        self.attachment = Attachment(
            context, lambda event: execution_pb2.ExecResponse(event=event), stream, wake, self._offset
        )
        self.task = asyncio.create_task(self.attachment.run())

    def output(self, *sizes: int) -> None:
        for size in sizes:
            record = wire.RECORD.pack(wire.STDOUT, self._offset) + bytes(size)
            self._guest.say(wire.DATA, self._stream.id, record)
            self._offset += size


@asynccontextmanager
async def attached(*, fast: bool) -> AsyncIterator[Attached]:
    guest = FakeGuest()
    channel = await guest.connect()
    wake = asyncio.Event()
    async with channel.open("process.attach", {}, wake=wake) as stream:
        if fast:
            await guest.keep_up(stream, 8)
        assert stream.wide is fast
        running = Attached(guest, stream, wake)
        yield running
        running.task.cancel()
        await asyncio.wait([running.task])
    await channel.aclose()


async def test_much_output_for_a_fast_reader_is_put_into_large_messages() -> None:
    async with attached(fast=True) as running:
        running.output(*[256 * KIB] * 8)
        assert await running.call.sizes(2) == [1024 * KIB] * 2


async def test_a_reader_that_did_not_keep_up_gets_smaller_ones() -> None:
    async with attached(fast=False) as running:
        running.output(*[256 * KIB] * 3, 100 * KIB, 100 * KIB)
        assert await running.call.sizes(4) == [256 * KIB] * 3 + [200 * KIB]


async def test_what_comes_alone_does_not_wait_for_more() -> None:
    async with attached(fast=True) as running:
        for size in (256 * KIB, 1, 200 * KIB, 127 * KIB):
            running.output(size)
            assert await running.call.sizes(1) == [size]


async def test_what_cannot_be_joined_follows() -> None:
    async with attached(fast=True) as running:
        running.output(256 * KIB, 256 * KIB, 200 * KIB, 256 * KIB, 200 * KIB)
        assert await running.call.sizes(2) == [968 * KIB, 200 * KIB]


async def test_a_failure_ends_the_wait_for_more() -> None:
    async with attached(fast=True) as running:
        running.output(256 * KIB)
        for _ in range(10):
            await asyncio.sleep(0)
        running.attachment.fail(unreachable("a", "it has gone"))
        with pytest.raises(WorkspacedError, match="it has gone"):
            await asyncio.wait_for(running.task, 5)


async def test_acknowledgements_do_not_prolong_the_wait() -> None:
    async with attached(fast=True) as running:
        running.output(256 * KIB)
        for offset in range(1_000_000):
            running.attachment.acknowledge(offset)
            await asyncio.sleep(0)
            if running.call.messages.qsize():
                break
        assert await running.call.sizes(1) == [256 * KIB]
