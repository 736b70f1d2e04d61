"""Messages of an agent's conversation and the blocks that they are made of."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal

from google.protobuf.struct_pb2 import Struct, Value

from .v1 import content_pb2

Role = Literal["user", "assistant", "system"]
ToolResultState = Literal["success", "error", "interrupted", "denied", "running"]

_ROLES: dict[str, content_pb2.Role.ValueType] = {
    "user": content_pb2.ROLE_USER,
    "assistant": content_pb2.ROLE_ASSISTANT,
    "system": content_pb2.ROLE_SYSTEM,
}
_ROLE_NAMES: dict[int, Role] = {
    content_pb2.ROLE_USER: "user",
    content_pb2.ROLE_ASSISTANT: "assistant",
    content_pb2.ROLE_SYSTEM: "system",
}
_STATES: dict[str, content_pb2.ToolResultState.ValueType] = {
    "success": content_pb2.TOOL_RESULT_STATE_SUCCESS,
    "error": content_pb2.TOOL_RESULT_STATE_ERROR,
    "interrupted": content_pb2.TOOL_RESULT_STATE_INTERRUPTED,
    "denied": content_pb2.TOOL_RESULT_STATE_DENIED,
    "running": content_pb2.TOOL_RESULT_STATE_RUNNING,
}
_STATE_NAMES: dict[int, ToolResultState] = {
    content_pb2.TOOL_RESULT_STATE_SUCCESS: "success",
    content_pb2.TOOL_RESULT_STATE_ERROR: "error",
    content_pb2.TOOL_RESULT_STATE_INTERRUPTED: "interrupted",
    content_pb2.TOOL_RESULT_STATE_DENIED: "denied",
    content_pb2.TOOL_RESULT_STATE_RUNNING: "running",
}


@dataclass(frozen=True)
class TextBlock:
    """Plain text."""

    text: str
    id: str = ""


@dataclass(frozen=True)
class ThinkingBlock:
    """Reasoning that a model gave beside its answer; ``signature`` is its provider's proof."""

    thinking: str
    signature: str = ""
    id: str = ""


@dataclass(frozen=True)
class DataBlock:
    """Bytes with a media type: ``data`` inline, else ``url`` says where they are."""

    media_type: str
    data: bytes | None = None
    url: str = ""
    name: str = ""
    id: str = ""


@dataclass(frozen=True)
class ToolCallBlock:
    """A model's request to call a tool. ``raw_input`` is the text of the arguments when it must stay as it is."""

    id: str
    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    raw_input: str = ""


@dataclass(frozen=True)
class ToolResultBlock:
    """The answer to a tool call."""

    id: str
    name: str
    output: Sequence[Block] = ()
    state: ToolResultState = "success"


@dataclass(frozen=True)
class HintBlock:
    """A note of the agent's framework to the model."""

    content: Sequence[Block]
    source: str = ""
    id: str = ""


Block = TextBlock | ThinkingBlock | DataBlock | ToolCallBlock | ToolResultBlock | HintBlock
BlockLike = Block | str | Mapping[str, Any] | content_pb2.ContentBlock
"""A block, a text, a dictionary with a ``type`` (``text``, ``thinking``, ``data``, ``tool_call``, ``tool_result``,
``hint``) and the block's fields, or the message of the API."""


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: Sequence[Block]
    name: str = ""
    id: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    create_time: datetime | None = None


MessageLike = Message | Mapping[str, Any] | content_pb2.Message
"""A message, a dictionary with ``role`` and ``content`` (a text or blocks), or the message of the API."""


def struct(values: Mapping[str, Any]) -> Struct:
    """A JSON object for the API. Raises :class:`TypeError` for what JSON does not have."""
    made = Struct()
    try:
        made.update(values)
    except ValueError as error:
        raise TypeError(f"no JSON object: {error}") from None
    return made


def plain(values: Struct) -> dict[str, Any]:
    """The JSON object as Python values; whole numbers are integers."""
    return {name: _plain(value) for name, value in values.fields.items()}


def _plain(value: Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return plain(value.struct_value)
    if kind == "list_value":
        return [_plain(item) for item in value.list_value.values]
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    return None if kind in (None, "null_value") else getattr(value, str(kind))


def plain_value(value: Value) -> Any:
    """Any JSON value as a Python value."""
    return _plain(value)


def message_to_proto(message: MessageLike) -> content_pb2.Message:
    """The message for the API. Raises :class:`ValueError` or :class:`TypeError` naming what is wrong."""
    if isinstance(message, content_pb2.Message):
        return message
    if isinstance(message, Mapping):
        message = _message(message)
    if message.role not in _ROLES:
        raise ValueError(f"role {message.role!r} is none of {', '.join(_ROLES)}")
    made = content_pb2.Message(
        id=message.id, role=_ROLES[message.role], name=message.name, content=blocks_to_proto(message.content)
    )
    if message.metadata:
        made.metadata.CopyFrom(struct(message.metadata))
    if message.create_time is not None:
        made.create_time.FromDatetime(message.create_time)
    return made


def message_from_proto(message: content_pb2.Message) -> Message:
    """The message from the API; blocks that this version does not know are left out."""
    return Message(
        role=_ROLE_NAMES.get(message.role, "user"),
        content=blocks_from_proto(message.content),
        name=message.name,
        id=message.id,
        metadata=plain(message.metadata),
        create_time=message.create_time.ToDatetime(timezone.utc) if message.HasField("create_time") else None,
    )


def blocks_to_proto(blocks: str | Iterable[BlockLike]) -> list[content_pb2.ContentBlock]:
    """Blocks for the API; a text is one block."""
    return [block_to_proto(block) for block in ([blocks] if isinstance(blocks, str) else blocks)]


def blocks_from_proto(blocks: Iterable[content_pb2.ContentBlock]) -> list[Block]:
    """Blocks from the API, without those of a kind that this version does not know."""
    return [known for known in map(_block_from_proto, blocks) if known is not None]


def block_to_proto(block: BlockLike) -> content_pb2.ContentBlock:
    """One block for the API. Raises :class:`ValueError` or :class:`TypeError`."""
    if isinstance(block, content_pb2.ContentBlock):
        return block
    if isinstance(block, str):
        block = TextBlock(block)
    elif isinstance(block, Mapping):
        block = _block(block)
    made = content_pb2.ContentBlock()
    if isinstance(block, TextBlock):
        made.text.text = block.text
    elif isinstance(block, ThinkingBlock):
        made.thinking.thinking, made.thinking.signature = block.thinking, block.signature
    elif isinstance(block, DataBlock):
        made.data.CopyFrom(data_to_proto(block))
    elif isinstance(block, ToolCallBlock):
        made.tool_call.id, made.tool_call.name = block.id, block.name
        made.tool_call.raw_input = block.raw_input
        made.tool_call.input.CopyFrom(struct(block.input))
        return made
    elif isinstance(block, ToolResultBlock):
        made.tool_result.CopyFrom(result_to_proto(block))
        return made
    elif isinstance(block, HintBlock):
        made.hint.source = block.source
        made.hint.content.extend(blocks_to_proto(block.content))
    else:
        raise TypeError(f"{type(block).__name__} is no content block")
    made.id = block.id
    return made


def data_to_proto(block: DataBlock) -> content_pb2.DataBlock:
    """A data block for the API."""
    if (block.data is None) == (not block.url):
        raise ValueError("a data block has either data or a url")
    made = content_pb2.DataBlock(media_type=block.media_type, name=block.name)
    if block.data is not None:
        made.bytes = block.data
    else:
        made.url = block.url
    return made


def data_from_proto(block: content_pb2.DataBlock, block_id: str = "") -> DataBlock:
    """A data block from the API."""
    data = block.bytes if block.WhichOneof("source") == "bytes" else None
    return DataBlock(block.media_type, data, block.url, block.name, block_id)


def result_to_proto(block: ToolResultBlock) -> content_pb2.ToolResultBlock:
    """A tool result for the API."""
    if block.state not in _STATES:
        raise ValueError(f"state {block.state!r} is none of {', '.join(_STATES)}")
    output = blocks_to_proto(block.output)
    return content_pb2.ToolResultBlock(id=block.id, name=block.name, output=output, state=_STATES[block.state])


def state_name(number: int) -> ToolResultState:
    """How a tool call ended, as a word."""
    return _STATE_NAMES.get(number, "success")


def _block_from_proto(block: content_pb2.ContentBlock) -> Block | None:
    kind = block.WhichOneof("block")
    if kind == "text":
        return TextBlock(block.text.text, block.id)
    if kind == "thinking":
        return ThinkingBlock(block.thinking.thinking, block.thinking.signature, block.id)
    if kind == "data":
        return data_from_proto(block.data, block.id)
    if kind == "tool_call":
        call = block.tool_call
        return ToolCallBlock(call.id, call.name, plain(call.input), call.raw_input)
    if kind == "tool_result":
        result = block.tool_result
        return ToolResultBlock(result.id, result.name, blocks_from_proto(result.output), state_name(result.state))
    if kind == "hint":
        return HintBlock(blocks_from_proto(block.hint.content), block.hint.source, block.id)
    return None


_KINDS = {
    "text": TextBlock,
    "thinking": ThinkingBlock,
    "data": DataBlock,
    "tool_call": ToolCallBlock,
    "tool_use": ToolCallBlock,
    "tool_result": ToolResultBlock,
    "hint": HintBlock,
}


def _block(values: Mapping[str, Any]) -> Block:
    kind = values.get("type")
    make = _KINDS.get(str(kind))
    if make is None:
        raise ValueError(f"a block's type is one of {', '.join(_KINDS)}, not {kind!r}")
    fields = {name: value for name, value in values.items() if name != "type"}
    if make is DataBlock and isinstance(fields.get("data"), str):
        fields["data"] = base64.b64decode(fields["data"], validate=True)
    for name in ("output", "content"):
        if name in fields and not isinstance(fields[name], (str, bytes)):
            fields[name] = [_nested(item) for item in fields[name]]
        elif isinstance(fields.get(name), str):
            fields[name] = [TextBlock(fields[name])]
    try:
        return make(**fields)  # type: ignore[no-any-return]
    except TypeError as error:
        raise TypeError(f"a block of type {kind!r}: {error}") from None


def _nested(item: Any) -> Any:
    return _block(item) if isinstance(item, Mapping) else TextBlock(item) if isinstance(item, str) else item


def _message(values: Mapping[str, Any]) -> Message:
    fields = dict(values)
    content = fields.pop("content", ())
    blocks = [content] if isinstance(content, str) else content
    try:
        return Message(content=[_nested(block) for block in blocks], **fields)
    except TypeError as error:
        raise TypeError(f"a message: {error}") from None
