"""What does not fit into a model's context, and messages as JSON."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterable
from typing import Any

from tests.clients.data import Sink, bytes_of
from tests.clients.python_operations.registry import Args, Objects, chosen, operation
from workspaced import (
    Block,
    DataBlock,
    HintBlock,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)


def block_of(block: Block) -> dict[str, Any]:
    """BLOCK."""
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, DataBlock):
        made: dict[str, Any] = {"type": "data", "media_type": block.media_type, "name": block.name}
        if block.data is not None:
            return {**made, "data": base64.b64encode(block.data).decode()}
        return {**made, "url": block.url}
    if isinstance(block, ToolCallBlock):
        return {"type": "tool_call", "id": block.id, "name": block.name, "input": dict(block.input)}
    if isinstance(block, ToolResultBlock):
        output = [block_of(part) for part in block.output]
        return {"type": "tool_result", "id": block.id, "name": block.name, "output": output, "state": block.state}
    if isinstance(block, HintBlock):
        return {"type": "hint", "content": [block_of(part) for part in block.content], "source": block.source}
    return {"type": "thinking", "thinking": block.thinking, "signature": block.signature}


def message_of(message: Message) -> dict[str, Any]:
    """MESSAGE."""
    return {"role": message.role, "name": message.name, "content": [block_of(block) for block in message.content]}


async def _once(messages: Iterable[Any]) -> AsyncIterator[Any]:
    for message in messages:
        yield message


@operation
async def offload_context(objects: Objects, args: Args) -> dict[str, Any]:
    messages = _once(args["messages"]) if args.get("as_stream") else args["messages"]
    offload = objects.workspace(args).offload
    return {"path": await offload.context(args["session_id"], messages, **chosen(args, "request_id"))}


@operation
async def offload_tool_result(objects: Objects, args: Args) -> dict[str, Any]:
    offload = objects.workspace(args).offload
    return {"path": await offload.tool_result(args["session_id"], args["result"], **chosen(args, "request_id"))}


@operation
async def offload_data(objects: Objects, args: Args) -> dict[str, Any]:
    options = chosen(args, "media_type", "name", "sha256")
    block = await objects.workspace(args).offload.data(bytes_of(args["data"]), **options)
    return {"url": block.url, "media_type": block.media_type}


@operation
async def list_offloads(objects: Objects, args: Args) -> dict[str, Any]:
    found = await objects.workspace(args).offload.list(**chosen(args, "session_id", "kind"))
    return {"paths": sorted(info.path for info in found), "kinds": sorted(info.kind for info in found)}


@operation
async def read_offload(objects: Objects, args: Args) -> dict[str, Any]:
    sink = Sink()
    offload = objects.workspace(args).offload
    async with offload.read_stream(args["path"], **chosen(args, "offset", "length")) as chunks:
        async for chunk in chunks:
            sink.add(chunk)
    return sink.result()


@operation
async def read_messages(objects: Objects, args: Args) -> dict[str, Any]:
    offload = objects.workspace(args).offload
    async with offload.messages(args["path"], **chosen(args, "skip", "limit")) as messages:
        return {"messages": [message_of(message) async for message in messages]}
