"""What fits a message, and what is stored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.support.real_guest import Handle
from workspaced.v1 import content_pb2, offload_pb2
from workspaced_server.errors import WorkspacedError
from workspaced_server.partitions import Pair
from workspaced_server.tools.outcome import Outcome, failed, said, text_block
from workspaced_server.tools.overflow import Overflow

pytestmark = pytest.mark.anyio

MESSAGE = 100_000 + (16 << 10)


@dataclass
class Stored:
    """Keeps what is stored."""

    results: list[content_pb2.ToolResultBlock] = field(default_factory=list)
    datas: list[bytes] = field(default_factory=list)

    async def tool_result(
        self, handle: object, session_id: str | None, block: content_pb2.ToolResultBlock
    ) -> offload_pb2.Offload:
        self.results.append(block)
        name = f"/w/sessions/{session_id}/tool_result-{block.id}.txt"
        return offload_pb2.Offload(path=name, url="workspace:///x", size_bytes=7, media_type="text/plain")

    async def data(
        self, handle: object, data: bytes, media_type: str, name: str = ""
    ) -> tuple[offload_pb2.Offload, content_pb2.DataBlock]:
        self.datas.append(data)
        url = f"workspace:///data/{hashlib.sha256(data).hexdigest()}"
        return offload_pb2.Offload(url=url), content_pb2.DataBlock(media_type=media_type, url=url, name=name)


def overflow(stored: Stored, limit: int) -> Overflow:
    return Overflow(stored, cast("Handle", None), Pair(None, "s"), "c", "Tool", limit, MESSAGE)


async def test_what_fits_stays_as_it_is() -> None:
    stored = Stored()
    for limit in (0, 10):
        result = await overflow(stored, limit).result(said("0123456789"))
        assert [block.text.text for block in result.content] == ["0123456789"]
        assert (result.state, result.is_error) == (content_pb2.TOOL_RESULT_STATE_SUCCESS, False)
        assert not result.HasField("offloaded")
        assert (await overflow(stored, limit).result(failed("x"))).state == content_pb2.TOOL_RESULT_STATE_ERROR
    block = await overflow(stored, 10).data(b"x" * 10, "a/b", "n")
    assert (block.data.bytes, block.data.name) == (b"x" * 10, "n")
    assert stored == Stored()


async def test_characters_are_not_cut() -> None:
    stored = Stored()
    whole = "€" * 1000
    result = await overflow(stored, 101).result(said(whole))
    head, note, tail = result.content[0].text.text.split("\n")
    assert head == tail == "€" * 16
    assert note == (
        "[2904 bytes left out here. The whole output is in /w/sessions/s/tool_result-c.txt: use Read or Grep on it.]"
    )
    [block] = stored.results
    assert (block.id, block.name, block.output[0].text.text) == ("c", "Tool", whole)
    assert result.offloaded.path == "/w/sessions/s/tool_result-c.txt"


async def test_several_texts_are_one_when_stored() -> None:
    stored = Stored()
    picture = content_pb2.ContentBlock(data=content_pb2.DataBlock(media_type="image/png", bytes=b"p"))
    outcome = Outcome([text_block("a" * 60), picture, text_block("b" * 60)])
    result = await overflow(stored, 100).result(outcome)
    assert [block.WhichOneof("block") for block in result.content] == ["text", "data"]
    assert result.content[0].text.text.startswith("a" * 50 + "\n[")
    assert stored.results[0].output[0].text.text == "a" * 60 + "\n" + "b" * 60


async def test_data_that_does_not_fit_together_is_stored_the_largest_first() -> None:
    stored = Stored()
    rule = overflow(stored, 60_000)
    blocks = [await rule.data(bytes([n]) * size, "a/b", "") for n, size in enumerate((30_000, 50_000, 40_000))]
    result = await rule.result(Outcome(blocks))
    assert [block.data.WhichOneof("source") for block in result.content] == ["bytes", "url", "bytes"]
    assert stored.datas == [b"\1" * 50_000]
    large = await rule.data(b"x" * 60_001, "a/b", "")
    assert large.data.url


async def test_structured_output_that_is_too_large_is_left_out_with_a_word() -> None:
    structured: dict[str, Any] = {"text": "x" * 200_000}
    result = await overflow(Stored(), 1000).result(Outcome([text_block("x" * 2000)], structured=structured))
    assert not result.HasField("structured")
    assert result.content[-1].text.text == "[the structured output is too large for a message and is left out]"


async def test_without_a_limit_it_is_refused() -> None:
    rule = overflow(Stored(), 0)
    with pytest.raises(WorkspacedError) as caught:
        await rule.result(said("x" * 200_000))
    assert caught.value.reason == "TOOL_RESULT_TOO_LARGE"
    with pytest.raises(WorkspacedError) as caught:
        await rule.data(b"x" * 200_000, "a/b", "")
    assert caught.value.reason == "TOOL_RESULT_TOO_LARGE"
