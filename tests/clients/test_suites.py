"""The suites of the Go and the TypeScript client, each against a real server."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.languages import GO, TYPESCRIPT
from tests.support.server import ServerProcess

_SECONDS = 600


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    made = ServerProcess(tmp_path_factory.mktemp("suites") / "state")
    made.start()
    yield made
    made.stop()


def run(command: list[str], directory: Path, server: ServerProcess) -> None:
    """Run a suite; its output is the message of the failure."""
    environment = dict(os.environ, WORKSPACED_TEST_SERVER=server.address)
    suite = subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with suite:
        try:
            output, _ = suite.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(suite.pid, signal.SIGKILL)
            output, _ = suite.communicate()
            pytest.fail(f"{command} did not end within {_SECONDS} s:\n{output[-20000:]}", pytrace=False)
    if suite.returncode:
        pytest.fail(f"{command} ended with {suite.returncode}:\n{output[-20000:]}", pytrace=False)


@pytest.mark.timeout(_SECONDS + 60)
def test_go(server: ServerProcess) -> None:
    run(["go", "test", "-race", "-count=1", "./..."], GO, server)


@pytest.mark.timeout(_SECONDS + 60)
def test_typescript(server: ServerProcess) -> None:
    run(["npm", "test", "--silent"], TYPESCRIPT, server)
