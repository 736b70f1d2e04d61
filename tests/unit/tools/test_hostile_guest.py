"""A guest is untrusted: whatever it answers, a tool gives a result or the error that says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspaced.v1 import content_pb2
from workspaced_guest import wire
from workspaced_server.errors import WorkspacedError
from workspaced_server.partitions import Pair
from workspaced_server.stopping import Stops
from workspaced_server.tools.bash import bash
from workspaced_server.tools.edit import edit
from workspaced_server.tools.outcome import Call, Outcome
from workspaced_server.tools.read import read
from workspaced_server.tools.search import glob, grep
from workspaced_server.tools.write import write

pytestmark = pytest.mark.anyio

KEYS = [
    "kind", "size", "first", "lines", "total", "more", "media_type", "sent", "head", "refused", "count", "replaced",
    "line", "created", "shown", "files", "matches", "skipped", "stopped", "unreadable", "problem", "invalid",
    "started", "exit", "process_id", "state", "pid", "reason", "code", "signal",
]  # fmt: skip
WORDS = ["text", "image", "binary", "changed", "ambiguous", "time", "running", "EXITED", "TERM", "\udcff"]
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=5),
    lambda inner: st.dictionaries(st.sampled_from(KEYS), inner, max_size=6) | st.lists(inner, max_size=2),
    max_leaves=12,
)
RESULTS: Any = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8)
RECORD = wire.RECORD.pack(wire.STDOUT, 0)
ITEMS: Any = st.lists(st.binary(max_size=30) | st.binary(max_size=30).map(RECORD.__add__) | RESULTS, max_size=4)


class Guest:
    """Answers every operation with this."""

    def __init__(self, items: list[Any], result: dict[str, Any]) -> None:
        self._items = list(items)
        self.result = result

    def open(self, op: str, params: object, **_: object) -> Self:
        return self

    async def call(self, op: str, params: object) -> dict[str, Any]:
        return self.result

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def send(self, data: bytes) -> None: ...

    def end(self) -> None: ...

    async def receive(self) -> Any:
        return self._items.pop(0) if self._items else None


class Workspace:
    env: dict[str, str] = {}  # noqa: RUF012
    user = workdir = ""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        guest.hello = self  # type: ignore[attr-defined]
        self.uid = 1

    async def process_room(self) -> int | None:
        return None


Tool = Callable[[Call], Awaitable[Outcome]]
TOOLS: list[tuple[Tool, dict[str, Any]]] = [
    (read, {"file_path": "f"}),
    (read, {"file_path": "process:///p", "offset": -3}),
    (write, {"file_path": "f", "content": "x"}),
    (edit, {"file_path": "f", "old_string": "a", "new_string": "b"}),
    (glob, {"pattern": "*"}),
    (grep, {"pattern": "x"}),
    (bash, {"command": "true"}),
    (bash, {"command": "true", "run_in_background": True}),
]


@given(st.sampled_from(TOOLS), ITEMS, RESULTS)
async def test_nothing_else_is_raised(tool: tuple[Tool, dict[str, Any]], items: list[Any], result: Any) -> None:
    async def emit(event: object) -> None: ...

    async def data(content: bytes, media_type: str, name: str) -> content_pb2.ContentBlock:
        return content_pb2.ContentBlock(data=content_pb2.DataBlock(media_type=media_type, bytes=content, name=name))

    run, given_input = tool
    workspace = cast("Any", Workspace(Guest(items, result)))
    call = Call(workspace, Pair(), "c", given_input, None, False, emit, data, Stops())
    try:
        outcome = await run(call)
    except WorkspacedError as error:
        reason = error.reason
    else:
        reason = "GUEST_ERROR"
        for block in outcome.content:
            block.SerializeToString()
    assert reason == "GUEST_ERROR"
