"""Programs: run to their end, or live."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.clients.data import Sink, bytes_of, chunks_of, result_of
from tests.clients.python_operations.registry import Args, Objects, chosen, operation, pty, with_deadline
from workspaced import Exit, Gap, Output, Process, Result

_SPEC = ("env", "cwd", "user", "kill_grace", "process_id")
_STREAM = ("stdin", "overflow_policy", "journal_limit_bytes", "gaps")


@dataclass
class Handle:
    """A process, and what a read that did not come to its end has taken."""

    process: Process
    pending: list[Output | Gap] = field(default_factory=list)


def exit_of(end: Exit) -> dict[str, Any]:
    """EXIT."""
    return {
        "exit_code": end.exit_code,
        "signal": end.signal,
        "reason": str(end.reason),
        "output_incomplete": end.output_incomplete,
    }


def run_result(result: Result) -> dict[str, Any]:
    """The result of `run`."""
    return {
        "process_id": result.process_id,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "reason": str(result.reason),
        "stdout": result_of(result.stdout),
        "stderr": result_of(result.stderr),
        "truncated": result.truncated,
    }


@operation
async def run(objects: Objects, args: Args) -> dict[str, Any]:
    options = chosen(args, *_SPEC, "max_output_bytes", "disconnect_policy", "check", timeout="process_timeout")
    if "stdin" in args:
        options["stdin"] = bytes_of(args["stdin"])
    return run_result(await objects.workspace(args).run(args["command"], **options, **pty(args)))


@operation
async def exec(objects: Objects, args: Args) -> dict[str, Any]:  # noqa: A001 (the operation's name)
    options = chosen(args, *_SPEC, *_STREAM, "disconnect_policy", timeout="process_timeout")
    process = objects.workspace(args).exec(args["command"], **options, **pty(args))
    await process.__aenter__()
    objects.put(args, "process", Handle(process))
    return _standing(process)


@operation
async def start(objects: Objects, args: Args) -> dict[str, Any]:
    options = chosen(args, *_SPEC, *_STREAM, timeout="process_timeout")
    process = await objects.workspace(args).start(args["command"], **options, **pty(args))
    objects.put(args, "process", Handle(process))
    return {"process_id": process.process_id}


@operation
async def attach(objects: Objects, args: Args) -> dict[str, Any]:
    process = await objects.workspace(args).attach(args["process_id"], **chosen(args, "offset", "read_only", "gaps"))
    objects.put(args, "process", Handle(process))
    return _standing(process)


@operation
async def process(objects: Objects, args: Args) -> dict[str, Any]:
    objects.put(args, "process", Handle(objects.workspace(args).process(args["process_id"])))
    return {}


@operation
async def processes(objects: Objects, args: Args) -> dict[str, Any]:
    found = await objects.workspace(args).processes(**chosen(args, "state"))
    return {"ids": sorted(info.process_id for info in found)}


@operation
async def process_info(objects: Objects, args: Args) -> dict[str, Any]:
    info = await _handle(objects, args).process.info()
    return {
        "process_id": info.process_id,
        "state": str(info.state),
        "first_offset": info.first_offset,
        "next_offset": info.next_offset,
        "stdin_offset": info.stdin_offset,
        "stdin_open": info.stdin_open,
        "command": info.command if isinstance(info.command, str) else list(info.command),
        "exit": None if info.exit is None else exit_of(info.exit),
    }


@operation
async def write(objects: Objects, args: Args) -> dict[str, Any]:
    handle = _handle(objects, args)
    for chunk in chunks_of(args["data"]):
        await handle.process.write(chunk)
    return {"stdin_offset": handle.process.stdin_offset}


@operation
async def close_stdin(objects: Objects, args: Args) -> dict[str, Any]:
    await _handle(objects, args).process.close_stdin()
    return {}


@operation
async def resize(objects: Objects, args: Args) -> dict[str, Any]:
    await _handle(objects, args).process.resize(args["cols"], args["rows"])
    return {}


@with_deadline
async def signal(objects: Objects, args: Args) -> dict[str, Any]:
    options = chosen(args, "leader_only", "timeout")
    return {"signaled": await _handle(objects, args).process.signal(args["signal"], **options)}


@operation
async def read(objects: Objects, args: Args) -> dict[str, Any]:
    handle = _handle(objects, args)
    taken = Taken(args.get("until", "").encode(), args.get("bytes"))
    kept, handle.pending = handle.pending, []
    end = False
    try:
        for event in kept:
            taken.add(event)
        while not taken.enough:
            event = await anext(handle.process)
            kept.append(event)
            taken.add(event)
    except StopAsyncIteration:
        end = True
    except BaseException:
        handle.pending = kept
        raise
    return {**taken.result(), "offset": handle.process.offset, "end": end}


@with_deadline
async def wait(objects: Objects, args: Args) -> dict[str, Any]:
    return exit_of(await _handle(objects, args).process.wait(**chosen(args, "timeout")))


@operation
async def detach(objects: Objects, args: Args) -> dict[str, Any]:
    await _handle(objects, args).process.aclose()
    return {}


@operation
async def leave(objects: Objects, args: Args) -> dict[str, Any]:
    await _handle(objects, args).process.__aexit__(None, None, None)
    return {}


@dataclass
class Span:
    """Adjacent output of one stream."""

    stream: str
    offset: int
    size: int


class Taken:
    """What one `read` has taken, and whether that is enough."""

    def __init__(self, until: bytes, size: int | None) -> None:
        self._until = until
        self._size = size
        self._sinks = {"stdout": Sink(), "stderr": Sink(), "pty": Sink()}
        self._tails = dict.fromkeys(self._sinks, b"")
        self._order: list[Span] = []
        self._gaps: list[list[int]] = []
        self._total = 0
        self.enough = size == 0

    def add(self, event: Output | Gap) -> None:
        """Take an event."""
        if isinstance(event, Gap):
            self._gaps.append([event.start, event.end])
            return
        size = len(event.data)
        self._sinks[event.stream].add(event.data)
        last = self._order[-1] if self._order else Span("", 0, 0)
        if last.stream == event.stream and last.offset + last.size == event.offset:
            last.size += size
        else:
            self._order.append(Span(event.stream, event.offset, size))
        self._total += size
        if self._size is not None and self._total >= self._size:
            self.enough = True
        if self._until:
            seen = self._tails[event.stream] + event.data
            if self._until in seen:
                self.enough = True
            self._tails[event.stream] = seen[-len(self._until) :]

    def result(self) -> dict[str, Any]:
        """What `read` answers, but for where it stands."""
        return {name: sink.result() for name, sink in self._sinks.items()} | {
            "order": [[span.stream, span.offset, span.size] for span in self._order],
            "gaps": self._gaps,
        }


def _handle(objects: Objects, args: Args) -> Handle:
    return objects.get(args, "process", Handle)


def _standing(process: Process) -> dict[str, Any]:
    return {
        "process_id": process.process_id,
        "pid": process.pid,
        "existing": process.existing,
        "stdin_offset": process.stdin_offset,
    }
