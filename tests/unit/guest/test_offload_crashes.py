"""A guest that is killed at any of its steps: what comes next finds each call whole or not at all, and a repeated
request is carried out exactly once.

The operation runs in a child that ends at the n-th call of the operating system which changes something, before it,
after it, or with half of what was to be written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.parcels import parcel
from tests.support.scripted_stream import Handler, ScriptedGuest, ScriptedStream
from tests.unit.guest.test_offload import append, files, listed, read, sha, tool_result
from workspaced_guest import offload, offloadlog, parts

BEFORE = b'{"before":1}\n'
LINES = b"".join(b'{"n":%d,"text":"%s"}\n' % (number, b"x" * 50) for number in range(5))
BLOB = b"blob" * 1000
SENT = parcel(LINES, [(sha(BLOB) + ".bin", BLOB)])
_CHANGES = ("write", "pwrite", "ftruncate", "fsync", "fdatasync", "link", "unlink", "rename", "mkdir", "fchmod")
_DONE, _KILLED, _FAILED = 0, 17, 18


def run_until(step: int, how: str, operation: Callable[[], object]) -> int:
    """Run the operation in a child that is gone at its `step`-th change; its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        count = 0

        def hooked(change: Callable[..., Any], writes: bool) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                nonlocal count
                count += 1
                if count != step:
                    return change(*args, **kwargs)
                try:
                    if how == "after":
                        change(*args, **kwargs)
                    elif how == "half" and writes:
                        change(args[0], bytes(args[1])[: len(args[1]) // 2], *args[2:])
                finally:
                    os._exit(_KILLED)

            return call

        for name in _CHANGES:
            setattr(os, name, hooked(getattr(os, name), name in ("write", "pwrite")))
        operation()
        os._exit(_DONE)
    finally:
        os._exit(_FAILED)


@pytest.mark.parametrize("how", ["before", "half", "after"])
@pytest.mark.parametrize("request_id", [None, "r"])
def test_append(tmp_path: Path, how: str, request_id: str | None) -> None:
    assert every_step(tmp_path, how, offload.append, request_id, check_append) > 10


@pytest.mark.parametrize("how", ["before", "half", "after"])
@pytest.mark.parametrize("request_id", [None, "r"])
def test_tool_result(tmp_path: Path, how: str, request_id: str | None) -> None:
    assert every_step(tmp_path, how, offload.store_tool_result, request_id, check_tool_result) > 10


@pytest.mark.parametrize("how", ["before", "half", "after"])
def test_append_while_the_log_is_written_anew(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offloadlog, "_LIMIT_BYTES", 800)

    def check(guest: ScriptedGuest, request_id: str | None) -> None:
        log = Path(guest.workdir) / "sessions/s/.requests"
        check_append(guest, request_id)
        assert log.stat().st_size < 1600

    assert every_step(tmp_path, how, offload.append, "r", check, earlier=("x", "y", "z")) > 15


def every_step(
    directory: Path,
    how: str,
    handler: Handler,
    request_id: str | None,
    check: Callable[[ScriptedGuest, str | None], None],
    earlier: tuple[str, ...] = (),
) -> int:
    """Kill the operation at each step in turn, each time in a new place; how many steps there are."""
    for step in range(1, 1000):
        place = directory / str(step)
        place.mkdir()
        guest = ScriptedGuest.at(place)
        for request in earlier:
            tool_result(guest, b"", id="earlier", request_id=request)
        append(guest, BEFORE, request_id="before")

        def operation(guest: ScriptedGuest = guest) -> None:
            ScriptedStream([SENT]).run(handler, guest, session="s", id="t", request_id=request_id)

        code = run_until(step, how, operation)
        assert code in (_DONE, _KILLED)
        check(guest, request_id)
        parts.remove_expired(guest, 1e12)  # type: ignore[arg-type]
        left = [name for name in files(Path(guest.workdir)) if parts.is_part(Path(name).name)]
        assert left == [], "what a killed guest left of its parts has to be found again"
        if code == _DONE:
            return step
    raise AssertionError("it never ends")


def check_append(guest: ScriptedGuest, request_id: str | None) -> None:
    context = Path(guest.workdir) / "sessions/s/context.jsonl"
    seen = read(guest)
    assert seen in (BEFORE, BEFORE + LINES), "a reader sees whole calls only"
    assert next(entry["size"] for entry in listed(guest, kind="context")) == len(seen)
    result = ScriptedStream([SENT]).run(offload.append, guest, session="s", request_id=request_id)
    if request_id is None:
        assert context.read_bytes() == seen + LINES
    else:
        assert context.read_bytes() == BEFORE + LINES
        assert (result["start"], result["end"], result["count"]) == (len(BEFORE), len(BEFORE + LINES), 5)
    assert append(guest, BEFORE, request_id="before")["existing"]
    for line in context.read_bytes().splitlines():
        json.loads(line)
    for blob in (Path(guest.workdir) / "data").glob("[0-9a-f]*"):
        assert blob.read_bytes() == BLOB


def check_tool_result(guest: ScriptedGuest, request_id: str | None) -> None:
    session = Path(guest.workdir) / "sessions/s"
    present = sorted(path.name for path in session.glob("tool_result-*"))
    assert present in ([], ["tool_result-t.txt"])
    name = tool_result(guest, LINES, request_id=request_id)["name"]
    expected = "tool_result-t.txt" if request_id is not None or not present else "tool_result-t(1).txt"
    assert name == expected
    found = sorted(path.name for path in session.glob("tool_result-*"))
    assert found == sorted({*present, name})
    assert all((session / each).read_bytes() == LINES for each in found)
    assert read(guest) == BEFORE
