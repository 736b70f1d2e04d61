"""Runs in the environment of AgentScope: does one thing for each line of stdin, a JSON object, and answers with one.

The seconds that an answer gives are taken here, so that the way to this program and back is not counted.
"""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import sys
import tarfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from agentscope.mcp import MCPClient, StdioMCPConfig
from agentscope.message import UserMsg
from agentscope.workspace import DockerWorkspace, LocalWorkspace
from agentscope.workspace._docker._make_dockerfile import prepare_build_context

SERVER = "/workspace/server.py"


async def timed(work: Awaitable[Any]) -> float:
    """How many seconds it takes."""
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def prepared(workspace: DockerWorkspace, server: str) -> MCPClient:
    """The declaration of a server whose program, a file here, is put into the workspace."""
    program = await asyncio.to_thread(Path(server).read_bytes)
    await workspace.get_backend().write_file(SERVER, program)
    config = StdioMCPConfig(command="/usr/bin/python3", args=[SERVER])
    return MCPClient(name="echo", is_stateful=True, mcp_config=config)


class TimedWorkspace(DockerWorkspace):  # type: ignore[misc]  # its package is not where types are checked
    """Knows how long the start of its gateway took."""

    gateway_seconds = 0.0

    async def _setup_mcp_gateway(self) -> None:
        self.gateway_seconds = await timed(super()._setup_mcp_gateway())


class Program:
    """One workspace in Docker and one in a directory, each open from its first use on."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.opened: list[DockerWorkspace | LocalWorkspace] = []
        self.docker: TimedWorkspace | None = None
        self.local: LocalWorkspace | None = None
        self.tool: Any = None

    async def image(self) -> dict[str, object]:
        """The tag of the image that DockerWorkspace looks for."""
        context, tag, _ = prepare_build_context()
        shutil.rmtree(context)
        return {"tag": tag}

    async def mcp_ready(self, server: str) -> dict[str, object]:
        """A first MCP server in a new sandbox: the gateway, then the server in it."""
        workspace = TimedWorkspace()
        await workspace.initialize()
        try:
            client = await prepared(workspace, server)
            return {"seconds": workspace.gateway_seconds + await timed(workspace.add_mcp(client))}
        finally:
            await workspace.close()

    async def mcp_call(self, server: str) -> dict[str, object]:
        """A call of a tool."""
        if self.tool is None:
            workspace = await self._docker()
            client = await workspace.add_mcp(await prepared(workspace, server))
            [self.tool] = await client.list_tools()
        chunk: list[Any] = []

        async def call() -> None:
            chunk.append(await self.tool(text="hello"))

        seconds = await timed(call())
        if chunk[0].content[0].text != "hello":
            raise RuntimeError(f"the tool answered {chunk[0]}")
        return {"seconds": seconds}

    async def fill(self, size: int, line: int) -> dict[str, object]:
        """Give the session `long` about so many bytes, in the directory as its own program would have."""
        workspace = await self._local()
        await workspace.offload_context("long", [UserMsg(name="u", content="x" * line)])
        path = self.directory / "sessions/long/context.jsonl"
        written = path.read_bytes()
        with path.open("ab") as file:
            for _ in range(size // len(written) - 1):
                file.write(written)
        return {"bytes": path.stat().st_size}

    async def append(self, session: str) -> dict[str, object]:
        """Append a message of 1 KB to a session."""
        work = (await self._local()).offload_context(session, [UserMsg(name="u", content="x" * 1000)])
        return {"seconds": await timed(work)}

    async def fill_skills(self, count: int) -> dict[str, object]:
        """Put skills into the partition of the agent without a name."""
        workspace = await self._docker()
        await workspace.list_skills()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for number in range(count):
                text = f"---\nname: skill-{number}\ndescription: does thing {number}\n---\n\nDo it.\n".encode()
                member = tarfile.TarInfo(f"skill-{number}/SKILL.md")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text))
        backend = workspace.get_backend()
        await backend.write_file("/tmp/skills.tar", packed.getvalue())
        unpacked = await backend.exec_shell(["tar", "-xf", "/tmp/skills.tar", "-C", "/workspace/skills/default"])
        if not unpacked.ok():
            raise RuntimeError(unpacked.stderr.decode())
        return {"count": len(await workspace.list_skills())}

    async def list_skills(self) -> dict[str, object]:
        """List the skills of that agent."""
        return {"seconds": await timed((await self._docker()).list_skills())}

    async def close(self) -> None:
        for workspace in self.opened:
            await workspace.close()

    async def _docker(self) -> TimedWorkspace:
        if self.docker is None:
            self.docker = TimedWorkspace()
            await self.docker.initialize()
            self.opened.append(self.docker)
        return self.docker

    async def _local(self) -> LocalWorkspace:
        if self.local is None:
            self.local = LocalWorkspace(workdir=str(self.directory))
            await self.local.initialize()
            self.opened.append(self.local)
        return self.local


async def main() -> None:
    program = Program(Path(sys.argv[1]))
    try:
        while line := await asyncio.to_thread(sys.stdin.readline):
            job = json.loads(line)
            answer = await getattr(program, job.pop("do"))(**job)
            print(json.dumps(answer), flush=True)
    finally:
        await program.close()


if __name__ == "__main__":
    asyncio.run(main())
