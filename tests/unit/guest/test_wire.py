"""The frame parser: vectors, any portions, and nothing but ProtocolError for any bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.guest_client import vectors
from workspaced_guest import wire

_HELLO = wire.encode(wire.HELLO, 0, b"{}")
_STREAM = st.integers(1, wire.MAX_STREAM)
_FRAMES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([wire.OPEN, wire.MESSAGE, wire.DATA]), _STREAM, st.binary(max_size=300)),
        st.tuples(st.just(wire.CREDIT), _STREAM, st.binary(min_size=4, max_size=4)),
        st.tuples(st.sampled_from([wire.END, wire.CANCEL]), _STREAM, st.just(b"")),
        st.tuples(st.sampled_from([wire.PING, wire.PONG]), st.just(0), st.binary(min_size=8, max_size=8)),
    ),
    max_size=20,
)


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: str(vector["name"]))
@pytest.mark.parametrize("portion", [1, 7, 1 << 20])
def test_vectors(vector: dict[str, Any], portion: int) -> None:
    parser = wire.Parser(vector["peer"])
    data = bytes.fromhex(vector["bytes"])
    frames: list[wire.Frame] = []
    failed = False
    try:
        for start in range(0, len(data), portion):
            frames += parser.feed(data[start : start + portion])
    except wire.ProtocolError:
        failed = True
    expected = [(wire.NAMES.index(f["type"]), f["stream"], bytes.fromhex(f["payload"])) for f in vector["frames"]]
    assert failed is vector.get("error", False)
    if portion == 1 or not failed:
        assert frames == expected


@given(_FRAMES, st.data())
def test_frames_survive_any_portions(frames: list[wire.Frame], data: st.DataObject) -> None:
    content = _HELLO + b"".join(wire.encode(*frame) for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=30)))
    parser = wire.Parser("client")
    found: list[wire.Frame] = []
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        found += parser.feed(content[start:end])
    assert found == [(wire.HELLO, 0, b"{}"), *frames]
    assert parser.buffered == 0


@given(st.sampled_from(["client", "guest"]), st.booleans(), st.lists(st.binary(max_size=64), max_size=20))
def test_any_bytes_are_frames_or_a_protocol_error(peer: str, greeted: bool, portions: list[bytes]) -> None:
    parser = wire.Parser(peer)
    if greeted:
        parser.feed(_HELLO)
    failed = False
    for portion in portions:
        try:
            parser.feed(portion)
        except wire.ProtocolError:
            failed = True
            assert parser.buffered == 0
        else:
            assert not failed, "a parser that failed once goes on"


def test_an_oversized_frame_is_refused_before_it_is_kept() -> None:
    parser = wire.Parser("client")
    parser.feed(_HELLO)
    with pytest.raises(wire.ProtocolError):
        parser.feed(wire.HEADER.pack(0xFFFFFFFF, wire.DATA, 1) + b"x" * 1000)
    assert parser.buffered == 0


def test_a_frame_that_trickles_in_costs_no_more_than_its_bytes() -> None:
    import sys

    parser = wire.Parser("client")
    parser.feed(_HELLO)
    content = wire.encode(wire.DATA, 1, b"x" * 20_000)
    before = sys.getallocatedblocks()
    for byte in content[:-1]:
        assert parser.feed(bytes((byte,))) == []
    assert sys.getallocatedblocks() - before < 500
    assert parser.feed(content[-1:]) == [(wire.DATA, 1, b"x" * 20_000)]


@given(st.dictionaries(st.text(st.characters(exclude_categories=[]), max_size=5), st.text(max_size=5), max_size=5))
def test_json_carries_lone_surrogates(value: dict[str, str]) -> None:
    assert wire.decode_json(wire.encode_json(value)) == value


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"null",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b"\xff",
        b'{"a":',
        b"[" * 100_000,
        '{"a":1}'.encode("utf-16"),
    ],
)
def test_json_that_is_not_an_object_is_a_protocol_error(payload: bytes) -> None:
    with pytest.raises(wire.ProtocolError):
        wire.decode_json(payload)


def test_encode_refuses_what_the_parser_would() -> None:
    assert len(wire.encode(wire.DATA, 1, bytes(wire.MAX_PAYLOAD))) == wire.MAX_PAYLOAD + wire.HEADER.size
    with pytest.raises(ValueError, match="262209"):
        wire.encode(wire.DATA, 1, bytes(wire.MAX_PAYLOAD + 1))
