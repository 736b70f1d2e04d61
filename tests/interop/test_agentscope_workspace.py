"""AgentScope's own agent, toolkit and application see a workspace of this server as one of theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.backends import DOCKER_IMAGE
from tests.support.real_parts import agentscope_python
from tests.support.server import ROOT, ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).parent / "agentscope_workspace_program.py"
MCP_SERVER = [sys.executable, str(ROOT / "tests/support/mcp_server.py")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path_factory.mktemp("server") / "state")
    running.start()
    yield running
    assert running.stop() == 0


def agentscope(*arguments: str) -> str:
    """What a program says that runs in AgentScope's environment, with the client beside it."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "PYTHONPATH": str(ROOT / "clients/python")}
    done = subprocess.run(
        [agentscope_python(), *arguments], capture_output=True, text=True, env=environment, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_method_does_what_agentscope_expects(server: ServerProcess) -> None:
    skill = str(ROOT / "examples/skills/greeting")
    assert agentscope(str(PROGRAM), server.address, skill, *MCP_SERVER) == ""


def calls(said: str) -> dict[str, str]:
    """Tool and state of each call that the example tells of."""
    return dict(line.removeprefix("--- ").split(": ") for line in said.splitlines() if line.startswith("--- "))


def test_the_agent_works_in_a_local_workspace(server: ServerProcess) -> None:
    example = str(ROOT / "examples/agentscope_agent.py")
    said = agentscope(example, "--target", server.address, "--mcp", *MCP_SERVER)
    assert calls(said) == {
        "Skill": "success", "Write": "success", "Edit": "success", "Bash": "error", "Grep": "success",
        "mcp__server__echo": "success",
    }  # fmt: skip
    for text in ('Begin with "Good day"', "all is very well.", "[exit code 3]", "through MCP", "context.jsonl"):
        assert text in said


def test_the_agent_works_in_a_container(server: ServerProcess) -> None:
    example = str(ROOT / "examples/agentscope_agent.py")
    said = agentscope(example, "--target", server.address, "--backend", "docker", "--image", DOCKER_IMAGE)
    assert calls(said)["Grep"] == "success"
    assert "/workspace" in said
