"""Fuzzes the server with a hostile guest: frames, and what they hold. Run: python -m tests.fuzz.fuzz_hostile_guest"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import atheris

with atheris.instrument_imports(include=["workspaced_guest", "workspaced_server"]):
    from workspaced_guest import wire
    from workspaced_server.api.fileinfo import file_change, file_info
    from workspaced_server.errors import WorkspacedError
    from workspaced_server.guest.channel import ChannelLost, GuestStream
    from workspaced_server.processes import exit_of, process

from tests.support.fake_guest import FakeGuest

_KEYS = [
    "code", "reason", "message", "metadata", "field", "process_id", "pid", "state", "argv", "shell", "pty", "cols",
    "exit", "signal", "usage", "time", "start_time", "labels", "workspaced.spec", "first_offset", "path", "type",
    "mtime_ns", "mode", "target", "kind", "to", "started", "gap", "from", "eof", "ack", "stat",
]  # fmt: skip
_TEXTS = [
    "", "NOT_FOUND", "FILE_NOT_FOUND", "ARGUMENT_INVALID", "EXITED", "SIGNALED", "LOST", "KILL", "running", "exited",
    "file", "created", "stdout", "\udcff", "\ud800", "-5", "9" * 30, "p", "0",
]  # fmt: skip
_NUMBERS = [0, 1, -1, 255, 1 << 31, 1 << 63, 1 << 64, 1 << 200, 0.5, 1e300, -0.0]


def test_one_input(data: bytes) -> None:
    """Whatever the guest sends, its streams end with ChannelLost or an error that is its own, and nothing is left."""
    _LOOP.run_until_complete(_play(atheris.FuzzedDataProvider(data)))


async def _play(provider: atheris.FuzzedDataProvider) -> None:
    before = asyncio.all_tasks()
    guest = FakeGuest()
    channel = await guest.connect()
    portion = provider.ConsumeIntInRange(1, 200)
    async with channel.open("a", {}) as first, channel.open("b", {}) as second:
        said = b"".join(_frame(provider) for _ in range(provider.ConsumeIntInRange(1, 12)))
        for start in range(0, len(said), portion):
            guest.say_bytes(said[start : start + portion])
        guest.hang_up()
        for stream in (first, second):
            await _read(stream)
    await channel.aclose()
    if channel.streams or asyncio.all_tasks() != before:
        raise AssertionError("something outlives the channel")


async def _read(stream: GuestStream) -> None:
    try:
        while (item := await stream.receive()) is not None:
            if isinstance(item, dict):
                _convert(item)
        _convert(stream.result)
    except ChannelLost:
        return
    except WorkspacedError as error:
        error.message.encode()
        if len(error.message) > 1000 or len(error.metadata) > 8:
            raise AssertionError("a guest's error is not bounded") from error


def _convert(answer: dict[str, Any]) -> None:
    for convert in (process, exit_of, file_info, file_change):
        try:
            convert(answer).SerializeToString()
        except WorkspacedError as error:
            if error.reason != "GUEST_ERROR":
                raise AssertionError("a guest speaks for the server") from error


def _frame(provider: atheris.FuzzedDataProvider) -> bytes:
    kind = provider.ConsumeIntInRange(0, 13)
    stream = provider.PickValueInList([0, 1, 1, 2, 2, 3, wire.MAX_STREAM])
    shape = provider.ConsumeIntInRange(0, 7)
    payload: bytes = provider.ConsumeBytes(provider.ConsumeIntInRange(0, 64))
    if shape > 2:
        payload = json.dumps({provider.PickValueInList(_KEYS): _value(provider, 3) for _ in range(shape)}).encode()
    length = provider.ConsumeInt(4) & 0xFFFFFFFF if shape == 0 else len(payload)
    return wire.HEADER.pack(length, kind, stream) + payload


def _value(provider: atheris.FuzzedDataProvider, depth: int) -> object:
    shape = provider.ConsumeIntInRange(0, 6 if depth else 4)
    if shape == 0:
        return provider.PickValueInList([None, True, False])
    if shape == 1:
        return provider.PickValueInList(_NUMBERS)
    if shape == 2:
        return provider.ConsumeUnicode(8)
    if shape <= 4:
        return provider.PickValueInList(_TEXTS)
    count = provider.ConsumeIntInRange(0, 4)
    if shape == 5:
        return [_value(provider, depth - 1) for _ in range(count)]
    return {provider.PickValueInList(_KEYS): _value(provider, depth - 1) for _ in range(count)}


if __name__ == "__main__":
    _LOOP = asyncio.new_event_loop()
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
