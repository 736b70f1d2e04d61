"""What the vectors rest on: that a wrong answer is seen, and that an open call is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.data import bytes_of, result_of, sha256_of
from tests.clients.driver import Driver
from tests.clients.expectations import at, filled, mismatch
from tests.clients.languages import Language
from tests.clients.stage import Server, Stage


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {}),
        ({"a": True}, {"a": 1}),
        ({"a": None}, {"a": 0}),
        ([1, 2], [1]),
        ({"$data": "x"}, result_of(b"y")),
        ({"$data": "x"}, None),
        ({"$matches": "^x$"}, "y"),
        ({"$matches": "x"}, None),
        ({"$any": True}, None),
        ({"$greater": 1}, 1),
        ({"$less": 1}, 1),
        ({"$contains": ["a"]}, ["b"]),
        ({"$without": ["a"]}, ["a"]),
        ({"$not": 1}, 1),
        ({"$one_of": [1, 2]}, 3),
        ({"$length": 2}, [1]),
        ({"$some": {"$matches": "x"}}, ["y"]),
        ({"$none": {"$matches": "x"}}, ["x"]),
        ({"$sha256_of": "x"}, sha256_of("y")),
    ],
)
def test_a_difference_is_seen(expected: Any, actual: Any) -> None:
    assert mismatch(expected, actual) is not None
    assert mismatch({"in": [expected]}, {"in": [actual]}) is not None


def test_what_is_equal_and_more() -> None:
    answer = {"a": 1, "more": [1, {"b": None, "c": "xyz"}], "data": result_of(b"12\n")}
    assert mismatch({"more": [1, {"c": {"$matches": "y"}}], "data": {"$data": "12\n"}}, answer) is None
    assert (at(answer, "more.1.c"), at(answer, "data.line"), at(answer, "data.number")) == ("xyz", "12", 12)
    assert filled({"x": ["${n}", "a${n}"]}, {"n": 3}) == {"x": [3, "a3"]}


def test_a_pattern_is_what_operations_say() -> None:
    data = bytes_of({"pattern": "p", "size": (1 << 21) + 5})
    assert data[: 1 << 20] == bytes_of({"pattern": "p", "size": 1 << 20})
    assert data[1 << 20 : (1 << 21) - 1] == data[1 : 1 << 20]
    assert data[1 << 21 :] == data[2:7]


def test_an_open_call_is_seen(stage: Stage, language: Language, driver: Driver) -> None:
    server: Server = stage.server("shared")
    server.wait_until_idle()
    driver.do("connect", address=server.process.address)
    driver.do("initialize", backend="local", id=f"open-{language.name}")
    driver.do("exec", command="sleep 600", disconnect_policy="kill")
    assert server.open_calls() == 1
    driver.do("leave")
    server.wait_until_idle()
    driver.do("ws_delete")
    driver.do("close_client")
