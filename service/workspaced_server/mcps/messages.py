"""Messages of MCP servers, also those of servers that cut a text in the middle of a character."""

from __future__ import annotations

import json

from mcp_types import JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError

# How a half of a character begins that JSON may hold and UTF-8 may not.
_HALVES = (b"\\ud", b"\\uD")


def message_of(data: bytes) -> JSONRPCMessage:
    """The message that one line or event holds; what is no character in it becomes a question mark or U+FFFD, because
    an answer that is dropped leaves its caller waiting. Raises pydantic's ValidationError.
    """
    try:
        return jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValidationError:
        mended = _mended(data)
        if mended is None:
            raise
        return jsonrpc_message_adapter.validate_json(mended, by_name=False)


def _mended(data: bytes) -> bytes | None:
    """The same JSON in UTF-8; None when nothing of it is to be mended."""
    text = data.decode("utf-8", "replace")
    if not text.lstrip().startswith("{"):
        return None
    if "\ufffd" not in text and not any(half in data for half in _HALVES):
        return None
    try:
        return json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return None
