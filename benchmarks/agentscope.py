"""AgentScope as a peer: its own program, in its own environment, told line by line what to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from tests.support.real_parts import agentscope_python

IMAGE = "workspaced-test:agentscope"
_PROGRAM = Path(__file__).parent / "agentscope_program.py"


class AgentScope:
    """A running program."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    async def do(self, action: str, **arguments: object) -> dict[str, Any]:
        """Have it do something; its answer. Raises RuntimeError with the end of its log when it ends instead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": action, **arguments}).encode() + b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"AgentScope failed to {action}:\n{self._log.read_text()[-4000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def seconds(self, action: str, **arguments: object) -> float:
        """Have it do something; how long that took it."""
        return float((await self.do(action, **arguments))["seconds"])


@asynccontextmanager
async def agentscope(scratch: Path, *, docker: bool = False) -> AsyncIterator[AgentScope]:
    """The program; with ``docker`` its image is there already, under the tag that it looks for."""
    directory, log = scratch / "agentscope", scratch / "agentscope.log"
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            agentscope_python(), "-I", _PROGRAM, directory,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    try:
        peer = AgentScope(process, log)
        if docker:
            tag = (await peer.do("image"))["tag"]
            await anyio.run_process(["docker", "tag", IMAGE, tag])
        yield peer
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
