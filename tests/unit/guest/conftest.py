"""A guest to call file operations on, and the promise that none leaves a descriptor or a part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.scripted_stream import ScriptedGuest


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
