"""Control groups for sandboxes that are processes of this machine: limits of cpu, memory and pids,
in either version of cgroups.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = ("cpu", "memory", "pids")
_PERIOD_US = 100_000
_PARENT = "workspaced"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a group may use; 0 is no limit. CPU in thousandths of a core."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    pids: int = 0

    def controllers(self) -> frozenset[str]:
        """The controllers that are needed to enforce these limits."""
        wanted = {"cpu": self.cpu_millis, "memory": self.memory_bytes, "pids": self.pids}
        return frozenset(name for name, limit in wanted.items() if limit)


class Cgroups:
    """The part of this machine's hierarchy in which this process may make groups.

    ``directories`` maps each usable controller to the directory in which groups are made; with version 2 it is one and
    the same. Methods block for as long as a few system calls take.
    """

    def __init__(self, version: int, directories: Mapping[str, Path]) -> None:
        self.version = version
        self._directories = dict(directories)

    @property
    def controllers(self) -> frozenset[str]:
        """Controllers that can be used: some of ``cpu``, ``memory`` and ``pids``."""
        return frozenset(self._directories)

    @classmethod
    def detect(cls, proc: Path = Path("/proc/self")) -> Cgroups:
        """Find what this process may use. Never raises for what is missing: ``controllers`` is empty then.

        With version 2 a group that has processes cannot enable controllers for its children. When this process is the
        only one in its group, it moves to a leaf of its own, as delegation asks for.
        """
        own = _own_groups(proc / "cgroup")
        version1: dict[str, Path] = {}
        unified: Path | None = None
        for mount in _mounts(proc / "mountinfo"):
            if mount.kind == "cgroup2" and "" in own:
                unified = _below(mount, own[""])
            for controller in CONTROLLERS:
                if mount.kind == "cgroup" and controller in mount.options and controller in own:
                    directory = _below(mount, own[controller])
                    if os.access(directory, os.W_OK):
                        version1[controller] = directory
        if version1:
            return cls(1, version1)
        if unified is not None and os.access(unified, os.W_OK):
            return cls(2, dict.fromkeys(_delegate(unified), unified))
        return cls(2, {})

    def create(self, name: str, limits: Limits) -> list[Path]:
        """Make the group ``name`` with these limits, or set them on the one there is.

        Returns the directories. A process enters by writing its pid to ``cgroup.procs`` in each. Raises OSError;
        nothing new is left then.
        """
        wanted = limits.controllers()
        made: list[Path] = []
        used: list[Path] = []
        try:
            for parent in dict.fromkeys(self._directories[controller] for controller in sorted(wanted)):
                base = parent / _PARENT
                if self.version == 2:
                    base.mkdir(exist_ok=True)
                    (base / "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in sorted(self.controllers)))
                group = base / name
                try:
                    group.mkdir(parents=True)
                    made.append(group)
                except FileExistsError:
                    pass
                used.append(group)
            for controller in wanted:
                group = self._directories[controller] / _PARENT / name
                for setting in _settings(self.version, controller, limits):
                    setting.apply(group)
        except OSError:
            for group in made:
                group.rmdir()
            raise
        return used

    def remove(self, name: str, *, patience: float = 2.0) -> None:
        """Kill what is in the group ``name`` and remove it. Idempotent.

        Raises OSError (EBUSY) after ``patience`` seconds.
        """
        for parent in set(self._directories.values()):
            _remove(parent / _PARENT / name, patience)


@dataclass(frozen=True, slots=True)
class _Setting:
    file: str
    value: str
    optional: bool = False  # accounting of swap may be switched off in the kernel: there is no file then

    def apply(self, group: Path) -> None:
        file = group / self.file
        if not self.optional or file.exists():
            file.write_text(self.value)


def _settings(version: int, controller: str, limits: Limits) -> Iterator[_Setting]:
    if controller == "pids":
        yield _Setting("pids.max", str(limits.pids))
    elif controller == "cpu":
        quota = max(1000, limits.cpu_millis * _PERIOD_US // 1000)
        if version == 2:
            yield _Setting("cpu.max", f"{quota} {_PERIOD_US}")
        else:
            yield _Setting("cpu.cfs_period_us", str(_PERIOD_US))
            yield _Setting("cpu.cfs_quota_us", str(quota))
    elif version == 2:
        yield _Setting("memory.max", str(limits.memory_bytes))
        yield _Setting("memory.swap.max", "0", optional=True)
    else:
        yield _Setting("memory.limit_in_bytes", str(limits.memory_bytes))
        yield _Setting("memory.memsw.limit_in_bytes", str(limits.memory_bytes), optional=True)


def _remove(group: Path, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            for pid in (group / "cgroup.procs").read_text().split():
                _kill(int(pid))
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno == errno.ENODEV:  # removed while it was read
                return
            if error.errno not in (errno.EBUSY, errno.ENOTEMPTY) or time.monotonic() > deadline:
                raise
            for child in _children(group):
                _remove(child, patience)
            time.sleep(0.005)
        else:
            return


def _children(group: Path) -> list[Path]:
    try:
        return [entry for entry in group.iterdir() if entry.is_dir()]
    except FileNotFoundError:
        return []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@dataclass(frozen=True, slots=True)
class _Mount:
    kind: str
    root: str
    point: Path
    options: frozenset[str]


def _mounts(mountinfo: Path) -> Iterator[_Mount]:
    # Fields 4 and 5 are the root and the mount point; after the dash come type, source and options.
    for line in mountinfo.read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields, tail = left.split(), right.split()
        if len(fields) >= 5 and len(tail) >= 3 and tail[0] in ("cgroup", "cgroup2"):
            yield _Mount(tail[0], fields[3], Path(fields[4]), frozenset(tail[2].split(",")))


def _own_groups(cgroup: Path) -> dict[str, str]:
    groups: dict[str, str] = {}
    for line in cgroup.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path
    return groups


def _below(mount: _Mount, group: str) -> Path:
    root = mount.root.rstrip("/")
    if root and (group == root or group.startswith(root + "/")):
        group = group[len(root) :]
    return mount.point / group.lstrip("/")


def _delegate(group: Path) -> list[str]:
    """Make the controllers of a version 2 group available to its children; returns those that are."""
    available = [c for c in CONTROLLERS if c in (group / "cgroup.controllers").read_text().split()]
    control = group / "cgroup.subtree_control"
    missing = [c for c in available if c not in control.read_text().split()]
    if missing:
        enable = " ".join(f"+{c}" for c in missing)
        try:
            control.write_text(enable)
        except OSError as error:
            if error.errno != errno.EBUSY or (group / "cgroup.procs").read_text().split() != [str(os.getpid())]:
                return [c for c in available if c not in missing]
            leaf = group / "workspaced-server"
            leaf.mkdir(exist_ok=True)
            (leaf / "cgroup.procs").write_text(str(os.getpid()))
            control.write_text(enable)
    return available
