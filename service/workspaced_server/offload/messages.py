"""A message as one line of JSON, and back.

The line is what AgentScope's ``Msg.model_dump_json()`` gives, so that either reads the other's contexts. What that
model has no place for is kept under ``workspaced``, which it ignores: that a field was not set, the role of a message
which there may only have another, and, where that is not enough, the whole message in binary. The binary one counts
only while the rest of the line says the same, so that whoever edits the line is heard.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError

from workspaced.v1 import content_pb2 as pb
from workspaced_server.offload.media import DEFAULT_MEDIA_TYPE
from workspaced_server.offload.plain import compact, fill_struct, object_of, text_of, time_of, time_text

# What a reader can be sent: a message that is larger could not be read back.
MAX_MESSAGE_BYTES: Final = (4 << 20) - 1024
# What is longer is not looked at. Text without much to escape takes less than half of it, whatever a message holds.
MAX_LINE_BYTES: Final = 16 << 20
# A workspace may hold any JSON, and a few bytes of it can take much memory.
_MAX_VALUES: Final = 1_000_000
_UNCOUNTED_BYTES: Final = 256 * 1024
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_OURS: Final = "workspaced"
_ROLES: Final = {pb.ROLE_USER: "user", pb.ROLE_ASSISTANT: "assistant", pb.ROLE_SYSTEM: "system"}
_ROLE_NUMBERS: Final = {name: number for number, name in _ROLES.items()}
# What AgentScope lets a message of a role hold.
_HOLDS: Final = {"user": {"text", "data"}, "system": {"text"}}
_STATES: Final = {
    pb.TOOL_RESULT_STATE_SUCCESS: "success",
    pb.TOOL_RESULT_STATE_ERROR: "error",
    pb.TOOL_RESULT_STATE_INTERRUPTED: "interrupted",
    pb.TOOL_RESULT_STATE_DENIED: "denied",
    pb.TOOL_RESULT_STATE_RUNNING: "running",
}
_STATE_NUMBERS: Final = {name: number for number, name in _STATES.items()}
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s\x00-\x1f\x7f]*")
_NEEDS_HOST: Final = frozenset(("http", "https", "ws", "wss", "ftp"))
_UNREADABLE_URL: Final = "workspaced:unreadable"

Object = dict[str, Any]


def encode(message: pb.Message) -> bytes:
    """The line, without its newline. `id` and `create_time` are set. Raises ValueError for a time that is none."""
    line = _visible(message)
    if _same(_read(line), message):
        return compact(line).encode()
    own = line.get(_OURS, {})
    line[_OURS] = {**own, "message": base64.b64encode(message.SerializeToString()).decode("ascii")}
    return compact(line).encode()


def decode(line: bytes) -> pb.Message:
    """The message of a line. Raises ValueError for a line that is none, and for one with a million values."""
    if len(line) > _UNCOUNTED_BYTES:
        bare = _STRING.sub(b"", line)
        if bare.count(b",") + bare.count(b"[") + bare.count(b"{") > _MAX_VALUES:
            raise ValueError("too many values")
    try:
        value = json.loads(line)
    except RecursionError as error:
        raise ValueError("too deep") from error
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    message = _read(value)
    own = value.get(_OURS)
    if isinstance(own, dict) and isinstance(own.get("message"), str):
        try:
            whole = pb.Message.FromString(base64.b64decode(own.pop("message"), validate=True))
            if not own:
                del value[_OURS]
            if _visible(whole) == value:
                return whole
        except (binascii.Error, DecodeError, ValueError, OverflowError):
            return message
    return message


def _same(one: pb.Message, other: pb.Message) -> bool:
    # By their bytes, which also hold what neither this version nor AgentScope knows.
    return one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)


def _visible(message: pb.Message) -> Object:
    created = time_text(message.create_time)
    role = _ROLES.get(message.role, "assistant")
    content = [block for block in (_block(block, created) for block in message.content) if block is not None]
    line: Object = {
        "name": message.name,
        "content": content,
        "role": role,
        "id": message.id,
        "metadata": object_of(message.metadata),
        "created_at": created,
        "usage": None,
        "finished_at": None,
        "finished_reason": None,
        "structured_output": None,
        "error": None,
    }
    if not {block["type"] for block in content} <= _HOLDS.get(role, {*_KINDS}):
        line.update({"role": "assistant", _OURS: {"role": role}})
    return line


def _block(block: pb.ContentBlock, created: str) -> Object | None:
    kind = block.WhichOneof("block")
    if kind is None:
        return None
    found: Object = {"type": kind}
    if block.id:
        found["id"] = block.id
    found.update(_WRITERS[kind](getattr(block, kind), created))
    found.update(created_at=created, finished_at=None)
    return found


def _write_text(block: pb.TextBlock, created: str) -> Object:
    return {"text": block.text}


def _write_thinking(block: pb.ThinkingBlock, created: str) -> Object:
    return {"thinking": block.thinking, **({"signature": block.signature} if block.signature else {})}


def _write_data(block: pb.DataBlock, created: str) -> Object:
    if block.WhichOneof("source") == "bytes":
        source = {"type": "base64", "data": base64.b64encode(block.bytes).decode("ascii")}
    else:
        source = {"type": "url", "url": block.url if _is_url(block.url) else _UNREADABLE_URL}
    return {"source": {**source, "media_type": block.media_type}, "name": block.name or None}


def _write_tool_call(block: pb.ToolCallBlock, created: str) -> Object:
    text = block.raw_input or compact(object_of(block.input))
    found: Object = {"id": block.id, "name": block.name, "input": text, "state": "finished", "suggested_rules": []}
    if not block.HasField("input") and _object(text) is not None:
        found[_OURS] = {"unset": ["input"]}
    return found


def _write_tool_result(block: pb.ToolResultBlock, created: str) -> Object:
    output = [_block(part, created) for part in block.output if part.WhichOneof("block") in ("text", "data")]
    state = _STATES.get(block.state, "success")
    found: Object = {"id": block.id, "name": block.name, "output": output, "state": state, "metadata": {}}
    if not block.state:
        found[_OURS] = {"unset": ["state"]}
    return found


def _write_hint(block: pb.HintBlock, created: str) -> Object:
    parts = [part for part in block.content if part.WhichOneof("block") in ("text", "data")]
    plain = len(parts) == 1 and parts[0].HasField("text") and not parts[0].id
    hint = parts[0].text.text if plain else [_block(part, created) for part in parts]
    return {"hint": hint, "source": block.source or None}


_WRITERS: Final[dict[str, Any]] = {
    "text": _write_text,
    "thinking": _write_thinking,
    "data": _write_data,
    "tool_call": _write_tool_call,
    "tool_result": _write_tool_result,
    "hint": _write_hint,
}
_KINDS: Final = frozenset(_WRITERS)


def _read(line: Object) -> pb.Message:
    own = line.get(_OURS)
    role = text_of(own.get("role")) if isinstance(own, dict) else ""
    if role not in _HOLDS:
        role = text_of(line.get("role"))
    content = line.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if role not in _ROLE_NUMBERS or not isinstance(content, list):
        raise ValueError("no message")
    message = pb.Message(id=text_of(line.get("id")), role=_ROLE_NUMBERS[role], name=text_of(line.get("name")))
    _read_blocks(message.content, content)
    metadata = line.get("metadata")
    if isinstance(metadata, dict) and metadata:
        fill_struct(message.metadata, metadata)
    created = time_of(line.get("created_at"))
    if created is not None:
        message.create_time.CopyFrom(created)
    return message


def _read_blocks(blocks: Any, values: Iterable[object]) -> None:
    for value in values:
        if not isinstance(value, dict):
            raise ValueError("no block")
        block = blocks.add()
        kind = text_of(value.get("type"))
        if kind not in _READERS:
            continue
        if kind not in ("tool_call", "tool_result"):
            block.id = text_of(value.get("id"))
        found = getattr(block, kind)
        found.SetInParent()
        _READERS[kind](found, value)
        own = value.get(_OURS)
        unset = own.get("unset") if isinstance(own, dict) else None
        for name in unset if isinstance(unset, list) else ():
            if name in ("input", "state") and name in found.DESCRIPTOR.fields_by_name:
                found.ClearField(name)


def _read_text(block: pb.TextBlock, value: Object) -> None:
    block.text = text_of(value.get("text"))


def _read_thinking(block: pb.ThinkingBlock, value: Object) -> None:
    block.thinking = text_of(value.get("thinking"))
    block.signature = text_of(value.get("signature"))


def _read_data(block: pb.DataBlock, value: Object) -> None:
    block.name = text_of(value.get("name"))
    source = value.get("source")
    if not isinstance(source, dict):
        raise ValueError("no source")
    block.media_type = text_of(source.get("media_type")) or DEFAULT_MEDIA_TYPE
    if source.get("type") == "base64":
        block.bytes = base64.b64decode(text_of(source.get("data")))
    else:
        block.url = text_of(source.get("url"))


def _read_tool_call(block: pb.ToolCallBlock, value: Object) -> None:
    block.id, block.name = text_of(value.get("id")), text_of(value.get("name"))
    given = value.get("input")
    text = given if isinstance(given, str) else json.dumps(given)
    parsed = _object(text)
    if parsed is not None:
        fill_struct(block.input, parsed)
        block.input.SetInParent()
    if parsed is None or compact(object_of(block.input)) != text:
        block.raw_input = text_of(text)


def _read_tool_result(block: pb.ToolResultBlock, value: Object) -> None:
    block.id, block.name = text_of(value.get("id")), text_of(value.get("name"))
    block.state = _STATE_NUMBERS.get(text_of(value.get("state")), pb.TOOL_RESULT_STATE_SUCCESS)
    _read_parts(block.output, value.get("output"))


def _read_hint(block: pb.HintBlock, value: Object) -> None:
    block.source = text_of(value.get("source"))
    _read_parts(block.content, value.get("hint"))


def _read_parts(blocks: Any, value: object) -> None:
    if isinstance(value, str):
        value = [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise ValueError("no blocks")
    _read_blocks(blocks, value)


_READERS: Final[dict[str, Any]] = {
    "text": _read_text,
    "thinking": _read_thinking,
    "data": _read_data,
    "tool_call": _read_tool_call,
    "tool_result": _read_tool_result,
    "hint": _read_hint,
}


def _object(text: str) -> Object | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_url(url: str) -> bool:
    """Whether AgentScope's model takes it: one that it does not take would make it refuse the whole message."""
    if not _URL.fullmatch(url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme.lower() not in _NEEDS_HOST or (bool(parts.hostname) and (parts.port or 0) >= 0)
    except ValueError:
        return False
