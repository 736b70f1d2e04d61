"""Messages whose text is cut in the middle of a character, which JavaScript servers send."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import JSONRPCResponse
from pydantic import ValidationError

from workspaced_server.mcps.messages import message_of


def answer(text: bytes) -> dict[str, Any]:
    message = message_of(b'{"jsonrpc":"2.0","id":1,"result":{"text":"' + text + b'"}}')
    assert isinstance(message, JSONRPCResponse)
    return message.result


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (rb"half \ud83d", "half ?"),
        (rb"half \uDC00 and \ud83d\ude00", "half ? and 😀"),
        (rb"no half: \\ud83d", r"no half: \ud83d"),
        (b"cut \xf0\x9f", "cut \ufffd"),
        ("whole 😀 \ufffd".encode(), "whole 😀 \ufffd"),
    ],
)
def test_an_answer_with_half_a_character_is_an_answer(sent: bytes, read: str) -> None:
    assert answer(sent) == {"text": read}


@pytest.mark.parametrize(
    "data",
    [b"Server is ready.", b"\xff\xfe", b"{", rb'{"a":"\ud83d"}', rb'["\ud83d"]', b'{"a":' * 100_000 + b'"\\ud83d"'],
)
def test_what_is_no_message_stays_none(data: bytes) -> None:
    with pytest.raises(ValidationError):
        message_of(data)
