"""Receiving in place: the frames of the plain parser, whatever way and in whatever portions the bytes come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.guest_client import vectors
from workspaced_guest import wire
from workspaced_guest.receiver import Receiver

if TYPE_CHECKING:
    from workspaced_guest.receiver import Frame

_HELLO = wire.encode(wire.HELLO, 0, b"{}")
_LONG = 65_536
_LENGTHS = st.sampled_from([0, 1, 300, _LONG - 1, _LONG, _LONG + 1, wire.MAX_DATA - 1, wire.MAX_DATA, wire.MAX_PAYLOAD])


def _receive(receiver: Receiver, data: bytes, in_place: bool = True) -> list[Frame]:
    """Give it `data` as a socket would that holds all of it."""
    frames: list[Frame] = []
    while data:
        room = receiver.room() if in_place else None
        if room is None:
            frames += receiver.feed(data)
            return frames
        count = 0
        for buffer in room:
            view = memoryview(buffer)
            part = data[count : count + len(view)]
            view[: len(part)] = part
            count += len(part)
        frames += receiver.received(count)
        data = data[count:]
    return frames


def _content(lengths: list[int]) -> tuple[bytes, list[Frame]]:
    frames: list[Frame] = []
    for number, length in enumerate(lengths, 1):
        frames.append((wire.DATA, number, bytes((number + index) % 251 for index in range(251)) * (length // 251 + 1)))
        frames[-1] = (wire.DATA, number, bytes(frames[-1][2][:length]))
        frames.append((wire.CREDIT, number, b"\0\0\1\0"))
    return _HELLO + b"".join(wire.encode(*frame) for frame in frames), [(wire.HELLO, 0, b"{}"), *frames]


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: str(vector["name"]))
@pytest.mark.parametrize("portion", [1, 7, 1 << 20])
def test_vectors(vector: dict[str, Any], portion: int) -> None:
    receiver = Receiver(vector["peer"])
    data = bytes.fromhex(vector["bytes"])
    frames: list[Frame] = []
    failed = False
    try:
        for start in range(0, len(data), portion):
            frames += _receive(receiver, data[start : start + portion])
    except wire.ProtocolError:
        failed = True
    expected = [(wire.NAMES.index(f["type"]), f["stream"], bytes.fromhex(f["payload"])) for f in vector["frames"]]
    assert failed is vector.get("error", False)
    if portion == 1 or not failed:
        assert frames == expected


@pytest.mark.parametrize("in_place", [True, False])
def test_a_long_frame_survives_a_cut_at_every_byte_of_its_edges(in_place: bool) -> None:
    content, expected = _content([_LONG, 3])
    edges = [*range(60), *range(_LONG, len(content))]
    for cut in edges:
        receiver = Receiver("client")
        found = _receive(receiver, content[:cut], in_place) + _receive(receiver, content[cut:], in_place)
        assert found == expected
        assert receiver.buffered == 0


@settings(deadline=None)
@given(st.lists(_LENGTHS, max_size=4), st.data())
def test_frames_survive_any_portions(lengths: list[int], data: st.DataObject) -> None:
    content, expected = _content(lengths)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=20)))
    receiver = Receiver("client")
    found: list[Frame] = []
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        frames = _receive(receiver, content[start:end], data.draw(st.booleans()))
        for kind, stream, payload in frames:
            found.append((kind, stream, bytes(payload)))
            receiver.reuse(payload)
        assert receiver.buffered <= wire.MAX_PAYLOAD + wire.HEADER.size
    assert found == expected
    assert receiver.buffered == 0


def test_memory_is_used_again_and_given_back() -> None:
    receiver = Receiver("client")
    receiver.feed(_HELLO)
    frame = wire.encode(wire.DATA, 1, bytes(wire.MAX_DATA))
    _receive(receiver, frame[:1000])
    seen: list[object] = []
    for _ in range(10):
        payload = _receive(receiver, frame[1000:] + frame[:1000])[0][2]
        seen.append(id(payload))
        receiver.reuse(payload)
    assert len(set(seen)) == 2, "the one that is received, and the one that is looked at"
    for _ in range(100):
        receiver.reuse(bytearray(wire.MAX_DATA))
    assert len(receiver._spare) <= 5
    receiver.trim()
    assert not receiver._spare


def test_what_nobody_gives_back_is_not_written_over() -> None:
    receiver = Receiver("client")
    receiver.feed(_HELLO)
    found: list[Frame] = []
    for number in range(5):
        frame = wire.encode(wire.DATA, 1, bytes((number,)) * wire.MAX_DATA)
        found += _receive(receiver, frame[:300]) + _receive(receiver, frame[300:])
    assert [bytes(payload) for _, _, payload in found] == [bytes((n,)) * wire.MAX_DATA for n in range(5)]


def test_the_next_frame_is_received_in_one_read() -> None:
    receiver = Receiver("client")
    receiver.feed(_HELLO)
    frame = wire.encode(wire.DATA, 1, bytes(wire.MAX_DATA))
    _receive(receiver, frame[:300])
    _receive(receiver, frame[300:])
    room = receiver.room()
    assert room is not None
    assert sum(map(len, room)) == len(frame)
    receiver.trim()
    assert receiver.room() is None


def test_what_follows_a_long_frame_is_checked() -> None:
    receiver = Receiver("client")
    frame = wire.encode(wire.DATA, 1, bytes(_LONG))
    assert _receive(receiver, _HELLO + frame[:500]) == [(wire.HELLO, 0, b"{}")]
    with pytest.raises(wire.ProtocolError):
        _receive(receiver, frame[500:] + wire.HEADER.pack(0xFFFFFFFF, wire.DATA, 1))
    with pytest.raises(wire.ProtocolError):
        receiver.feed(frame)
    assert receiver.buffered == 0
