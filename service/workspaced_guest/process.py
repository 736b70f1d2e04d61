"""One process: from its start to the end of its output and its exit, which is told once."""

from __future__ import annotations

import os
import signal
import time

from . import proctree, wire
from .fault import Fault, invalid
from .launch import Launch, set_size
from .output import Output
from .spawn import SpawnError
from .spec import Spec
from .stdin import Stdin
from .wire import PTY, STDERR, STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .attachment import Attachment
    from .journal import Journal
    from .loop import Timer
    from .processes import Processes

    Params = dict[str, Any]

# So few characters fit a frame however they are escaped.
_SMALL_TEXTS = 20_000
# Windows and buffers between the journal and a client.
_ON_THE_WAY_BYTES = 12 << 20
_EXIT_FOLLOWS_SECONDS = 0.003


class Process:
    """A process and everything that is kept of it. The loop's thread owns it."""

    def __init__(
        self, owner: Processes, process_id: str, spec: Spec, fingerprint: str, labels: dict[str, str], kind: str
    ) -> None:
        self.owner = owner
        self.loop = owner.guest.loop
        self.id = process_id
        self.spec = spec
        self.fingerprint = fingerprint
        self.labels = labels
        self.kind = kind
        self.pty = spec.pty
        self.pid = 0
        self.start_ticks = 0
        self.user = ""
        self.cwd = ""
        self.start_time = time.time()
        self.exit_time: float | None = None
        self.exit: Params | None = None
        self.leader_exited = False
        self.session_left = False
        self.output_incomplete = False
        self.drained = False
        self.recovered = False
        self.stop_reason: str | None = None
        self.killed_by_call = False
        self.status = 0
        self.usage: Params | None = None
        self.journal: Journal = owner.journals.open(process_id, spec.journal_limit, spec.drop)
        self.record = owner.state.record(process_id)
        self.outputs: list[Output] = []
        self.eofs: list[tuple[int, int]] = []
        self.stdin = Stdin(self, -1, False)
        self.attachments: list[Attachment] = []
        self.on_exit: list[Callable[[], None]] = []
        self.take_stdout: Callable[[int], None] | None = None
        self.stdout_open = False
        self.oom_before = 0
        self.timeout_timer: Timer | None = None
        self.disconnect_timer: Timer | None = None
        self.unattended = False
        self._drain_timer: Timer | None = None
        self.retention_timer: Timer | None = None

    def start(self) -> None:
        """Starts it, or raises Fault and leaves nothing behind."""
        try:
            launch = Launch(self.owner.guest, self.id, self.spec)
            self.user, self.cwd = launch.user, launch.cwd
            self._check_size()
            self.oom_before = self.owner.oom.read()
            try:
                self._write_record()
                launch.run()
            except (SpawnError, OSError) as error:
                raise launch.fault(error) from None
        except BaseException:
            self._forget()
            raise
        self.pid = launch.pid
        self._take(launch.fds)
        self.owner.reaper.expect(self.pid, self._on_reaped)
        leader = proctree.entry(self.pid)
        self.start_ticks = leader.start if leader is not None else 0
        try:
            self._write_record()
        except OSError as error:
            self.log(f"state of process {self.id}: {error}")
        for output in self.outputs:
            output.start()
        if self.spec.timeout is not None:
            self.timeout_timer = self.loop.call_later(self.spec.timeout, self._on_timeout)

    def _check_size(self) -> None:
        # Every answer about the process has to fit a frame.
        arguments = self.spec.arguments
        texts = (
            sum(map(len, arguments)) + len(self.cwd) + sum(map(len, self.labels)) + sum(map(len, self.labels.values()))
        )
        if texts + 4 * len(arguments) < _SMALL_TEXTS:
            return
        size = len(wire.encode_json(self.describe()))
        if size > wire.MAX_DESCRIPTION:
            raise invalid(
                f"command, directory and labels have {size} bytes as JSON, at most {wire.MAX_DESCRIPTION} are possible",
                field="shell" if self.spec.shell is not None else "argv",
                limit=wire.MAX_DESCRIPTION,
            )

    @property
    def tree_pid(self) -> int:
        """The pid by which the tree can be found; 0 once the kernel may have given it to a stranger."""
        return self.pid if not self.leader_exited or self.session_left else 0

    def describe(self) -> Params:
        """The process object of the protocol."""
        return {
            "process_id": self.id,
            "pid": self.pid,
            "state": "running" if self.exit is None else "exited",
            **self.spec.command(),
            "cwd": self.cwd,
            "user": self.user,
            "pty": {"cols": self.pty[0], "rows": self.pty[1]} if self.pty else None,
            "kind": self.kind,
            "start_time": self.start_time,
            "exit_time": self.exit_time,
            "first_offset": self.journal.first_offset,
            "next_offset": self.journal.next_offset,
            "stdin_open": self.stdin.open,
            "stdin_offset": self.stdin.accepted,
            "fingerprint": self.fingerprint,
            "labels": self.labels,
            "exit": self.exit,
        }

    def attach(self, attachment: Attachment) -> None:
        """Adds a reader."""
        self.attachments.append(attachment)
        if attachment.follow:
            self.unattended = False
        if self.disconnect_timer is not None:
            self.disconnect_timer.cancel()
            self.disconnect_timer = None

    def detach(self, attachment: Attachment, lost: bool) -> None:
        """Removes a reader; `lost` says that it went without the RESULT."""
        if attachment not in self.attachments:
            return
        self.attachments.remove(attachment)
        if self.exit is None:
            # One who only looked at what there was does not take over from the one who was lost.
            self.unattended = self.unattended or lost
            if self.unattended and not self.attachments and self.spec.kill_on_disconnect:
                self.disconnect_timer = self.loop.call_later(self.spec.disconnect_grace, self._on_disconnected)
            self.reader_advanced()

    def reader_advanced(self) -> None:
        """Makes room in a full journal when every reader is past its oldest part, and at least one is there."""
        journal = self.journal
        while journal.full and len(journal) > 1 and self.attachments:
            if any(self._needs_oldest(attachment) for attachment in self.attachments):
                return
            journal.forget_oldest()
        self._resume_outputs()

    def _needs_oldest(self, attachment: Attachment) -> bool:
        # What was sent last may be lost with the channel and asked for again; one who has all goes on in any case.
        offset = attachment.offset
        behind = offset if offset == self.journal.next_offset else offset - _ON_THE_WAY_BYTES
        return behind < self.journal.oldest_end

    def _resume_outputs(self) -> None:
        if not self.journal.full:
            for output in self.outputs:
                output.resume()

    def output_arrived(self) -> None:
        """The journal has grown."""
        for attachment in self.attachments:
            attachment.output_arrived()

    def output_ended(self, output: Output) -> None:
        """A pipe has no writer any more."""
        self._end_of(output.tag)
        self._finish_if_done()

    def stdout_ended(self) -> None:
        """The same for the standard output that a pipe.spawn stream takes."""
        self.stdout_open = False
        self._finish_if_done()

    def resize(self, cols: int, rows: int) -> None:
        """Changes the terminal's size; the program gets SIGWINCH. Raises NO_PTY or PROCESS_EXITED."""
        if self.pty is None:
            raise Fault("FAILED_PRECONDITION", "NO_PTY", "the process has no terminal", process_id=self.id)
        if self.exit is not None or self.outputs[0].ended:
            raise Fault("FAILED_PRECONDITION", "PROCESS_EXITED", "the process has exited", process_id=self.id)
        self.pty = (cols, rows)
        set_size(self.outputs[0].fd, cols, rows)

    def log(self, message: str) -> None:
        """A line in the guest's log."""
        self.owner.guest.log(message)

    def lose(self) -> None:
        """Ends the record of a process that a former guest started and nobody has watched since."""
        self.leader_exited = True
        self.output_incomplete = True
        self._set_exit("LOST", None, None)

    def forget(self) -> None:
        """Removes what is kept; the process has exited and nobody reads."""
        for timer in (self.retention_timer, self.timeout_timer, self.disconnect_timer, self._drain_timer):
            if timer is not None:
                timer.cancel()
        self._forget()

    def adopt(self, disconnect_due: float | None) -> None:
        """Goes on with a running process after the guest has replaced its program.

        `disconnect_due` is the monotonic time at which nobody attached means the end.
        """
        if not self.leader_exited:
            self.owner.reaper.expect(self.pid, self._on_reaped)
        for output in self.outputs:
            output.start()
        if self.exit is not None:
            return
        if self.spec.timeout is not None and self.stop_reason is None:
            left = self.start_time + self.spec.timeout - time.time()
            self.timeout_timer = self.loop.call_later(max(0.0, left), self._on_timeout)
        if disconnect_due is not None:
            self.unattended = True
            left = disconnect_due - time.monotonic()
            self.disconnect_timer = self.loop.call_later(max(0.0, left), self._on_disconnected)
        if self.leader_exited:
            self._start_drain()
            self._finish_if_done()

    def _forget(self) -> None:
        self.stdin.abandon()
        for output in self.outputs:
            output.close()
        self.journal.close()
        self.record.remove()

    def _take(self, ours: list[int]) -> None:
        if self.pty is not None:
            self.outputs = [Output(self, ours[0], PTY)]
            self.stdin = Stdin(self, ours[1], True)
            return
        self.outputs = [] if self.spec.merge else [Output(self, ours[1], STDERR)]
        if self.take_stdout is not None:
            self.stdout_open = True
            self.take_stdout(ours[0])
        else:
            self.outputs.insert(0, Output(self, ours[0], STDOUT))
        if self.spec.stdin:
            self.stdin = Stdin(self, ours[-1], False)

    def _on_timeout(self) -> None:
        self.timeout_timer = None
        if not self.leader_exited:
            self.owner.stopper.stop(self, "TIMED_OUT", self.spec.kill_grace)

    def _on_disconnected(self) -> None:
        self.disconnect_timer = None
        self.owner.stopper.stop(self, "CANCELLED", self.spec.kill_grace)

    def _on_reaped(self, status: int, usage: Any) -> None:
        self.leader_exited = True
        self.session_left = _group_lives(self.pid)
        self.status = status
        self.usage = {
            "user_seconds": usage.ru_utime,
            "system_seconds": usage.ru_stime,
            "max_rss_bytes": usage.ru_maxrss * 1024,
        }
        for output in self.outputs:
            output.resume()
        self._start_drain()
        self._finish_if_done()
        self.owner.stopper.leader_exited(self)

    def _start_drain(self) -> None:
        if self.exit is None:
            self._drain_timer = self.loop.call_later(self.spec.drain, self._on_drained)

    def _on_drained(self) -> None:
        self._drain_timer = None
        self.drained = True
        for output in self.outputs:
            if not output.ended:
                output.drain()
                if not output.ended:
                    self._end_of(output.tag)
        self._finish()

    def _end_of(self, tag: int) -> None:
        if tag not in (ended for ended, _ in self.eofs):
            self.eofs.append((tag, self.journal.next_offset))
            if self.leader_exited:
                self._pump_all()
            else:
                # Most often the exit follows at once, and is told together with the ends.
                self.loop.call_later(_EXIT_FOLLOWS_SECONDS, self._pump_all)

    def _pump_all(self) -> None:
        for attachment in list(self.attachments):
            attachment.pump()

    def _finish_if_done(self) -> None:
        if self.leader_exited and not self.stdout_open and all(output.ended for output in self.outputs):
            self._finish()

    def _finish(self) -> None:
        if self.exit is not None:
            return
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
        code = os.WEXITSTATUS(self.status) if os.WIFEXITED(self.status) else None
        number = os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None
        if self.stop_reason is not None:
            reason = self.stop_reason
        elif self._out_of_memory(code, number):
            reason = "OOM_KILLED"
        else:
            reason = "EXITED" if number is None else "SIGNALED"
        self._set_exit(reason, code, None if number is None else signal_name(number))

    def _out_of_memory(self, code: int | None, number: int | None) -> bool:
        # A shell reports a child that was killed as 137.
        if self.killed_by_call or (number != signal.SIGKILL and code != 128 + signal.SIGKILL):
            return False
        return self.owner.oom.read() > self.oom_before

    def _set_exit(self, reason: str, code: int | None, name: str | None) -> None:
        self.exit_time = time.time()
        self.exit = {
            "reason": reason,
            "code": code,
            "signal": name,
            "output_incomplete": self.output_incomplete,
            "drained": self.drained,
            "time": self.exit_time,
            "usage": self.usage,
        }
        try:
            self._write_record()
        except OSError as error:
            self.log(f"state of process {self.id}: {error}")
        self.stdin.abandon()
        for timer in (self.timeout_timer, self.disconnect_timer):
            if timer is not None:
                timer.cancel()
        for attachment in list(self.attachments):
            attachment.pump()
        callbacks, self.on_exit = self.on_exit, []
        for callback in callbacks:
            callback()
        self.owner.exited(self)

    def _write_record(self) -> None:
        # Nothing is started from it, and variables may be secrets that other programs of the user must not find there.
        self.record.write(
            {
                "instance": self.owner.guest.instance,
                "spec": {name: value for name, value in self.spec.raw.items() if name != "env"},
                "process": self.describe(),
                "start_ticks": self.start_ticks,
            }
        )


def _group_lives(pid: int) -> bool:
    # As long as a group or session has a member, its number is given to nobody else.
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_name(number: int) -> str:
    """The name of a signal, KILL for 9; a number without a name stays a number."""
    try:
        return signal.Signals(number).name[len("SIG") :]
    except ValueError:
        return str(number)
