"""Programs of others that the tests run for real, at the versions that ``parts/`` pins."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

# `workspaced-test:bookworm` and the MCP servers, on its path; its python3 has `mcp`.
AGENTS_IMAGE = "workspaced-test:agents"

_HERE = Path(__file__).parent


@cache
def mcp_servers() -> Path:
    """``bin`` of the MCP servers on this machine.

    It holds ``node``, ``npx``, ``mcp-server-everything``, ``mcp-server-filesystem``, and a ``python`` that has `mcp`.
    ``npx -y @modelcontextprotocol/server-everything`` needs no network with it first on the path.
    """
    return _installed("mcp-servers") / "bin"


@cache
def agentscope_python() -> Path:
    """A Python that has `agentscope`, and nothing of this project."""
    return _installed("agentscope") / "bin/python"


def _installed(name: str) -> Path:
    """The directory that the part is in, which is installed now if `make parts` did not do so."""
    command = [str(_HERE / "parts/install"), name]
    environment = {**os.environ, "PYTHON": sys.executable}
    return Path(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
