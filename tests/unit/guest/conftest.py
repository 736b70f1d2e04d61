"""A guest to call file operations on, and the promise that none leaves a descriptor or a part."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.scripted_stream import ScriptedGuest
from tests.unit.guest.running import client, guest, interpreter  # noqa: F401  (fixtures)


@pytest.fixture
def scripted_guest(tmp_path: Path) -> Iterator[ScriptedGuest]:
    """A guest's directories; afterwards no descriptor is open that was not before."""
    before = set(os.listdir("/proc/self/fd"))
    yield ScriptedGuest.at(tmp_path)
    assert len(os.listdir("/proc/self/fd")) <= len(before)


@pytest.fixture
def work(scripted_guest: ScriptedGuest) -> Path:
    """The workdir."""
    return Path(scripted_guest.workdir)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB; mounting it needs root, as the tests' container has."""
    directory = tmp_path / "small"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory], check=True)
    yield directory
    subprocess.run(["umount", directory], check=True)
