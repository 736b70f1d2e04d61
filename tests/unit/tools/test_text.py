"""Pieces of text: collected, numbered, and values between protobuf and Python."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspaced_server.tools.collected import Collected
from workspaced_server.tools.lines import numbered
from workspaced_server.tools.search import _alternatives, _split_absolute
from workspaced_server.tools.values import object_of, struct_of


@given(st.lists(st.text(max_size=40)), st.integers(2, 60))
def test_collected_keeps_the_ends(pieces: list[str], limit: int) -> None:
    collected = Collected(limit)
    for piece in pieces:
        collected.add(piece)
    whole, half = "".join(pieces), limit // 2
    text = collected.text()
    if len(whole) <= 2 * half:
        assert text == whole
    else:
        left_out = len(whole) - 2 * half
        assert text == f"{whole[:half]}\n[{left_out} characters left out here]\n{whole[-half:]}"
        assert collected.left_out == left_out


def test_numbered_lines() -> None:
    lines = [b"\xef\xbb\xbfone\r", b"caf\xe9", b"\0\0", "ü".encode() * 1100, b""]
    first, second, third, fourth, fifth = numbered(lines, 1).split("\n")
    assert first == "     1\tone"
    assert second == "     2\tcaf\ufffd"
    assert third == "     3\t\u2400\u2400"
    assert fourth == "     4\t" + "ü" * 1000 + " … [the rest of this line is left out]"
    assert fifth == "     5\t"
    assert numbered([b"x"], 1_234_567) == "1234567\tx"
    assert numbered([b"x"], -3) == "    -3\tx"
    assert "\ufffd" not in numbered([b"a" + "€".encode() * 700], 1)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["*.py"]),
        ("*.{ts,tsx}", ["*.ts", "*.tsx"]),
        ("{a,b}/{c,d}", ["a/c", "a/d", "b/c", "b/d"]),
        ("{a,{b,c}}", ["a", "b", "c"]),
        ("{a", ["{a"]),
        ("a}", ["a}"]),
        ("{a}", ["{a}"]),
        ("{a,a}", ["a"]),
        ("{,x}y", ["y", "xy"]),
        ("{a,b}" * 10, ["{a,b}" * 10]),
    ],
)
def test_alternatives(pattern: str, found: list[str]) -> None:
    assert sorted(_alternatives(pattern)) == sorted(found)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("/etc/*.conf", ("/etc", "*.conf")),
        ("/usr/**/x", ("/usr", "**/x")),
        ("/a/b/c", ("/a/b", "c")),
        ("/", ("/", "*")),
        ("/*", ("/", "*")),
        ("/{a,b}/c", ("/", "{a,b}/c")),
    ],
)
def test_absolute_patterns(pattern: str, found: tuple[str, str]) -> None:
    assert _split_absolute(pattern) == found


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8")),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**53), 2**53)
            | st.floats(allow_nan=False)
            | st.text(st.characters(codec="utf-8")),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
            max_leaves=5,
        ),
    )
)
def test_values_come_back(value: dict[str, Any]) -> None:
    assert object_of(struct_of(value)) == value


def test_what_json_may_hold_and_protobuf_not() -> None:
    assert object_of(struct_of({"half \ud800": "\udfff"})) == {"half ?": "?"}
    assert object_of(struct_of({"huge": 10**350})) == {"huge": str(10**350)}
