#!/usr/bin/env python3
"""An agent without a model: its choices are scripted, everything else is real.

python examples/agent.py --user ada --session s1 --image IMAGE [--target 127.0.0.1:7420] [--stop-after N]

It acquires the workspace of its session, adds a skill and two MCP servers, calls tools of every kind, and appends each
turn of its conversation to the context that is kept in the workspace. Stopped anywhere (``--stop-after`` does it as
``kill -9`` would) and run again, it reads the context back and goes on with the next step. IMAGE needs python3 and the
programs of the MCP servers below.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import workspaced

AGENT = "scripted"
SKILL = Path(__file__).parent / "skills" / "greeting"
MCP_SERVERS = {
    "everything": ["mcp-server-everything"],
    "files": ["mcp-server-filesystem", "."],
}
"""Name and program of each MCP server; they run inside the workspace."""


@dataclass(frozen=True)
class Step:
    """What the model would have chosen: a tool and its input."""

    tool: str
    input: Mapping[str, Any] = field(default_factory=dict)


SCRIPT = (
    Step("Skill", {"skill": "greeting"}),
    Step("Write", {"file_path": "letter.txt", "content": "Hi Bob,\nall is well.\n"}),
    Step("Read", {"file_path": "letter.txt"}),
    Step("Edit", {"file_path": "letter.txt", "old_string": "Hi Bob", "new_string": "Good day, Bob"}),
    Step("mcp__files__read_text_file", {"path": "letter.txt"}),
    Step("mcp__everything__get-sum", {"a": 19, "b": 23}),
    Step("Grep", {"pattern": "Good day", "path": "."}),
    Step("Bash", {"command": "wc -l letter.txt && seq 1 2000"}),
)


async def prepare(ws: workspaced.Workspace, session: str) -> None:
    """Give the agent what it works with. Each call may be repeated: nobody has to know whether it was made before."""
    await ws.skills.add(SKILL, agent_id=AGENT)
    for name, program in MCP_SERVERS.items():
        await ws.mcps.add(name=name, stdio=program, agent_id=AGENT, session_id=session)


async def remembered(ws: workspaced.Workspace, session: str) -> int:
    """How many steps are done, as the context tells that was offloaded."""
    done = 0
    for stored in await ws.offload.list(session, kind="context"):
        async with ws.offload.messages(stored.path) as messages:
            async for message in messages:
                done += any(isinstance(block, workspaced.ToolResultBlock) for block in message.content)
    return done


async def act(ws: workspaced.Workspace, session: str, step: Step) -> None:
    """One turn: call the tool, show what it gives, and keep the turn in the workspace."""
    call = workspaced.ToolCallBlock(uuid.uuid4().hex, step.tool, step.input)
    result = await ws.tools.call(
        step.tool, step.input, call_id=call.id, offload_over_bytes=2000, agent_id=AGENT, session_id=session
    )
    print(f"{step.tool}: {'failed: ' if result.is_error else ''}{result.text[:200].strip()}", flush=True)
    if result.offloaded:
        print(f"  the whole output is in {result.offloaded}", flush=True)
    await ws.offload.context(
        session, [workspaced.Message("assistant", [call]), workspaced.Message("user", [result.block()])]
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description="An agent without a model.")
    parser.add_argument("--target", default="127.0.0.1:7420")
    parser.add_argument("--user", required=True)
    parser.add_argument("--session", required=True)
    parser.add_argument("--backend", default="docker")
    parser.add_argument("--image", default="")
    parser.add_argument("--stop-after", type=int, metavar="N", help="end like kill -9 after N steps of this run")
    arguments = parser.parse_args()
    session = arguments.session

    async with workspaced.connect(arguments.target) as client:
        acquisition = client.acquire(
            policy="per_session", user_id=arguments.user, agent_id=AGENT, session_id=session,
            backend=arguments.backend, image=arguments.image,
        )  # fmt: skip
        async with acquisition as ws:
            print(f"workspace {ws.id}, {'new' if ws.created else 'known'}", flush=True)
            await prepare(ws, session)
            tools = await ws.tools.list(agent_id=AGENT, session_id=session)
            print(f"{len(tools)} tools, {len(await ws.instructions(agent_id=AGENT, session_id=session))} characters "
                  "of instructions", flush=True)  # fmt: skip
            done = await remembered(ws, session)
            print(f"{done} of {len(SCRIPT)} steps are done", flush=True)
            for number, step in enumerate(SCRIPT[done:], 1):
                await act(ws, session, step)
                if number == arguments.stop_after:
                    os.kill(os.getpid(), signal.SIGKILL)
            print("done", flush=True)


asyncio.run(main())
