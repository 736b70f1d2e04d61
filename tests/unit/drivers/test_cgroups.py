"""Control groups: version 2 on a tree of plain files, whatever this machine has on real groups."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from workspaced_server.drivers.cgroups import Cgroups, Limits


@pytest.fixture
def unified(tmp_path: Path) -> Path:
    """A description of a machine with version 2, in which this process is in /unit; returns its /proc/self."""
    group = tmp_path / "mount" / "unit"
    group.mkdir(parents=True)
    (group / "cgroup.controllers").write_text("cpuset cpu io memory pids")
    (group / "cgroup.subtree_control").write_text("cpu memory pids")
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text("0::/unit\n")
    (proc / "mountinfo").write_text(f"30 25 0:26 / {tmp_path}/mount rw - cgroup2 cgroup2 rw,nsdelegate\n")
    return proc


def test_version_2_sets_the_limits(unified: Path) -> None:
    cgroups = Cgroups.detect(unified)
    assert cgroups.version == 2
    assert cgroups.controllers == {"cpu", "memory", "pids"}
    [group] = cgroups.create("k", Limits(cpu_millis=1500, memory_bytes=1 << 20, pids=7))
    assert (group / "cpu.max").read_text() == "150000 100000"
    assert (group / "memory.max").read_text() == str(1 << 20)
    assert (group / "pids.max").read_text() == "7"
    assert not (group / "memory.swap.max").exists()


def test_a_mount_that_shows_a_part_of_the_hierarchy(unified: Path, tmp_path: Path) -> None:
    (unified / "cgroup").write_text("0::/docker/abc/unit\n")
    (unified / "mountinfo").write_text(f"30 25 0:26 /docker/abc {tmp_path}/mount rw - cgroup2 cgroup2 rw\n")
    assert Cgroups.detect(unified).controllers == {"cpu", "memory", "pids"}


def test_nothing_to_use(unified: Path) -> None:
    (unified / "mountinfo").write_text("")
    cgroups = Cgroups.detect(unified)
    assert cgroups.controllers == frozenset()
    assert cgroups.create("k", Limits()) == []
    cgroups.remove("k")


@pytest.mark.skipif(not Cgroups.detect().controllers, reason="the groups of this machine are read-only for this user")
def test_real_groups_hold_and_release_processes() -> None:
    cgroups = Cgroups.detect()
    name = f"test-{os.getpid()}"
    limits = Limits(pids=5 if "pids" in cgroups.controllers else 0, memory_bytes=64 << 20)
    groups = cgroups.create(name, limits)
    assert cgroups.create(name, limits) == groups
    enter = " && ".join(f"echo $$ >'{group}/cgroup.procs'" for group in groups)
    with subprocess.Popen(["/bin/sh", "-c", f"{enter} && echo in && exec sleep 60"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        cgroups.remove(name)
        assert process.wait() == -signal.SIGKILL
    assert not any(group.exists() for group in groups)
    cgroups.remove(name)
