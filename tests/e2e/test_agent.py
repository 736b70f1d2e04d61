"""The agent of examples/ in a real workspace: killed in the middle, back in another process, nothing lost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import workspaced
from tests.support.server import ROOT, ServerProcess

IMAGE = "workspaced-test:agents"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path / "state")
    running.start()
    yield running
    if running.process is None:
        running.start()
    with workspaced.sync.connect(running.address) as client:
        for info in client.list():
            client.workspace(info.workspace_id).delete(allow_missing=True)
    assert running.stop() == 0


def agent(server: ServerProcess, user: str, *more: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "clients/python"), *sys.path])
    return subprocess.run(
        [sys.executable, ROOT / "examples" / "agent.py", "--target", server.address, "--user", user, "--session", "s1",
         "--image", IMAGE, *more],
        capture_output=True, text=True, timeout=300, check=False, env=dict(os.environ, PYTHONPATH=path),
    )  # fmt: skip


@pytest.mark.timeout(600)
def test_an_agent_that_is_killed_goes_on_where_it_was(server: ServerProcess) -> None:
    user = uuid.uuid4().hex
    first = agent(server, user, "--stop-after", "4")
    assert first.returncode == -signal.SIGKILL, first.stderr
    assert "new" in first.stdout
    assert "0 of 8 steps are done" in first.stdout
    server.kill()
    server.start()
    second = agent(server, user)
    assert second.returncode == 0, second.stderr
    assert "known" in second.stdout
    assert "4 of 8 steps are done" in second.stdout
    assert "failed" not in first.stdout + second.stdout
    # Each kind of tool gave what it should: files written before, an MCP server's sum, the skill, a long output.
    assert "Begin with" in first.stdout
    assert "Good day, Bob" in second.stdout
    assert "42" in second.stdout
    stored = re.search(r"the whole output is in (\S+)", second.stdout)
    assert stored is not None
    with workspaced.sync.connect(server.address) as client:
        (info,) = client.list(labels={"user": user})
        ws = client.workspace(info.workspace_id)
        assert b"2000" in ws.files.read(stored[1]).splitlines()
        kinds = {item.kind for item in ws.offload.list("s1")}
        assert {"context", "tool_result"} <= kinds
    third = agent(server, user)
    assert third.returncode == 0, third.stderr
    assert "8 of 8 steps are done" in third.stdout
