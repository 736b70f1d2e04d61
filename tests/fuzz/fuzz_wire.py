"""Fuzzes both directions of the frame parser. Run: python -m tests.fuzz.fuzz_wire [options]"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["workspaced_guest"]):
    from workspaced_guest import wire


def test_one_input(data: bytes) -> None:
    """Whatever comes, in whatever portions: the same frames as at once, or ProtocolError; never more kept than sent."""
    provider = atheris.FuzzedDataProvider(data)
    peer = "client" if provider.ConsumeBool() else "guest"
    greeting = wire.encode(wire.HELLO, 0, b"{}") if provider.ConsumeBool() else b""
    portion = provider.ConsumeIntInRange(1, 64)
    content = greeting + provider.ConsumeBytes(1 << 16)
    at_once = _parse(peer, [content])
    in_portions = _parse(peer, [content[start : start + portion] for start in range(0, len(content), portion)])
    if at_once is not None and in_portions != at_once:
        raise AssertionError("the portions change the frames")
    if at_once is None and in_portions is not None:
        raise AssertionError("the portions hide an error")
    for kind, _, payload in at_once or ():
        if kind in (wire.HELLO, wire.OPEN, wire.MESSAGE, wire.RESULT, wire.ERROR, wire.GOAWAY):
            try:
                wire.decode_json(payload)
            except wire.ProtocolError:
                continue


def _parse(peer: str, portions: list[bytes]) -> list[wire.Frame] | None:
    parser = wire.Parser(peer)
    frames: list[wire.Frame] = []
    sent = 0
    try:
        for portion in portions:
            frames += parser.feed(portion)
            sent += len(portion)
            if parser.buffered > min(sent, wire.MAX_PAYLOAD + wire.HEADER.size):
                raise AssertionError("more is kept than one frame")
    except wire.ProtocolError:
        return None
    return frames


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
