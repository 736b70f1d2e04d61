"""Whether the kernel ended a process for want of memory: the counter of the control group, before and after."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_ROOT = "/sys/fs/cgroup"


class OomCounter:
    """Reads `oom_kill` of the guest's own control group (version 1 or 2); always 0 where there is none."""

    def __init__(self) -> None:
        self._descriptor = -1
        for path in _candidates():
            try:
                self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            if b"oom_kill " in self._content():
                return
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self) -> int:
        """How many processes have been killed so far."""
        for line in self._content().splitlines():
            name, _, value = line.partition(b" ")
            if name == b"oom_kill" and value.isdigit():
                return int(value)
        return 0

    def _content(self) -> bytes:
        if self._descriptor < 0:
            return b""
        try:
            return os.pread(self._descriptor, 4096, 0)
        except OSError:
            # The group was removed from under us; then nothing can be said.
            return b""


def _candidates() -> Iterable[str]:
    groups = {}
    try:
        with open("/proc/self/cgroup") as file:
            for line in file:
                _, controllers, path = line.rstrip("\n").split(":", 2)
                for controller in controllers.split(","):
                    groups[controller] = path
    except (OSError, ValueError):
        groups = {}
    # In a container the group that /proc names may be mounted at the root, so the root comes after it.
    for path in (groups.get("", "/"), "/"):
        yield f"{_ROOT}{path.rstrip('/')}/memory.events"
        yield f"{_ROOT}/unified{path.rstrip('/')}/memory.events"
    for path in (groups.get("memory", "/"), "/"):
        yield f"{_ROOT}/memory{path.rstrip('/')}/memory.oom_control"
