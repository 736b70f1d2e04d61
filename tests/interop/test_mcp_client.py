"""A client of the official MCP SDK uses a workspace as an MCP server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.server import ROOT, ServerProcess


def test_the_example_runs(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "state")
    server.start()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/mcp_client.py"), "--target", server.address],
        capture_output=True, text=True, env={**os.environ, "PATH": path}, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert server.stop() == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "tools: Bash Edit Glob Grep Read Skill Write"
    assert "5050" in lines
    assert [line for line in lines if line.startswith("---")] == [
        "--- Write: success", "--- Bash: success", "--- Read: error",
    ]  # fmt: skip
