"""Whose things a request means, and in which directory they lie."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspaced.v1 import discovery_pb2
from workspaced_server.api.pairs import check_id, pair_of
from workspaced_server.errors import WorkspacedError
from workspaced_server.partitions import Pair, directory_name

_ids = st.text(
    st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="/\\"), min_size=1, max_size=66
).filter(lambda value: not value.startswith("."))


def test_absent_is_not_empty() -> None:
    assert pair_of(discovery_pb2.ListToolsRequest()) == Pair(None, None)
    assert pair_of(discovery_pb2.ListToolsRequest(agent_id="a", session_id="用户")) == Pair("a", "用户")
    with pytest.raises(WorkspacedError) as caught:
        pair_of(discovery_pb2.ListToolsRequest(agent_id="", session_id="../x"))
    assert [violation.field for violation in caught.value.violations] == ["agent_id", "session_id"]


@pytest.mark.parametrize("bad", ["", ".", "..", ".hidden", "a/b", "a\\b", "a\0b", "a\nb", "x" * 201, "é" * 101])
def test_what_no_id_may_be(bad: str) -> None:
    with pytest.raises(WorkspacedError) as caught:
        check_id(bad, "session_id")
    assert caught.value.violations[0].field == "session_id"


@given(_ids, _ids)
def test_no_two_ids_share_a_directory(one: str, other: str) -> None:
    names = {directory_name(None), directory_name(check_id(one, "a")), directory_name(check_id(other, "a"))}
    assert len(names) == (2 if one == other else 3)
    assert all("/" not in name and not name.startswith(".") and len(name.encode()) <= 255 for name in names)


def test_the_directory_of_an_id_is_the_id() -> None:
    assert [directory_name(name) for name in (None, "ada", "default", "%64efault", "100%")] == [
        "default",
        "ada",
        "%64efault",
        "%2564efault",
        "100%25",
    ]
    assert len({directory_name("%" * 200), directory_name("%" * 199)}) == 2
