"""Messages as lines: nothing is lost on our own way round, and the line is one of AgentScope's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.message import Message as AnyMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from workspaced.v1 import content_pb2 as pb
from workspaced_server.offload.media import extension_of, media_type_of
from workspaced_server.offload.messages import decode, encode
from workspaced_server.offload.parcel import inline_blocks
from workspaced_server.offload.text import result_text

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_name = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
_json = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**9), 10**9) | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=6,
)
_object = st.dictionaries(_text, _json, max_size=4)
_url = st.sampled_from(["workspace:///data/a b.png", "https://h/x?y#z", "mailto:a", "http://", "no url", "http://[::1"])


@st.composite
def _data(draw: st.DrawFn) -> pb.ContentBlock:
    block = pb.DataBlock(media_type=draw(st.sampled_from(["image/png", "text/plain; charset=x"])), name=draw(_text))
    if draw(st.booleans()):
        block.url = draw(_url)
    else:
        block.bytes = draw(st.binary(max_size=8))
    return pb.ContentBlock(id=draw(_text), data=block)


_plain = st.builds(lambda name, text: pb.ContentBlock(id=name, text=pb.TextBlock(text=text)), _text, _text)
_parts = st.lists(_plain | _data(), max_size=3)


@st.composite
def _tool_call(draw: st.DrawFn) -> pb.ContentBlock:
    call = pb.ToolCallBlock(id=draw(_name), name=draw(_name))
    given_input = draw(st.none() | _object)
    if given_input is not None:
        call.input.update(given_input)
        call.input.SetInParent()
    call.raw_input = draw(st.just("") | _text | _object.map(json.dumps) | st.just(json.dumps(given_input)))
    return pb.ContentBlock(id=draw(st.just("") | _text), tool_call=call)


@st.composite
def _other(draw: st.DrawFn) -> pb.ContentBlock:
    match draw(st.integers(0, 3)):
        case 0:
            thought = pb.ThinkingBlock(thinking=draw(_text), signature=draw(_text))
            return pb.ContentBlock(id=draw(_text), thinking=thought)
        case 1:
            hint = pb.HintBlock(content=draw(_parts), source=draw(_text))
            return pb.ContentBlock(id=draw(_text), hint=hint)
        case 2:
            state: Any = draw(st.sampled_from(pb.ToolResultState.values()))
            result = pb.ToolResultBlock(id=draw(_name), name=draw(_name), output=draw(_parts), state=state)
            return pb.ContentBlock(tool_result=result)
    # A kind of a later version of the API.
    return pb.ContentBlock.FromString(b"\xf2\x07\x03new")


@st.composite
def messages(draw: st.DrawFn) -> pb.Message:
    """Messages as the API lets them in, with their id and time."""
    role: Any = draw(st.sampled_from([pb.ROLE_USER, pb.ROLE_ASSISTANT, pb.ROLE_SYSTEM]))
    message = pb.Message(
        id=draw(_name),
        role=role,
        name=draw(_text),
        content=draw(st.lists(_plain | _data() | _tool_call() | _other(), max_size=4)),
    )
    metadata = draw(st.none() | _object)
    if metadata is not None:
        message.metadata.update(metadata)
        message.metadata.SetInParent()
    message.create_time.seconds = draw(st.integers(-62_135_596_800, 253_402_300_799))
    message.create_time.nanos = draw(st.just(0) | st.integers(0, 999_999_999))
    return message


def raw(message: AnyMessage) -> bytes:
    return message.SerializeToString(deterministic=True)


@settings(max_examples=400, deadline=None)
@given(messages())
def test_round_trip(message: pb.Message) -> None:
    line = encode(message)
    assert b"\n" not in line
    assert raw(decode(line)) == raw(message)


@settings(max_examples=200, deadline=None)
@given(messages())
def test_the_line_is_a_message_without_what_is_ours(message: pb.Message) -> None:
    value = json.loads(encode(message))
    own = value.pop("workspaced", None)
    bare = decode(json.dumps(value).encode())
    if own is None and not any("workspaced" in block for block in value["content"]):
        assert raw(bare) == raw(message)
    assert (bare.id, bare.name, bare.create_time) == (message.id, message.name, message.create_time)


def test_what_is_usual_needs_nothing_of_ours() -> None:
    message = pb.Message(id="m", role=pb.ROLE_ASSISTANT, name="bot")
    message.create_time.FromJsonString("2026-11-30T10:00:00.123456789Z")
    message.metadata.update({"step": 3, "list": [1.5, None, "é"]})
    message.content.add(text=pb.TextBlock(text="hé\u2028"), id="t")
    message.content.add(thinking=pb.ThinkingBlock(thinking="why", signature="sig"))
    call = message.content.add(tool_call=pb.ToolCallBlock(id="1", name="Bash")).tool_call
    call.input.update({"command": "ls", "n": 1})
    message.content.add(
        tool_result=pb.ToolResultBlock(
            id="1",
            name="Bash",
            state=pb.TOOL_RESULT_STATE_ERROR,
            output=[pb.ContentBlock(data=pb.DataBlock(media_type="image/png", url="workspace:///data/x.png"))],
        )
    )
    message.content.add(hint=pb.HintBlock(source="system", content=[pb.ContentBlock(text=pb.TextBlock(text="note"))]))
    line = encode(message)
    assert b"workspaced" not in line
    assert "hé".encode() in line
    value = json.loads(line)
    assert list(value)[:4] == ["name", "content", "role", "id"]
    assert value["created_at"] == "2026-11-30T10:00:00.123456789Z"
    assert value["content"][2]["input"] == '{"command":"ls","n":1}'
    assert value["content"][4]["hint"] == "note"
    assert raw(decode(line)) == raw(message)


def test_a_tool_result_of_the_user_is_one_of_the_assistant_there() -> None:
    message = pb.Message(id="m", role=pb.ROLE_USER)
    message.create_time.GetCurrentTime()
    message.content.add(tool_result=pb.ToolResultBlock(id="1", name="Bash", state=pb.TOOL_RESULT_STATE_SUCCESS))
    value = json.loads(encode(message))
    assert (value["role"], value["workspaced"]) == ("assistant", {"role": "user"})
    assert decode(json.dumps(value).encode()).role == pb.ROLE_USER


def test_who_edits_a_line_is_heard() -> None:
    message = pb.Message(id="m", role=pb.ROLE_USER)
    message.create_time.GetCurrentTime()
    message.content.add(data=pb.DataBlock(media_type="a/b", url="no url"))
    message.content.add(text=pb.TextBlock(text="before"))
    line = encode(message)
    assert b'"message"' in line
    edited = decode(line.replace(b"before", b"after"))
    assert edited.content[1].text.text == "after"


def test_lines_of_agentscope() -> None:
    line = (
        '{"name":"bot","content":[{"type":"text","text":"h\\ud800","id":"b","created_at":"x","finished_at":null},'
        '{"type":"tool_call","id":"1","name":"Bash","input":"{\\"a\\": 1}","state":"pending","suggested_rules":[]},'
        '{"type":"tool_result","id":"1","name":"Bash","output":"text","state":"running","metadata":{}},'
        '{"type":"data","id":"d","source":{"type":"base64","data":"AAE=","media_type":"x/y"},"name":null},'
        '{"type":"hint","hint":"h","id":"h","source":null},{"type":"something","else":1}],"role":"assistant","id":"i",'
        '"metadata":{"deep":DEEP,"large":1LARGE},"created_at":"2026-11-30T10:00:55.399607","usage":null}'
    )
    line = line.replace("DEEP", "[" * 60 + "]" * 60).replace("LARGE", "0" * 400)
    message = pb.Message.FromString(decode(line.encode()).SerializeToString())
    assert message.content[0].text.text == "h?"
    assert message.content[1].tool_call.raw_input == '{"a": 1}'
    assert dict(message.content[1].tool_call.input) == {"a": 1}
    assert message.content[2].tool_result.output[0].text.text == "text"
    assert message.content[2].tool_result.state == pb.TOOL_RESULT_STATE_RUNNING
    assert message.content[3].data.bytes == b"\0\1"
    assert message.content[4].hint.content[0].text.text == "h"
    assert message.content[5].WhichOneof("block") is None
    assert message.create_time.ToJsonString() == "2026-11-30T10:00:55.399607Z"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"role":"user"}',
        b'{"role":"robot","content":[]}',
        b'{"role":"user","content":[1]}',
        b'{"role":"user","content":[{"type":"data"}]}',
        b'{"role":"user","content":[{"type":"data","source":{"type":"base64","data":"A"}}]}',
        b'{"role":"user","content":[{"type":"hint","hint":7}]}',
        b'{"role":["user"],"content":[]}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"role":"user","content":[]',
    ],
)
def test_what_is_no_message(line: bytes) -> None:
    with pytest.raises(ValueError):
        decode(line)


def test_a_line_that_would_take_much_memory() -> None:
    text = json.dumps({"role": "user", "content": "[,{" * 500_000 + '"\\'})
    assert len(decode(text.encode()).content[0].text.text) == 1_500_002
    for bomb in ("[]", "{}", "0"):
        with pytest.raises(ValueError, match="too many values"):
            decode(b'{"role":"user","content":[' + b",".join([bomb.encode()] * 1_100_000) + b"]}")


def test_a_forged_binary_is_ignored() -> None:
    for forged in ("!", "AAAA", 7, None):
        line = json.dumps({"role": "user", "content": "x", "workspaced": {"message": forged, "role": ["user"]}})
        assert decode(line.encode()).content[0].text.text == "x"


def test_text_of_a_result() -> None:
    png = pb.ContentBlock(data=pb.DataBlock(media_type="image/png", url="workspace:///data/a.png", name='a"<\n'))
    text = [pb.ContentBlock(text=pb.TextBlock(text=given)) for given in ("one", "", "two\n", "three")]
    assert result_text(text) == "onetwo\nthree"
    line = '<data url="workspace:///data/a.png" media_type="image/png" name="a&quot;&lt;&#10;"/>\n'
    assert result_text([text[0], text[1], png, text[2], png, png]) == f"one\n{line}two\n{line}{line}"
    assert result_text([]) == ""


def test_inline_blocks() -> None:
    inline = pb.ContentBlock(data=pb.DataBlock(media_type="a/b", bytes=b""))
    moved = pb.ContentBlock(data=pb.DataBlock(media_type="a/b", url="x:"))
    blocks = [
        inline,
        moved,
        pb.ContentBlock(tool_result=pb.ToolResultBlock(output=[inline, moved])),
        pb.ContentBlock(hint=pb.HintBlock(content=[moved, inline])),
    ]
    assert len(inline_blocks(blocks)) == 3


def test_extensions() -> None:
    assert extension_of("image/jpeg") == extension_of("IMAGE/JPEG; q=1") == ".jpg"
    assert extension_of("audio/x-wav") == ".wav"
    assert extension_of("made/up") == extension_of("application/octet-stream") == ".bin"
    assert media_type_of("0" * 64 + ".JPEG") == "image/jpeg"
    assert media_type_of("0" * 64) == media_type_of("x.made-up") == "application/octet-stream"
