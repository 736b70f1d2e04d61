"""The channel with a guest that keeps to the protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.fake_guest import PIECE, FakeGuest
from tests.support.real_guest import real_guest
from workspaced_guest import wire
from workspaced_server.drivers.streams import connect_unix
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.guest.channel import ChannelLost, GuestChannel
from workspaced_server.guest.stream import NOTHING, WIDE_WINDOW_BYTES

pytestmark = pytest.mark.anyio


async def test_handshake_calls_and_errors_of_a_real_guest(tmp_path: Path) -> None:
    async with real_guest(tmp_path) as guest:
        channel = await guest.connect()
        assert channel.hello.workdir == str(guest.workdir)
        await channel.ping(5)
        assert (await channel.call("guest.info", {}))["processes"] == 0
        with pytest.raises(WorkspacedError) as caught:
            await channel.call("process.get", {"process_id": "nobody"})
        assert (caught.value.code, caught.value.reason) == (Code.NOT_FOUND, "PROCESS_NOT_FOUND")
        with pytest.raises(WorkspacedError) as caught:
            await channel.call("no.such.operation", {})
        assert caught.value.code is Code.INTERNAL
        assert channel.streams == 0
        await channel.aclose()
        assert isinstance(await channel.wait_closed(), ChannelLost)


async def test_a_wrong_token_is_told(tmp_path: Path) -> None:
    async with real_guest(tmp_path) as guest:
        with pytest.raises(ChannelLost) as caught:
            await GuestChannel.connect(await connect_unix(guest.directory / "socket"), "wrong")
        assert caught.value.goaway == "TOKEN"


async def test_bytes_of_every_size_come_back_from_a_real_guest(tmp_path: Path) -> None:
    data = bytes(range(256)) * 12_345
    async with real_guest(tmp_path) as guest:
        channel = await guest.connect()
        async with channel.open("file.write", {"path": "f"}) as stream:
            assert await stream.receive() == {"offset": 0}
            await stream.send(data)
            stream.end()
            assert await stream.receive() is None
        async with channel.open("file.read", {"path": "f"}) as stream:
            await stream.receive()
            read = bytearray()
            while isinstance(item := await stream.receive(), bytes):
                read += item
        assert bytes(read) == data
        await channel.aclose()


async def test_frames_of_all_sizes_at_once_keep_their_order(tmp_path: Path) -> None:
    sizes = [1, 100, 262_144, 40_000, 5, 200_000, 262_144, 262_144, 3] * 4
    data = [bytes((number,)) * size for number, size in enumerate(sizes)]
    async with real_guest(tmp_path) as guest:
        channel = await guest.connect()
        async with (
            channel.open("file.write", {"path": "f"}) as stream,
            channel.open("file.list", {"path": "."}) as other,
        ):
            assert await stream.receive() == {"offset": 0}
            for item in data:
                await stream.send(item)
            stream.end()
            assert await stream.receive() is None
            assert await other.receive() is None
        assert (guest.workdir / "f").read_bytes() == b"".join(data)
        await channel.aclose()


async def test_what_is_sent_may_be_changed_afterwards(tmp_path: Path) -> None:
    async with real_guest(tmp_path) as guest:
        channel = await guest.connect()
        async with channel.open("file.write", {"path": "f"}) as stream:
            await stream.receive()
            for number in range(4):
                data = bytearray([number]) * 100_000
                await stream.send(memoryview(data).toreadonly())
                data[:] = bytes(100_000)
            stream.end()
            assert await stream.receive() is None
        assert (guest.workdir / "f").read_bytes() == b"".join(bytes([number]) * 100_000 for number in range(4))
        await channel.aclose()


async def test_a_killed_guest_is_a_lost_channel(tmp_path: Path) -> None:
    async with real_guest(tmp_path) as guest:
        channel = await guest.connect()
        async with channel.open(
            "process.start", {"spec": {"argv": ["sleep", "60"]}, "attach": {"offset": 0}}
        ) as stream:
            await stream.receive()
            guest.process.kill()
            with pytest.raises(ChannelLost):
                await stream.receive()
        assert channel.closed
        with pytest.raises(ChannelLost):
            await channel.call("guest.info", {})


async def test_credit_is_granted_as_items_are_taken() -> None:
    guest = FakeGuest()
    channel = await guest.connect()
    async with channel.open("x", {}, window=400) as stream:
        assert (await guest.hear())[0] == wire.OPEN
        for _ in range(4):
            guest.say(wire.DATA, stream.id, b"d" * 100)
        assert await stream.receive() == b"d" * 100
        assert not guest.received  # the first is still being used
        assert stream.receive_nowait() == b"d" * 100
        assert await guest.hear() == (wire.CREDIT, stream.id, wire.encode_credit(100))
    await channel.aclose()


async def test_a_sender_waits_for_credit_and_is_woken_by_it() -> None:
    guest = FakeGuest()
    channel = await guest.connect(window=10)
    async with channel.open("x", {}) as stream:
        await stream.send(b"a" * 30)  # one frame may go below zero
        sending = asyncio.create_task(stream.send(b"b"))
        await guest.hear(wire.DATA)
        await asyncio.sleep(0)
        assert not sending.done()
        guest.say(wire.CREDIT, stream.id, wire.encode_credit(20))
        await asyncio.sleep(0)
        assert not sending.done()
        guest.say(wire.CREDIT, stream.id, wire.encode_credit(1))
        await sending
        assert (await guest.hear(wire.DATA))[2] == b"b"
    await channel.aclose()


async def test_a_reader_that_keeps_up_gets_a_wide_window() -> None:
    guest = FakeGuest()
    channel = await guest.connect()
    async with channel.open("x", {}) as first, channel.open("y", {}) as second:
        assert await guest.keep_up(first, 8) == WIDE_WINDOW_BYTES - wire.WINDOW
        # All of it can be on the way at once, and is granted again as it is taken.
        for _ in range(16):
            guest.say(wire.DATA, first.id, PIECE)
        for _ in range(16):
            assert await first.receive() == PIECE
        assert first.receive_nowait() is NOTHING
        granted = 0
        while granted < WIDE_WINDOW_BYTES:
            granted += wire.decode_credit((await guest.hear(wire.CREDIT))[2])
        assert granted == WIDE_WINDOW_BYTES
        assert await guest.keep_up(second, 8) == WIDE_WINDOW_BYTES - wire.WINDOW
        # What a stopped reader can leave in memory is bounded for all streams together.
        async with channel.open("z", {}) as third:
            assert await guest.keep_up(third, 20) == 0
            second.cancel()
            assert await guest.keep_up(third, 1) == WIDE_WINDOW_BYTES - wire.WINDOW
    await channel.aclose()


async def test_a_reader_that_falls_behind_keeps_its_window() -> None:
    guest = FakeGuest()
    channel = await guest.connect()
    async with channel.open("x", {}) as stream:
        for _ in range(20):
            # There is always one more behind the one that is taken.
            guest.say(wire.DATA, stream.id, PIECE)
            guest.say(wire.DATA, stream.id, PIECE)
            assert await stream.receive() == PIECE
            assert stream.receive_nowait() == PIECE
            assert wire.decode_credit((await guest.hear(wire.CREDIT))[2]) == len(PIECE)
            assert stream.receive_nowait() is NOTHING
            assert wire.decode_credit((await guest.hear(wire.CREDIT))[2]) == len(PIECE)
            assert await guest.keep_up(stream, 5) == 0
    await channel.aclose()


async def test_more_than_a_wide_window_is_still_an_attack() -> None:
    guest = FakeGuest()
    channel = await guest.connect()
    async with channel.open("x", {}) as stream:
        await guest.keep_up(stream, 8)
        for _ in range(18):
            guest.say(wire.DATA, stream.id, PIECE)
        await asyncio.wait_for(channel.wait_closed(), 5)


async def test_a_stalled_stream_delays_no_other() -> None:
    guest = FakeGuest()
    channel = await guest.connect(window=1)
    async with channel.open("slow", {}) as slow, channel.open("fast", {}) as fast:
        await slow.send(b"xx")
        stalled = asyncio.create_task(slow.send(b"y"))
        await fast.send(b"z")
        guest.say(wire.RESULT, fast.id, {"ok": 1})
        assert await fast.receive() is None
        assert fast.result == {"ok": 1}
        assert not stalled.done()
        stalled.cancel()
    await channel.aclose()


async def test_leaving_a_stream_cancels_it_and_late_frames_are_dropped() -> None:
    guest = FakeGuest()
    channel = await guest.connect()
    async with channel.open("x", {}) as stream:
        pass
    assert await guest.hear(wire.CANCEL) == (wire.CANCEL, stream.id, b"")
    guest.say(wire.DATA, stream.id, b"late")
    guest.say(wire.RESULT, stream.id, {})
    answered = asyncio.create_task(channel.ping(5))
    _, _, key = await guest.hear(wire.PING)
    guest.say(wire.PONG, 0, key)
    await answered
    assert channel.streams == 0
    await channel.aclose()


async def test_a_finished_stream_is_not_cancelled() -> None:
    guest = FakeGuest()
    channel = await guest.connect()
    async with channel.open("x", {}) as stream:
        await guest.hear(wire.OPEN)
        guest.say(wire.RESULT, stream.id, {})
        assert await stream.receive() is None
        await stream.send(b"nobody listens")
        stream.end()
    assert not guest.received
    await channel.aclose()


async def test_what_came_before_an_error_or_a_loss_is_delivered_first() -> None:
    guest = FakeGuest()
    channel = await guest.connect()
    fault = {"code": "NOT_FOUND", "reason": "FILE_NOT_FOUND", "message": "m", "metadata": {"path": "p"}}
    async with channel.open("x", {}) as failing, channel.open("y", {}) as losing:
        guest.say(wire.DATA, failing.id, b"1")
        guest.say(wire.ERROR, failing.id, fault)
        guest.say(wire.MESSAGE, losing.id, {"n": 2})
        guest.say(wire.END, losing.id)
        guest.hang_up()
        await channel.wait_closed()
        assert await failing.receive() == b"1"
        with pytest.raises(WorkspacedError) as caught:
            await failing.receive()
        assert caught.value.metadata == {"path": "p"}
        assert await losing.receive() == {"n": 2}
        assert await losing.receive() == b""
        with pytest.raises(ChannelLost):
            await losing.receive()


async def test_goaway_tells_everybody_why() -> None:
    guest = FakeGuest()
    channel = await guest.connect()
    async with channel.open("x", {}) as stream:
        guest.say(wire.GOAWAY, 0, {"reason": "UPGRADE"})
        with pytest.raises(ChannelLost) as caught:
            await stream.receive()
    assert caught.value.goaway == "UPGRADE"
    assert (await channel.wait_closed()).goaway == "UPGRADE"


async def test_cancelled_waits_lose_nothing() -> None:
    guest = FakeGuest()
    channel = await guest.connect()
    async with channel.open("x", {}) as stream:
        waiting = asyncio.create_task(stream.receive())
        await guest.hear(wire.OPEN)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert stream.receive_nowait() is NOTHING
        guest.say(wire.DATA, stream.id, b"kept")
        assert await stream.receive() == b"kept"
    await channel.aclose()


async def test_parameters_that_no_frame_holds_are_refused_without_harm() -> None:
    guest = FakeGuest()
    channel = await guest.connect()
    with pytest.raises(WorkspacedError) as caught:
        channel.open("process.start", {"spec": {"shell": "x" * wire.MAX_PAYLOAD}})
    assert caught.value.violations[0].field == "spec"
    assert not channel.closed
    await channel.aclose()


async def test_closing_leaves_no_task_and_fails_what_waits() -> None:
    before = asyncio.all_tasks()
    guest = FakeGuest()
    channel = await guest.connect(window=1)
    async with channel.open("x", {}) as stream:
        await stream.send(b"xx")
        waiting = [asyncio.create_task(work) for work in (stream.receive(), stream.send(b"y"), channel.ping(5))]
        await guest.hear(wire.PING)
        await channel.aclose()
        await channel.aclose()
        for task in waiting:
            with pytest.raises(ChannelLost):
                await task
    assert guest.closed
    assert asyncio.all_tasks() == before
