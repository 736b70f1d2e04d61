"""Fixtures of the tests that run a real guest, under each interpreter of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.guest_client import GuestClient, RunningGuest
from tests.support.interpreters import Interpreter, discover

INTERPRETERS = discover()


@pytest.fixture(params=INTERPRETERS, ids=lambda found: f"py{found.name}")
def interpreter(request: pytest.FixtureRequest) -> Interpreter:
    found = request.param
    assert isinstance(found, Interpreter)
    return found


class ChangedGuest(RunningGuest):
    """A guest with another constant or function: `change` is run after its modules are found and before it starts."""

    change = ""

    @property
    def program(self) -> list[str]:
        *python, code = super().program
        before, start, after = code.partition("from workspaced_guest.__main__")
        assert start
        return [*python, f"{before}{self.change}; {start}{after}"]


@pytest.fixture
def guest(tmp_path: Path, interpreter: Interpreter) -> Iterator[RunningGuest]:
    """A guest that has just started."""
    with RunningGuest(tmp_path, interpreter.path) as running:
        yield running


@pytest.fixture
def client(guest: RunningGuest) -> Iterator[GuestClient]:
    """A channel to it."""
    with guest.connect() as connected:
        yield connected
