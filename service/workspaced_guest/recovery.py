"""A process of a guest that was killed, from its record: checked like a request, since anybody may have written it."""

from __future__ import annotations

from . import params as read
from .fault import invalid
from .process import Process
from .spec import Spec, check_labels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .processes import Processes

    Params = dict[str, Any]

_MAX_TIME = 1e11
_MAX_USAGE = 1e18


def recovered(owner: Processes, process_id: str, record: Params) -> Process:
    """The process; without an exit when it ran. Raises Fault when the record makes no sense."""
    kept = read.mapping(record, "process")
    kind = read.text(kept, "kind", limit=16)
    if kind not in ("process", "pipe"):
        raise invalid("kind must be 'process' or 'pipe'", field="kind")
    spec = Spec(read.mapping(record, "spec"))
    exited = _exit(kept)
    pid, start_ticks = read.integer(kept, "pid", high=1 << 31), read.integer(record, "start_ticks")
    cwd, user = read.text(kept, "cwd"), read.text(kept, "user", limit=1024)
    start_time = read.number(kept, "start_time", high=_MAX_TIME)
    stdin_offset, next_offset = read.integer(kept, "stdin_offset"), read.integer(kept, "next_offset")
    process = Process(owner, process_id, spec, read.text(kept, "fingerprint", limit=1024), check_labels(kept), kind)
    process.pid, process.start_ticks = pid, start_ticks
    process.cwd, process.user = cwd, user
    process.start_time, process.exit = start_time, exited
    process.exit_time = None if exited is None else exited["time"]
    process.stdin.accepted = stdin_offset
    process.leader_exited = True
    process.journal.skip_to(next_offset)
    process.recovered = True
    return process


def _exit(kept: Params) -> Params | None:
    if kept.get("exit") is None:
        return None
    told = read.mapping(kept, "exit")
    return {
        "reason": read.text(told, "reason", limit=32),
        "code": read.optional_integer(told, "code", high=255),
        "signal": read.optional_text(told, "signal", limit=32),
        "output_incomplete": read.boolean(told, "output_incomplete"),
        "drained": read.boolean(told, "drained"),
        "time": read.number(told, "time", high=_MAX_TIME),
        "usage": None if told.get("usage") is None else _usage(read.mapping(told, "usage")),
    }


def _usage(told: Params) -> Params:
    return {
        "user_seconds": read.number(told, "user_seconds", high=_MAX_USAGE),
        "system_seconds": read.number(told, "system_seconds", high=_MAX_USAGE),
        "max_rss_bytes": read.integer(told, "max_rss_bytes"),
    }
