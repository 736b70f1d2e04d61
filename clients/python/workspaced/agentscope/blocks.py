"""Messages and blocks of AgentScope as those of the API, and back."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from agentscope.message import Base64Source, Msg, URLSource
from agentscope.message import DataBlock as TheirDataBlock
from agentscope.message import TextBlock as TheirTextBlock

from workspaced.content import (
    Block,
    DataBlock,
    HintBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)


def message(theirs: Msg) -> Message:
    """A message with all of its blocks."""
    return Message(
        role=theirs.role,
        content=blocks(theirs.content),
        name=theirs.name,
        id=theirs.id,
        metadata=theirs.metadata,
        create_time=_time(theirs.created_at),
    )


def blocks(theirs: str | Sequence[Any]) -> list[Block]:
    """Blocks of any kind; a text is one block."""
    return [TextBlock(theirs)] if isinstance(theirs, str) else [_block(block) for block in theirs]


def result(theirs: Any) -> ToolResultBlock:
    """A tool's result."""
    return ToolResultBlock(theirs.id, theirs.name, blocks(theirs.output), str(theirs.state))  # type: ignore[arg-type]


def data(theirs: TheirDataBlock) -> DataBlock:
    """A data block, with its bytes or its URL."""
    source, name = theirs.source, theirs.name or ""
    if isinstance(source, URLSource):
        return DataBlock(source.media_type, url=str(source.url), name=name, id=theirs.id)
    return DataBlock(source.media_type, base64.b64decode(source.data), name=name, id=theirs.id)


def outputs(ours: Sequence[Block]) -> list[Any]:
    """What a tool gave, as AgentScope's text and data blocks; tools give no others."""
    found: list[Any] = []
    for block in ours:
        if isinstance(block, TextBlock):
            found.append(TheirTextBlock(text=block.text))
        elif isinstance(block, DataBlock):
            found.append(their_data(block))
    return found


def their_data(ours: DataBlock, *, block_id: str = "") -> TheirDataBlock:
    """A data block of AgentScope."""
    if ours.data is None:
        source: Any = URLSource(url=ours.url, media_type=ours.media_type)
    else:
        source = Base64Source(data=base64.b64encode(ours.data).decode("ascii"), media_type=ours.media_type)
    identity = {"id": block_id} if block_id else {}
    return TheirDataBlock(source=source, name=ours.name or None, **identity)


def _block(theirs: Any) -> Block:
    kind = theirs.type
    if kind == "text":
        return TextBlock(theirs.text, theirs.id)
    if kind == "thinking":
        return ThinkingBlock(theirs.thinking, getattr(theirs, "signature", None) or "", theirs.id)
    if kind == "data":
        return data(theirs)
    if kind == "tool_call":
        return ToolCallBlock(theirs.id, theirs.name, raw_input=theirs.input)
    if kind == "tool_result":
        return result(theirs)
    if kind == "hint":
        return HintBlock(blocks(theirs.hint), theirs.source or "", theirs.id)
    raise TypeError(f"AgentScope's block of type {kind!r} has no counterpart")


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.astimezone(timezone.utc)
