"""All processes of the guest, and the operations on them."""

from __future__ import annotations

import os
import signal
import time

from . import params as read
from . import wire
from .attachment import Attachment
from .fault import Fault, invalid
from .journal import JournalStore
from .oom import OomCounter
from .pipe import Pipe
from .process import Process
from .proctree import Table, signal_members
from .reaper import Reaper, become_subreaper
from .spec import MAX_SECONDS, Spec, check_id, check_labels, window_size
from .state import State
from .stdin import StdinWriter
from .stopping import Stopper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .guest import Guest
    from .stream import Handler, Stream

    Params = dict[str, Any]

RETENTION_SECONDS = 600.0
_MAX_PROCESSES = 4096
_MAX_KILL_ROUNDS = 20
_STOP_REASONS = ("CANCELLED", "WORKSPACE_STOPPED")


class Processes:
    """Owns every process, running or kept."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.state = State(os.path.join(guest.state_dir, "processes"))
        self.journals = JournalStore(os.path.join(guest.state_dir, "journals"))
        self.oom = OomCounter()
        self.reaper = Reaper(guest.loop)
        self.stopper = Stopper(guest.loop, guest.key, become_subreaper())
        self.reaper.on_orphan = self.stopper.orphans_ended
        self.by_id: dict[str, Process] = {}
        self._kept: dict[str, Process] = {}  # those that have exited, the first first
        self.running = 0

    def start(
        self, process_id: str, spec: Spec, fingerprint: str, labels: dict[str, str], pipe: Pipe | None = None
    ) -> Process:
        """Starts a process or raises Fault; the id must be free."""
        if len(self.by_id) >= _MAX_PROCESSES and not self._make_room():
            raise Fault("RESOURCE_EXHAUSTED", "LIMIT_REACHED", "too many processes run", limit=_MAX_PROCESSES)
        process = Process(self, process_id, spec, fingerprint, labels, "process" if pipe is None else "pipe")
        if pipe is not None:
            process.take_stdout = pipe.take_stdout
        process.start()
        self.add(process)
        return process

    def add(self, process: Process) -> None:
        """Counts a process that runs."""
        self.by_id[process.id] = process
        self.running += 1

    def get(self, process_id: object) -> Process:
        """The process, or PROCESS_NOT_FOUND."""
        process = self.by_id.get(check_id(process_id))
        if process is None:
            raise Fault("NOT_FOUND", "PROCESS_NOT_FOUND", f"no process {process_id}", process_id=process_id)
        return process

    def exited(self, process: Process) -> None:
        """Starts the time for which an exited process is kept."""
        self.retained(process)
        self.guest.check_idle()

    def retained(self, process: Process) -> None:
        """Keeps a process that was found exited."""
        self.running -= 1
        self._retain(process)

    def recover(self) -> None:
        """Reads what an earlier guest left: exits are kept, the rest is LOST and what is left of it killed."""
        for process_id, record in self.state.load():
            self._recover(process_id, record)
        for process in sorted(self.by_id.values(), key=exit_order):
            if process.exit is not None:
                self.retained(process)
        lost = [process for process in self.by_id.values() if process.exit is None]
        for process in lost:
            process.lose()
        self.journals.clear()
        if lost:
            self._kill_left(lost)

    def _recover(self, process_id: str, record: Params) -> None:
        # Most guests start without a past.
        from .recovery import recovered

        try:
            process = recovered(self, check_id(process_id), record)
        except Fault as fault:
            self.state.discard(process_id + ".json", fault)
        else:
            self.add(process)

    def _kill_left(self, lost: list[Process], rounds: int = 0) -> None:
        table = Table()
        left = 0
        for process in lost:
            # Nobody has kept the number of a dead leader from being used again, so it says nothing here.
            pid = process.pid if table.lives(process.pid, process.start_ticks) else 0
            members = table.tree(pid, process.start_ticks, process.id, self.guest.key)
            left += len(signal_members(members, signal.SIGKILL))
        if left and rounds < _MAX_KILL_ROUNDS:
            # What was forked meanwhile is found again until nothing is.
            self.guest.loop.call_later(0.05 * (1 + rounds), self._kill_left, lost, rounds + 1)

    def _make_room(self) -> bool:
        """Forgets the exited process that can be spared first; False when there is none."""
        for process in self._kept.values():
            if not _in_use(process):
                self._drop(process)
                return True
        return False

    def _retain(self, process: Process) -> None:
        self._kept[process.id] = process
        exit_time = process.exit_time if process.exit_time is not None else time.time()
        left = exit_time + RETENTION_SECONDS - time.time()
        process.retention_timer = self.guest.loop.call_later(
            min(max(0.0, left), RETENTION_SECONDS), self._expire, process
        )

    def _expire(self, process: Process) -> None:
        if _in_use(process):
            process.retention_timer = self.guest.loop.call_later(RETENTION_SECONDS, self._expire, process)
            return
        self._drop(process)

    def _drop(self, process: Process) -> None:
        del self.by_id[process.id]
        del self._kept[process.id]
        process.forget()


def exit_order(process: Process) -> float:
    """A key to sort processes by: when they exited, those that run last."""
    return float("inf") if process.exit_time is None else process.exit_time


def _in_use(process: Process) -> bool:
    return bool(process.attachments) or any(not output.ended for output in process.outputs)


def _new_id() -> str:
    return "p-" + os.urandom(8).hex()


def _existing(guest: Guest, process_id: str, fingerprint: str, kind: str) -> Process | None:
    process = guest.processes.by_id.get(process_id)
    if process is not None and (process.fingerprint != fingerprint or process.kind != kind):
        raise Fault(
            "ALREADY_EXISTS",
            "PROCESS_EXISTS",
            f"process {process_id} was started with another spec",
            process_id=process_id,
        )
    return process


def _start(guest: Guest, stream: Stream, params: Params) -> None:
    process_id = _new_id() if params.get("process_id") is None else check_id(params["process_id"])
    spec = Spec(read.mapping(params, "spec"))
    fingerprint = read.text(params, "fingerprint", "", limit=1024)
    labels = check_labels(params)
    attach = params.get("attach")
    offset = -1 if attach is None else _offset(read.mapping(params, "attach"))
    process = _existing(guest, process_id, fingerprint, "process")
    existing = process is not None
    if process is None:
        most = read.optional_integer(params, "max_running", 0)
        if most is not None and guest.processes.running >= most:
            message = "the owner's quota of running processes is used up: end one first"
            raise Fault("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", message, limit=most)
        process = guest.processes.start(process_id, spec, fingerprint, labels)
    answer = {"started": process.describe(), "existing": existing}
    if attach is None:
        stream.result(answer)
    else:
        _attach_to(process, stream, offset, True, answer)


def _attach(guest: Guest, stream: Stream, params: Params) -> None:
    process = guest.processes.get(params.get("process_id"))
    answer: Params = {"started": process.describe(), "existing": True}
    _attach_to(process, stream, _offset(params), read.boolean(params, "follow", True), answer)


def _offset(params: Params) -> int:
    return read.integer(params, "offset", 0, low=-1)


def _attach_to(process: Process, stream: Stream, offset: int, follow: bool, answer: Params) -> None:
    end = process.journal.next_offset
    if offset == -1:
        offset = end
    elif offset > end and not process.recovered:
        raise Fault("OUT_OF_RANGE", "OFFSET_INVALID", "the journal ends before this offset", next_offset=end)
    stream.message(answer)
    attachment = Attachment(process, stream, offset, follow)
    process.attach(attachment)
    attachment.pump()


def _stdin(guest: Guest, stream: Stream, params: Params) -> None:
    process = guest.processes.get(params.get("process_id"))
    if process.kind == "pipe":
        raise Fault("FAILED_PRECONDITION", "STDIN_CLOSED", "standard input belongs to the stream that started it")
    offset = read.integer(params, "offset", 0)
    if not process.stdin.accepted and process.stdin.closed:
        raise process.stdin.closed_fault()
    StdinWriter(process.stdin, stream, offset)


def _get(guest: Guest, stream: Stream, params: Params) -> None:
    stream.result({"process": guest.processes.get(params.get("process_id")).describe()})


def _list(guest: Guest, stream: Stream, params: Params) -> None:
    size = read.integer(params, "page_size", 100, 0, 1000) or 100
    after = _page_start(read.text(params, "page_token", ""))
    state = read.optional_text(params, "state")
    if state not in (None, "running", "exited"):
        raise invalid("state must be 'running' or 'exited'", field="state")
    found = sorted(
        (process.start_time, process.id)
        for process in guest.processes.by_id.values()
        if (state is None or (process.exit is None) is (state == "running"))
    )
    found = [key for key in found if key > after]
    processes: list[Params] = []
    room = wire.MAX_DESCRIPTION
    for _, process_id in found[:size]:
        process = guest.processes.by_id[process_id].describe()
        room -= len(wire.encode_json(process)) + 1
        if processes and room < 0:
            break
        processes.append(process)
    last = found[len(processes) - 1] if len(processes) < len(found) else None
    token = f"{last[0]!r}/{last[1]}" if last is not None else ""
    stream.result({"processes": processes, "next_page_token": token})


def _page_start(token: str) -> tuple[float, str]:
    if not token:
        return 0.0, ""
    when, _, process_id = token.partition("/")
    try:
        return float(when), check_id(process_id)
    except (ValueError, Fault):
        raise invalid("page_token is not one of ours", field="page_token") from None


def _signal(guest: Guest, stream: Stream, params: Params) -> None:
    process = guest.processes.get(params.get("process_id"))
    name = read.text(params, "signal", limit=32)
    scope = read.text(params, "scope", "tree", limit=16)
    number = getattr(signal, "SIG" + name, None) if name.isalnum() else None
    if not isinstance(number, signal.Signals):
        raise invalid(f"no signal {name}", field="signal")
    if scope not in ("tree", "leader"):
        raise invalid("scope must be 'tree' or 'leader'", field="scope")
    if number == signal.SIGKILL:
        process.killed_by_call = True
    signaled = guest.processes.stopper.signal(process, number, scope == "tree")
    if not signaled and process.exit is not None:
        raise Fault("FAILED_PRECONDITION", "PROCESS_EXITED", "the process has exited", process_id=process.id)
    stream.result({"signaled": signaled})


def _resize(guest: Guest, stream: Stream, params: Params) -> None:
    process = guest.processes.get(params.get("process_id"))
    process.resize(*window_size(params))
    stream.result({})


def _when_exited(process: Process, stream: Stream, callback: Callable[[], None]) -> None:
    if process.exit is not None:
        callback()
        return

    def forget() -> None:
        if callback in process.on_exit:
            process.on_exit.remove(callback)

    process.on_exit.append(callback)
    stream.on_close = forget


def _wait(guest: Guest, stream: Stream, params: Params) -> None:
    process = guest.processes.get(params.get("process_id"))
    _when_exited(process, stream, lambda: stream.result({"exit": process.exit, "process": process.describe()}))


def _grace(params: Params) -> float:
    return read.number(params, "grace", 5.0, high=MAX_SECONDS)


def _reason(params: Params, default: str) -> str:
    reason = read.text(params, "reason", default, limit=32)
    if reason not in _STOP_REASONS:
        raise invalid(f"reason must be one of {', '.join(_STOP_REASONS)}", field="reason")
    return reason


def _stop(guest: Guest, stream: Stream, params: Params) -> None:
    process = guest.processes.get(params.get("process_id"))
    guest.processes.stopper.stop(
        process, _reason(params, "CANCELLED"), _grace(params), lambda: stream.result({"exit": process.exit})
    )


def _stop_all(guest: Guest, stream: Stream, params: Params) -> None:
    stop_all(guest, _reason(params, "WORKSPACE_STOPPED"), _grace(params), lambda n: stream.result({"stopped": n}))


def stop_all(guest: Guest, reason: str, grace: float, done: Callable[[int], None]) -> None:
    """Stops every tree, also what exited processes left; `done` gets the number of processes that were running."""
    processes = list(guest.processes.by_id.values())
    running = sum(process.exit is None for process in processes)
    left = len(processes)

    def one_done() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            # After the attachments have been told, which happens in this round of the loop.
            guest.loop.call_soon(done, running)

    if not processes:
        done(0)
        return
    guest.processes.stopper.stop_all(processes, reason, grace, one_done)


def _pipe_spawn(guest: Guest, stream: Stream, params: Params) -> None:
    process_id = _new_id() if params.get("process_id") is None else check_id(params["process_id"])
    if process_id in guest.processes.by_id:
        raise Fault("ALREADY_EXISTS", "PROCESS_EXISTS", f"process {process_id} exists", process_id=process_id)
    raw = dict(read.mapping(params, "spec"))
    if raw.get("pty") is not None:
        raise invalid("a pipe has no terminal", field="pty")
    raw["stdin"] = True
    pipe = Pipe(stream)
    process = guest.processes.start(process_id, Spec(raw), "", check_labels(params), pipe)
    pipe.connect(process)


PROCESS_OPS: dict[str, Handler] = {
    "process.start": _start,
    "process.attach": _attach,
    "process.stdin": _stdin,
    "process.get": _get,
    "process.list": _list,
    "process.signal": _signal,
    "process.resize": _resize,
    "process.wait": _wait,
    "process.stop": _stop,
    "process.stop_all": _stop_all,
    "pipe.spawn": _pipe_spawn,
}
