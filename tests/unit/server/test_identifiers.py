"""Which ids and labels are accepted, and that two ids never become one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.workspaces.identifiers import (
    check_labels,
    check_workspace_id,
    generate_workspace_id,
    key_of,
)


@pytest.mark.parametrize(
    "workspace_id", ["a", "User_A", "user-a", "用户", "../../etc", "x" * 256, " ", "a/b", "é", "e\u0301"]
)
def test_any_printable_id_is_accepted_as_it_is(workspace_id: str) -> None:
    assert check_workspace_id(workspace_id) == workspace_id


@pytest.mark.parametrize("workspace_id", ["", "x" * 257, "a\0b", "a\nb", "\x7f", "\x85", "\ud800"])
def test_a_bad_id_is_refused_with_its_reason(workspace_id: str) -> None:
    with pytest.raises(WorkspacedError) as caught:
        check_workspace_id(workspace_id)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.violations[0].field == "workspace_id"


def test_keys_of_ids_that_look_alike_differ() -> None:
    pairs = [("o", "User_A"), ("o", "user-a"), ("o", "user_a"), ("oU", "ser_A"), ("o", "é"), ("o", "e\u0301")]
    assert len({key_of(*pair) for pair in pairs}) == len(pairs)


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_a_key_is_safe_in_every_name(owner: str, workspace_id: str) -> None:
    try:
        check_workspace_id(workspace_id)
        check_workspace_id(owner)
    except WorkspacedError:
        return
    key = key_of(owner, workspace_id)
    assert len(key) == 32
    assert set(key) <= set("0123456789abcdef")


def test_generated_ids_differ_and_are_valid() -> None:
    ids = {check_workspace_id(generate_workspace_id()) for _ in range(100)}
    assert len(ids) == 100


def test_labels_are_checked_one_by_one() -> None:
    assert check_labels({"a": "", "team/x": "ü"}) == {"a": "", "team/x": "ü"}
    with pytest.raises(WorkspacedError) as caught:
        check_labels({"-a": "1", "b": "x\n", "c": "fine"})
    assert [violation.field for violation in caught.value.violations] == ["labels['-a']", "labels['b']"]
