"""The tools of a workspace in agents of Eino, a Go library: its own tests, and its example, against a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.server import ROOT, ServerProcess

EINO = ROOT / "clients" / "go" / "eino"
MCP_SERVER = ROOT / "tests" / "support" / "mcp_server.py"
EXAMPLE = """\
Write {"file_path": "sum.sh", "content": "echo $((6 - 7))\\n"}
  -> Created sum.sh: 1 line, 16 bytes.
Bash {"command": "sh sum.sh"}
  -> -1
[exit code 0]
Edit {"file_path": "sum.sh", "old_string": "-", "new_string": "*"}
  -> Edited sum.sh: 1 replacement, in line 1.
Bash {"command": "sh sum.sh"}
  -> 42
[exit code 0]
It is mended.
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("glue") / "state")
    server.start()
    yield server
    assert server.stop() == 0


def go(server: ServerProcess, *arguments: str) -> str:
    environment = dict(
        os.environ,
        WORKSPACED_TEST_SERVER=server.address,
        WORKSPACED_TEST_MCP_SERVER=json.dumps([sys.executable, str(MCP_SERVER)]),
    )
    done = subprocess.run(
        ["go", *arguments], cwd=EINO, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout


@pytest.mark.timeout(600)
def test_eino(server: ServerProcess) -> None:
    text = go(server, "test", "-race", "-count=1", "-v", "./...")
    assert "--- PASS: TestAgentUsesTools " in text
    assert "--- SKIP" not in text


@pytest.mark.timeout(600)
def test_eino_example(server: ServerProcess) -> None:
    assert go(server, "run", "./example", server.address) == EXAMPLE


def test_the_client_needs_nothing_of_it() -> None:
    module = (EINO.parent / "go.mod").read_text()
    assert "eino" not in module
    assert "sonic" not in module
