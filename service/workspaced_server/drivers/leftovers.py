"""Processes that a workspace on this machine left behind, found by the mark in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "WORKSPACED_WORKSPACE"


def kill_marked(key: str, *, patience: float = 5.0, proc: Path = Path("/proc")) -> int:
    """Kill each process whose environment says that it belongs to the workspace ``key``; returns how many there were.

    Looks again until none is found, since one may have forked meanwhile, and waits until they have ended. A process
    that cleared its environment is not found. Raises TimeoutError when some are still there after ``patience`` seconds.
    """
    mark = f"{MARK}={key}".encode()
    deadline = time.monotonic() + patience
    killed: set[int] = set()
    while True:
        alive = 0
        for pid in _marked(proc, mark):
            alive += 1
            if _kill(proc, pid, mark):
                killed.add(pid)
        if alive == 0:
            return len(killed)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{alive} processes of the workspace could not be ended")
        time.sleep(0.002)


def _marked(proc: Path, mark: bytes) -> Iterator[int]:
    for entry in proc.iterdir():
        if entry.name.isdigit() and _carries(proc, int(entry.name), mark):
            yield int(entry.name)


def _carries(proc: Path, pid: int, mark: bytes) -> bool:
    # Gone, another user's, or a zombie (whose environment is empty).
    with contextlib.suppress(OSError):
        return mark in (proc / str(pid) / "environ").read_bytes().split(b"\0")
    return False


def _kill(proc: Path, pid: int, mark: bytes) -> bool:
    # The descriptor pins the process: if the pid was given to another one meanwhile, the second look sees that.
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not _carries(proc, pid, mark):
            return False
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(process)
    return True
