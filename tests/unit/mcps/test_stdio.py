"""The bytes of a server as messages, however they are cut; and messages as bytes, whole or not at all."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from itertools import pairwise
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest

from workspaced_server.mcps.failures import McpFailure, redact, tail
from workspaced_server.mcps.stdio import PipeReader, PipeWriter

pytestmark = pytest.mark.anyio


class Script:
    """A stream that gives what was written down, then ends; and takes what is sent when it is let."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = deque(pieces)
        self.sent: list[bytes] = []
        self.reads = asyncio.Event()
        self.result = {"exit": {"code": 0}}

    async def receive(self) -> bytes | None:
        return self.pieces.popleft() if self.pieces else None

    async def send(self, data: bytes) -> None:
        await self.reads.wait()
        self.sent.append(data)


def line(number: int) -> bytes:
    return (
        json.dumps({"jsonrpc": "2.0", "method": "n", "params": {"number": number, "text": "ü\u2028"}}).encode() + b"\n"
    )


async def read(*pieces: bytes, limit: int = 1 << 20) -> tuple[list[int], Any]:
    reader = PipeReader(Script(*pieces), limit)  # type: ignore[arg-type]  # what it needs of a stream
    numbers = []
    async for item in reader:
        assert isinstance(item, SessionMessage)
        assert isinstance(item.message, JSONRPCNotification)
        assert item.message.params is not None
        numbers.append(item.message.params["number"])
    return numbers, reader.failure


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(1, 400), max_size=40), noise=st.lists(st.binary(max_size=40), max_size=5))
def test_messages_are_the_same_however_they_are_cut(cuts: list[int], noise: list[bytes]) -> None:
    data = b"".join(b"x" + item.replace(b"\n", b"") + b"\n" for item in noise)
    data += b"\r\n".join(line(number).rstrip() for number in range(20)) + b"\n"
    pieces, at = [], 0
    for cut in sorted(set(cuts)):
        pieces.append(data[at:cut])
        at = min(cut, len(data))
    pieces.append(data[at:])
    numbers, failure = asyncio.run(read(*[piece for piece in pieces if piece]))
    assert numbers == list(range(20))
    assert isinstance(failure, McpFailure)
    assert failure.reason == "MCP_CRASHED"


async def test_lines_are_bounded() -> None:
    numbers, failure = await read(line(1), b"y" * 600, b"y" * 600, line(2), limit=1000)
    assert numbers == [1]
    assert failure.reason == "MCP_PROTOCOL_ERROR"


async def test_some_noise_is_passed_over_and_nothing_but_noise_is_not() -> None:
    numbers, failure = await read(*[b"noise\n" * 100 + line(number) for number in range(5)])
    assert numbers == list(range(5))
    numbers, failure = await read(b"noise\n" * 1000, line(1))
    assert numbers == []
    assert "'noise'" in failure.message


def request(size: int = 0) -> SessionMessage:
    return SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="m", params={"text": "x" * size}))


async def test_a_cancelled_large_message_is_finished_and_others_wait_behind_it() -> None:
    script = Script()
    writer = PipeWriter(script)  # type: ignore[arg-type]
    first = asyncio.create_task(writer.send(request(1 << 20)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    told = JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled")
    async with asyncio.timeout(1):
        await writer.send(SessionMessage(told))  # does not wait for a server that is stuck
    second = asyncio.create_task(writer.send(request()))
    await asyncio.sleep(0)
    script.reads.set()
    await second
    assert [json.loads(data)["method"] for data in script.sent] == ["m", "notifications/cancelled", "m"]


async def test_what_waits_for_a_stuck_server_is_bounded() -> None:
    writer = PipeWriter(Script())  # type: ignore[arg-type]
    sends = []
    for _ in range(70):
        sends.append(asyncio.create_task(writer.send(request(1 << 20))))
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 50 < sum(not send.done() for send in sends) < 65
    with pytest.raises(anyio.BrokenResourceError):
        await sends[-1]
    await writer.aclose()
    await asyncio.gather(*sends, return_exceptions=True)


def test_tails_and_secrets() -> None:
    assert tail(b"") == ""
    long = b"".join(b"line %d\n" % number for number in range(2000))
    assert tail(long).endswith("line 1999")
    assert tail(long).startswith("line ")
    assert len(tail(b"\xff" * 10_000).encode()) <= 4096
    assert redact("a hush-hush b", ["hush", "hush-hush", "a"]) == "a [redacted] b"


def answer(number: int, size: int, *, last: bool) -> bytes:
    """An answer as Python servers write it, with the id first, or as JavaScript ones do, with the id last."""
    result = b'"result":{"text":"' + b"x" * size + b'"}'
    head = b'"jsonrpc":"2.0","id":%d' % number
    return b"{" + (result + b"," + head if last else head + b"," + result) + b"}\n"


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(1, 9000), max_size=30), last=st.booleans())
def test_an_answer_that_is_too_long_fails_its_own_request_only(cuts: list[int], last: bool) -> None:
    data = answer(1, 10, last=last) + answer(2, 5000, last=last) + answer(3, 10, last=last) + answer(4, 2000, last=last)
    bounds = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in pairwise(bounds)]

    async def collect() -> list[tuple[Any, str]]:
        reader = PipeReader(Script(*pieces), 1000)  # type: ignore[arg-type]
        found = []
        async for item in reader:
            assert isinstance(item, SessionMessage)
            found.append((item.message.id, type(item.message).__name__))  # type: ignore[union-attr]
        return found

    assert asyncio.run(collect()) == [
        (1, "JSONRPCResponse"), (2, "JSONRPCError"), (3, "JSONRPCResponse"), (4, "JSONRPCError"),
    ]  # fmt: skip


async def test_a_line_without_end_is_not_read_for_ever() -> None:
    numbers, failure = await read(line(1), *[b"y" * 1000] * 20, line(2), limit=1000)
    assert numbers == [1]
    assert failure.reason == "MCP_PROTOCOL_ERROR"


@pytest.mark.parametrize(
    "damage", [b'{"jsonrpc":"2.0","id":7,"result":{"a":tru}}\n', b'{"result":{,"jsonrpc":"2.0","id":7}\n']
)
async def test_an_answer_that_cannot_be_read_fails_its_request(damage: bytes) -> None:
    reader = PipeReader(Script(damage, line(1)), 1000)  # type: ignore[arg-type]
    first = await anext(reader)
    assert isinstance(first, SessionMessage)
    assert isinstance(first.message, JSONRPCError)
    assert first.message.id == 7
    assert "cannot be read" in first.message.error.message


async def test_what_the_server_asks_is_no_answer() -> None:
    asked = b'{"method":"ping","params":{,"jsonrpc":"2.0","id":7}\n'
    numbers, _ = await read(asked, line(1))
    assert numbers == [1]
