"""Collecting children that have ended: our own, and the orphans that a subreaper inherits."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .loop import Loop

    OnExit = Callable[[int, Any], None]


class Reaper:
    """Calls back with the wait status and the resource usage of each child that was registered."""

    def __init__(self, loop: Loop) -> None:
        self._expected: dict[int, OnExit] = {}
        self.on_orphan: Callable[[], None] | None = None
        loop.on_signal(signal.SIGCHLD, self.reap)

    def expect(self, pid: int, callback: OnExit) -> None:
        """Must be called before the loop runs on after the fork."""
        self._expected[pid] = callback

    def reap(self) -> None:
        """Collects all that have ended."""
        orphans = False
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            callback = self._expected.pop(pid, None)
            if callback is None:
                orphans = True
            else:
                try:
                    callback(status, usage)
                except Exception:  # noqa: BLE001  (reported, and the others that have ended are collected)
                    sys.excepthook(*sys.exc_info())
        if orphans and self.on_orphan is not None:
            self.on_orphan()


def become_subreaper() -> bool:
    """Makes orphans below this process its children; False where the system can't."""
    try:
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        # PR_SET_CHILD_SUBREAPER; M_ARENA_MAX keeps threads from having an arena of memory each.
        done: bool = library.prctl(36, 1, 0, 0, 0) == 0
        mallopt = getattr(library, "mallopt", None)
        if mallopt is not None:
            mallopt(-8, 2)
        return done
    except (ImportError, OSError, AttributeError):
        return False
