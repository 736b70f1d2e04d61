"""Read: lines of a file, an image, or the output of a process."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from workspaced.v1 import process_pb2
from workspaced_guest import wire
from workspaced_server.errors import WorkspacedError
from workspaced_server.guest import answers
from workspaced_server.guest.stream import GuestStream
from workspaced_server.processes import process
from workspaced_server.tools.bash import ending
from workspaced_server.tools.guest import ask, explain
from workspaced_server.tools.lines import LINE_BYTES, numbered
from workspaced_server.tools.outcome import Call, Outcome, failed, said, text_block

PROCESS_SCHEME: Final = "process:///"
_OUTPUT_BYTES: Final = 128 * 1024
_UTF16: Final = ("fffe", "feff")


async def read(call: Call) -> Outcome:
    """Read it."""
    path = call.input["file_path"]
    offset, limit = call.input.get("offset", 1), call.input.get("limit", 2000)
    try:
        if path.startswith(PROCESS_SCHEME):
            return await _read_process(call, path.removeprefix(PROCESS_SCHEME), offset, limit)
        params = {"reader": call.reader, "path": path, "offset": offset, "limit": limit}
        data, result = await ask(call.handle, "tool.read", params)
    except WorkspacedError as error:
        return failed(explain(error, path.removeprefix(PROCESS_SCHEME)))
    match answers.text(result, "kind"):
        case "image":
            return await _image(call, path, data, result)
        case "binary":
            return failed(_binary(path, result))
        case "text":
            return _text(path, offset, data, result)
        case _:
            raise answers.malformed()


async def _image(call: Call, path: str, data: bytes, result: dict[str, Any]) -> Outcome:
    size = answers.integer(result, "size")
    if not answers.flag(result, "sent") or len(data) != size:
        return failed(f"{path} is an image of {size} bytes; at most 3 MiB can be shown. Make it smaller first.")
    return Outcome([await call.data(data, answers.text(result, "media_type"), path.rpartition("/")[2])])


def _binary(path: str, result: dict[str, Any]) -> str:
    text = f"{path} is a binary file of {answers.integer(result, 'size')} bytes and is not shown."
    if answers.text(result, "head").startswith(_UTF16):
        return f"{text} It looks like UTF-16 text: convert it, for example by iconv -f UTF-16 -t UTF-8."
    return f"{text} Use Bash with a program that knows its format."


def _text(path: str, offset: int, data: bytes, result: dict[str, Any]) -> Outcome:
    count = answers.integer(result, "lines")
    total = answers.integer(result, "total") if result.get("total") is not None else None
    first = result.get("first")
    if isinstance(first, bool) or not isinstance(first, int):
        raise answers.malformed()
    if not count:
        if not answers.integer(result, "size") or total == 0:
            return said(f"[{path} is empty]")
        return failed(f"{path} has {total} lines: there is no line {offset}.")
    text = numbered(data.split(b"\n"), first)
    if answers.flag(result, "more"):
        text += "\n" + _more(first, first + count - 1, total)
    return said(text)


def _more(first: int, last: int, total: int | None) -> str:
    of = "" if total is None else f" of {total}"
    return f"[lines {first} to {last}{of}; go on with offset {last + 1}]"


async def _read_process(call: Call, process_id: str, offset: int, limit: int) -> Outcome:
    params: dict[str, object] = {"process_id": process_id, "offset": 0, "follow": False}
    async with call.handle.guest.open("process.attach", params) as output:
        started = process(answers.record(answers.message(await output.receive()), "started"))
        window = _Window(offset, limit)
        await window.fill(output)
        ended = output.result.get("exit") is not None
    if not ended:
        state = f"[process {process_id} is running]"
    else:
        answer = await call.handle.guest.call("process.get", {"process_id": process_id})
        started = process(answers.record(answer, "process"))
        state = ending(started.exit) if started.state == process_pb2.PROCESS_STATE_EXITED else "[it has ended]"
    parts = [*window.parts(), state]
    return Outcome([text_block("\n".join(parts))])


class _Window:
    """The lines of an output that were asked for; memory is bounded by what is shown."""

    def __init__(self, offset: int, limit: int) -> None:
        self._first = max(offset, 1)
        self._limit = limit if offset > 0 else min(limit, -offset) if offset else limit
        self._from_end = -offset if offset < 0 else 0
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._count = 0
        self._rest = bytearray()
        self._lost = False

    async def fill(self, output: GuestStream) -> None:
        """Read an attachment to its end."""
        while (item := await output.receive()) is not None:
            if isinstance(item, bytes):
                if len(item) < wire.RECORD.size:
                    raise answers.malformed()
                for line, ended in _split(item[wire.RECORD.size :]):
                    self._rest += line[: max(0, LINE_BYTES + 4 - len(self._rest))]
                    if ended:
                        self._add()
            elif "gap" in item:
                self._lost = True
        if self._rest:
            self._add()

    def _add(self) -> None:
        line, self._rest = bytes(self._rest), bytearray()
        self._count += 1
        if self._from_end:
            self._lines.append(line)
            self._bytes += len(line)
            while len(self._lines) > self._from_end or self._bytes > _OUTPUT_BYTES:
                self._bytes -= len(self._lines.popleft())
        elif self._count >= self._first and len(self._lines) < self._limit and self._bytes < _OUTPUT_BYTES:
            self._lines.append(line)
            self._bytes += len(line) + 8

    def parts(self) -> Iterator[str]:
        """What to show, with a word on what is not."""
        if self._lost:
            yield "[the beginning of the output is no longer kept; lines are numbered from what is]"
        lines = list(self._lines)
        first = self._count - len(lines) + 1 if self._from_end else self._first
        lines = lines[: self._limit]
        if lines:
            yield numbered(lines, first)
        elif self._count:
            yield f"[{self._count} lines so far]"
        else:
            yield "[no output]"
        last = first + len(lines) - 1
        if lines and last < self._count:
            yield _more(first, last, self._count)


def _split(data: bytes) -> Iterator[tuple[bytes, bool]]:
    *whole, rest = data.split(b"\n")
    for line in whole:
        yield line, True
    if rest:
        yield rest, False
