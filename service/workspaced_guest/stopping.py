"""Ending whole trees: TERM, then KILL after a grace, until nobody is left."""

from __future__ import annotations

import signal
import time

from .proctree import Table, signal_members

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from .loop import Loop, Timer
    from .process import Process
    from .proctree import Entry

# Orphans end in crowds; one look at the process table then serves them all.
_GATHER_SECONDS = 0.01
_KILL_AGAIN_SECONDS = 0.05
_KILL_AGAIN_MAX_SECONDS = 1.0


class _Stop:
    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.again = _KILL_AGAIN_SECONDS
        self.done: list[Callable[[], None]] = []


class Stopper:
    """Follows every tree that is being stopped, by events; its timers run only while there is one."""

    def __init__(self, loop: Loop, key: str, subreaper: bool) -> None:
        self._loop = loop
        self._key = key
        self._subreaper = subreaper
        self._stops: dict[Process, _Stop] = {}
        self._timer: Timer | None = None
        self._due = 0.0

    def stop(self, process: Process, reason: str, grace: float, done: Callable[[], None] | None = None) -> None:
        """TERM now, KILL after `grace` seconds; `done` when the exit is recorded and the tree is gone."""
        self.stop_all([process], reason, grace, done)

    def stop_all(
        self, processes: list[Process], reason: str, grace: float, done: Callable[[], None] | None = None
    ) -> None:
        """The same for many at once; `done` is called for each. A second stop can only bring the KILL forward."""
        deadline = time.monotonic() + grace
        table = Table()
        for process in processes:
            stop = self._stops.get(process)
            if stop is None:
                stop = self._stops[process] = _Stop(deadline)
                if process.exit is None and not process.leader_exited and process.stop_reason is None:
                    process.stop_reason = reason
                signal_members(self._tree(table, process), signal.SIGTERM)
            stop.deadline = min(stop.deadline, deadline)
            if done is not None:
                stop.done.append(done)
        self._schedule(min(deadline, time.monotonic() + _GATHER_SECONDS))

    def leader_exited(self, process: Process) -> None:
        """A leader has been reaped."""
        if process in self._stops:
            self._schedule(time.monotonic() + _GATHER_SECONDS)

    def orphans_ended(self) -> None:
        """Children that were not leaders have been reaped."""
        if self._stops:
            self._schedule(time.monotonic() + _GATHER_SECONDS)

    def signal(self, process: Process, number: int, whole_tree: bool) -> int:
        """Sends one signal; returns how many processes got it."""
        members = self._tree(Table(), process)
        if not whole_tree:
            members = [] if process.leader_exited else [entry for entry in members if entry.pid == process.pid]
        return len(signal_members(members, number))

    def _tree(self, table: Table, process: Process) -> list[Entry]:
        return table.tree(process.tree_pid, process.start_ticks, process.id, self._key)

    def _schedule(self, when: float) -> None:
        if self._timer is not None:
            if self._due <= when:
                return
            self._timer.cancel()
        self._due = when
        self._timer = self._loop.call_later(max(0.0, when - time.monotonic()), self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        table = Table()
        now = time.monotonic()
        following: list[float] = []
        for process, stop in list(self._stops.items()):
            members = self._tree(table, process)
            if members and now >= stop.deadline:
                reached = signal_members(members, signal.SIGKILL)
                # Who may not be signalled can't be waited for.
                members = [member for member in members if member.pid in reached]
                stop.deadline = now + stop.again
                stop.again = min(stop.again * 2, _KILL_AGAIN_MAX_SECONDS)
            if members:
                following.append(stop.deadline)
            elif process.exit is not None:
                del self._stops[process]
                for callback in stop.done:
                    callback()
            else:
                process.on_exit.append(self.orphans_ended)
        if following:
            self._schedule(min(following))
