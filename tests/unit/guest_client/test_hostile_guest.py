"""The channel with a guest that breaks the protocol, floods or stalls: its channel ends, and nothing else does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fake_guest import HELLO, FakeGuest
from workspaced_guest import wire
from workspaced_server.errors import WorkspacedError
from workspaced_server.guest.channel import ChannelLost, GuestChannel, GuestStream

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        wire.encode(wire.DATA, 1, b"x"),
        wire.encode(wire.PING, 0, bytes(8)),
        wire.encode(wire.HELLO, 0, b"[]"),
        wire.encode(wire.HELLO, 0, b"{}"),
        wire.encode(wire.HELLO, 0, b"\xff"),
        wire.encode(wire.HELLO, 0, b"[" * 4000),
        wire.encode(wire.GOAWAY, 0, b'{"reason": 3}'),
        wire.HEADER.pack(1 << 31, wire.HELLO, 0),
        *(
            wire.encode(wire.HELLO, 0, json.dumps(HELLO | change).encode())
            for change in (
                {"version": 2},
                {"version": True},
                {"window": 0},
                {"window": 1 << 80},
                {"window": "many"},
                {"instance": None},
                {"workdir": ["x"]},
                {"capabilities": 3},
                {"capabilities": ["x"] * 1000},
                {"start_time": 1e300},
                {"uid": -1},
            )
        ),
    ],
)
async def test_a_bad_handshake_is_a_lost_channel(first: bytes) -> None:
    before = asyncio.all_tasks()
    guest = FakeGuest()
    guest.say_bytes(first) if first else guest.hang_up()
    with pytest.raises(ChannelLost):
        await GuestChannel.connect(guest, "token")
    assert guest.closed
    assert asyncio.all_tasks() == before


async def test_a_silent_guest_is_given_up() -> None:
    guest = FakeGuest()
    with pytest.raises(ChannelLost, match="in time"):
        await GuestChannel.connect(guest, "token", timeout=0.01)
    assert guest.closed


async def test_a_cancelled_handshake_closes_the_stream() -> None:
    guest = FakeGuest()
    connecting = asyncio.create_task(GuestChannel.connect(guest, "token"))
    await guest.hear(wire.HELLO)
    connecting.cancel()
    await asyncio.wait([connecting])
    assert guest.closed


@pytest.mark.parametrize(
    "attack",
    [
        lambda stream: wire.encode(wire.HELLO, 0, json.dumps(HELLO).encode()),
        lambda stream: wire.encode(wire.OPEN, stream, b"{}"),
        lambda stream: wire.encode(wire.CANCEL, stream),
        lambda stream: wire.encode(wire.DATA, stream + 1, b"x"),
        lambda stream: wire.encode(wire.RESULT, 0xFFFFFFFF, b"{}"),
        lambda stream: wire.encode(wire.DATA, 0, b"x"),
        lambda stream: wire.encode(wire.PONG, stream, bytes(8)),
        lambda stream: wire.encode(wire.PING, 0, bytes(7)),
        lambda stream: wire.encode(wire.CREDIT, stream, bytes(3)),
        lambda stream: wire.encode(wire.END, stream, b"x"),
        lambda stream: wire.HEADER.pack(0, 12, stream),
        lambda stream: wire.HEADER.pack(wire.MAX_PAYLOAD + 1, wire.DATA, stream),
        lambda stream: wire.HEADER.pack(0xFFFFFFFF, wire.DATA, stream),
        lambda stream: wire.encode(wire.GOAWAY, 0, b"not json"),
        lambda stream: wire.encode(wire.DATA, stream, bytes(wire.MAX_DATA)) * 5,  # more than was granted
        lambda stream: wire.encode(wire.MESSAGE, stream, b"{}") * 140_000,  # tiny frames, within the credit
        lambda stream: wire.encode(wire.END, stream) * 140_000,  # needs no credit
    ],
)
async def test_an_attack_breaks_this_channel_and_no_other(attack: Callable[[int], bytes]) -> None:
    guest, bystander = FakeGuest(), FakeGuest()
    channel, other = await guest.connect(), await bystander.connect()
    async with channel.open("x", {}) as stream, other.open("y", {}) as bystanders:
        guest.say_bytes(attack(stream.id))
        await asyncio.wait_for(channel.wait_closed(), 5)
        with pytest.raises(ChannelLost):
            await _read_all(stream)
        assert guest.closed
        bystander.say(wire.RESULT, bystanders.id, {})
        assert await bystanders.receive() is None
    await other.aclose()


async def _read_all(stream: GuestStream) -> None:
    while await stream.receive() is not None:
        pass


@pytest.mark.parametrize("kind", [wire.MESSAGE, wire.RESULT, wire.ERROR])
@pytest.mark.parametrize("payload", [b"", b"nonsense", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}'])
async def test_malformed_json_breaks_the_channel(kind: int, payload: bytes) -> None:
    guest = FakeGuest()
    channel = await guest.connect()
    async with channel.open("x", {}) as stream:
        guest.say(kind, stream.id, payload)
        if kind == wire.MESSAGE and not payload:
            guest.say(wire.RESULT, stream.id, {})  # an empty message says nothing, and is dropped
            assert await stream.receive() is None
        else:
            with pytest.raises(ChannelLost):
                await stream.receive()
            assert channel.closed
    await channel.aclose()


@pytest.mark.parametrize(
    "fault",
    [
        {},
        {"code": 3, "reason": "FILE_NOT_FOUND"},
        {"code": "NOT_FOUND", "reason": "FILE_NOT_FOUND", "message": 5},
        {"code": "NOT_FOUND", "reason": "FILE_NOT_FOUND", "metadata": [1]},
    ],
)
async def test_a_malformed_error_breaks_the_channel(fault: dict[str, Any]) -> None:
    guest = FakeGuest()
    channel = await guest.connect()
    async with channel.open("x", {}) as stream:
        guest.say(wire.ERROR, stream.id, fault)
        with pytest.raises(ChannelLost):
            await stream.receive()
    await channel.aclose()


@pytest.mark.parametrize("reason", ["UNAUTHENTICATED", "WORKSPACE_NOT_FOUND", "NOT_YET_AVAILABLE", "<script>"])
async def test_a_guest_cannot_speak_for_the_server(reason: str) -> None:
    guest = FakeGuest()
    channel = await guest.connect()
    async with channel.open("x", {}) as stream:
        guest.say(wire.ERROR, stream.id, {"code": "UNAUTHENTICATED", "reason": reason, "message": "secret"})
        with pytest.raises(WorkspacedError) as caught:
            await stream.receive()
    assert caught.value.reason == "GUEST_ERROR"
    assert "secret" not in caught.value.message
    await channel.aclose()


async def test_texts_of_an_error_are_bounded_and_valid_utf8() -> None:
    guest = FakeGuest()
    channel = await guest.connect()
    metadata = {f"key{n}": "\udc80" * 500 for n in range(50)} | {"bad key\n": "x", "number": 3}
    fault = {
        "code": "NOT_FOUND",
        "reason": "FILE_NOT_FOUND",
        "message": "\udcff\ud800" + "m" * 60_000,
        "metadata": metadata,
    }
    async with channel.open("x", {}) as stream:
        guest.say(wire.ERROR, stream.id, fault)
        with pytest.raises(WorkspacedError) as caught:
            await stream.receive()
    error = caught.value
    size = len(error.message.encode()) + sum(len(key) + len(value.encode()) for key, value in error.metadata.items())
    assert size < 4000
    await channel.aclose()


async def test_a_guest_that_does_not_read_is_cut_off_at_a_bound() -> None:
    guest = FakeGuest()
    channel = await guest.connect(window=1 << 30)
    guest.reading.clear()
    async with channel.open("x", {}) as stream:
        sending = asyncio.create_task(stream.send(bytes(8 << 20)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not sending.done()  # waits, holding about half a megabyte
        guest.say_bytes(wire.encode(wire.PING, 0, bytes(8)) * 400_000)
        with pytest.raises(ChannelLost, match="does not read"):
            await stream.receive()
        with pytest.raises(ChannelLost):
            await sending
    assert channel.closed


async def test_a_dead_guest_does_not_answer_a_ping() -> None:
    guest = FakeGuest()
    channel = await guest.connect()
    with pytest.raises(TimeoutError):
        await channel.ping(0.01)
    await channel.aclose()


_frames = st.builds(
    lambda length, kind, stream, payload: (
        wire.HEADER.pack(len(payload) if length is None else length, kind, stream) + payload
    ),
    st.none() | st.integers(0, 0xFFFFFFFF),
    st.integers(0, 13),
    st.integers(0, 5) | st.integers(0, 0xFFFFFFFF),
    st.binary(max_size=64)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: st.dictionaries(
            st.sampled_from(["code", "reason", "message", "metadata", "ack", "exit", "started"]), inner, max_size=4
        ),
        max_leaves=6,
    ).map(lambda value: json.dumps(value).encode()),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frames=st.lists(_frames, max_size=12), cut=st.integers(1, 40))
async def test_nothing_a_guest_sends_escapes_its_channel(frames: list[bytes], cut: int) -> None:
    before = asyncio.all_tasks()
    guest = FakeGuest()
    channel = await guest.connect()
    async with channel.open("a", {}) as first, channel.open("b", {}) as second:
        data = b"".join(frames)
        for start in range(0, len(data), cut):
            guest.say_bytes(data[start : start + cut])
        guest.hang_up()
        for stream in (first, second):
            with contextlib.suppress(ChannelLost, WorkspacedError):
                await _read_all(stream)
    await channel.aclose()
    assert channel.streams == 0
    assert asyncio.all_tasks() == before
