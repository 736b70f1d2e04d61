"""The image of the server: built, started as an ordinary user, healthy, drained."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.doc_commands import REPOSITORY


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_image_builds_starts_and_drains() -> None:
    script = REPOSITORY / "tests/support/server_image"
    done = subprocess.run([script], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
