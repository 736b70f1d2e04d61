"""Messages as programs write them become those of the API, and come back as they were."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspaced import (
    DataBlock,
    HintBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from workspaced.content import block_to_proto, message_from_proto, message_to_proto
from workspaced.v1 import content_pb2

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_name = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)
_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**52), 2**52) | st.floats(allow_nan=False, allow_infinity=False) | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=6,
)
_object = st.dictionaries(_text, _json, max_size=3)
_simple = (
    st.builds(TextBlock, _text, _text)
    | st.builds(DataBlock, _name, st.binary(max_size=20), st.just(""), _text, _text)
    | st.builds(DataBlock, _name, st.none(), _name, _text, _text)
)
_block = (
    _simple
    | st.builds(ThinkingBlock, _text, _text, _text)
    | st.builds(ToolCallBlock, _text, _text, _object, _text)
    | st.builds(ToolResultBlock, _text, _text, st.lists(_simple, max_size=3), st.sampled_from(["success", "error"]))
    | st.builds(HintBlock, st.lists(_simple, max_size=3), _text, _text)
)
_times = st.integers(1, 2**32).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
_message = st.builds(
    Message, st.sampled_from(["user", "assistant", "system"]), st.lists(_block, max_size=4), _text, _text, _object,
    st.none() | _times,
)  # fmt: skip


@given(_message)
def test_what_is_sent_comes_back(message: Message) -> None:
    sent = content_pb2.Message.FromString(message_to_proto(message).SerializeToString())
    assert message_from_proto(sent) == message


def test_dictionaries_and_texts_are_taken_too() -> None:
    assert message_to_proto({"role": "user", "content": "hello"}) == message_to_proto(
        Message("user", [TextBlock("hello")])
    )
    blocks: list[Any] = [
        "text",
        {"type": "thinking", "thinking": "hm"},
        {"type": "data", "media_type": "image/png", "data": "AAEC"},
        {"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": "ls"}},
        {"type": "tool_result", "id": "1", "name": "Bash", "output": ["a", {"type": "text", "text": "b"}]},
        {"type": "hint", "content": "note", "source": "me"},
    ]
    assert list(message_from_proto(message_to_proto({"role": "assistant", "content": blocks})).content) == [
        TextBlock("text"),
        ThinkingBlock("hm"),
        DataBlock("image/png", b"\0\1\2"),
        ToolCallBlock("1", "Bash", {"command": "ls"}),
        ToolResultBlock("1", "Bash", [TextBlock("a"), TextBlock("b")]),
        HintBlock([TextBlock("note")], "me"),
    ]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"role": "robot", "content": "x"}, "role 'robot'"),
        ({"role": "user", "content": [{"type": "picture"}]}, "'picture'"),
        ({"role": "user", "content": [{"type": "text", "words": "x"}]}, "words"),
        ({"role": "user", "content": [{"type": "data", "media_type": "a/b"}]}, "data or a url"),
        ({"role": "user", "content": [7]}, "int is no content block"),
        ({"role": "user", "content": "x", "metadata": {"a": {1, 2}}}, "JSON"),
        ({"role": "user", "words": "x"}, "words"),
    ],
)
def test_what_is_wrong_is_named(wrong: Any, says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        message_to_proto(wrong)


def test_a_block_of_a_newer_server_is_skipped() -> None:
    unknown = content_pb2.ContentBlock(id="new")
    message = content_pb2.Message(role=content_pb2.ROLE_USER, content=[unknown, block_to_proto("known")])
    assert list(message_from_proto(message).content) == [TextBlock("known")]
