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
