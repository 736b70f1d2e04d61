"""Rules on messages and their content blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from workspaced.v1 import content_pb2 as pb
from workspaced_server.api.validation import Violations

_NAME: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,127}"
_MEDIA_TYPE: Final = re.compile(rf"{_NAME}/{_NAME}[^\r\n\0]{{0,255}}")
MEDIA_TYPE_RULE: Final = "must be a media type such as image/png"
_ROLES: Final = frozenset((pb.ROLE_USER, pb.ROLE_ASSISTANT, pb.ROLE_SYSTEM))
_STATES: Final = frozenset(pb.ToolResultState.values())
_YEAR_1: Final = -62_135_596_800
_YEAR_10000: Final = 253_402_300_800


def check_message(message: pb.Message, field: str, found: Violations) -> None:
    """Note what is wrong with a message. Blocks of an unknown kind are no mistake."""
    found.require(message.role in _ROLES, f"{field}.role", "must be ROLE_USER, ROLE_ASSISTANT or ROLE_SYSTEM")
    time = message.create_time
    if not (_YEAR_1 <= time.seconds < _YEAR_10000 and 0 <= time.nanos < 1_000_000_000):
        found.add(f"{field}.create_time", "must be a time in the years 1 to 9999")
    for number, block in enumerate(message.content):
        _check_block(block, f"{field}.content[{number}]", found)


def check_tool_result(block: pb.ToolResultBlock, field: str, found: Violations) -> None:
    """Note what is wrong with the result of a tool call."""
    found.require(bool(block.id), f"{field}.id", "must not be empty: it is the id of the tool call")
    found.require(bool(block.name), f"{field}.name", "must not be empty: it is the name of the tool")
    found.require(block.state in _STATES, f"{field}.state", "is no value of ToolResultState that this server knows")
    _check_parts(block.output, f"{field}.output", found)


def is_media_type(value: str) -> bool:
    """Whether a text is a media type, with parameters or without."""
    return _MEDIA_TYPE.fullmatch(value) is not None


def _check_block(block: pb.ContentBlock, field: str, found: Violations) -> None:
    match block.WhichOneof("block"):
        case "data":
            _check_data(block.data, f"{field}.data", found)
        case "tool_call":
            call = block.tool_call
            found.require(bool(call.id), f"{field}.tool_call.id", "must not be empty: the result refers to it")
            found.require(bool(call.name), f"{field}.tool_call.name", "must not be empty: it is the name of the tool")
        case "tool_result":
            check_tool_result(block.tool_result, f"{field}.tool_result", found)
        case "hint":
            _check_parts(block.hint.content, f"{field}.hint.content", found)


def _check_parts(blocks: Iterable[pb.ContentBlock], field: str, found: Violations) -> None:
    for number, block in enumerate(blocks):
        kind = block.WhichOneof("block")
        if kind == "data":
            _check_data(block.data, f"{field}[{number}].data", found)
        elif kind not in ("text", None):
            found.add(f"{field}[{number}]", "must be a text or a data block")


def _check_data(block: pb.DataBlock, field: str, found: Violations) -> None:
    found.require(is_media_type(block.media_type), f"{field}.media_type", MEDIA_TYPE_RULE)
    if block.WhichOneof("source") is None:
        found.add(field, "needs a source: set bytes or url")
    elif block.WhichOneof("source") == "url" and not block.url:
        found.add(f"{field}.url", "must not be empty")
