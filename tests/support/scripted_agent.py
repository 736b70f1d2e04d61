"""An agent without a model, in a process of its own that a test kills: python -m tests.support.scripted_agent PHASE …

``begin`` uses every role once, says so on a line of stdout, and is in the middle of a tool's call when it is killed.
``resume`` is the next process: it finds all of that, goes on, and ends by itself.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import workspaced
from workspaced.content import DataBlock, Message, TextBlock, ToolCallBlock

AGENT, SESSION, OTHER = "agent", "session", "another session"
LETTER = "Hi Bob,\nall is well.\n"
PICTURE = bytes(range(256))


async def begin(ws: workspaced.Workspace, skill: Path) -> None:
    """A skill, two MCP servers, a tool of each kind, a context; then a call that does not end by itself."""
    await ws.skills.add(skill, agent_id=AGENT)
    await ws.mcps.add("everything", stdio=["mcp-server-everything"], agent_id=AGENT, session_id=SESSION)
    await ws.mcps.add("files", stdio=["mcp-server-filesystem", "."], agent_id=AGENT, session_id=SESSION)
    await ws.mcps.add("everything", stdio=["mcp-server-everything"], agent_id=AGENT, session_id=OTHER)
    tools = {tool.name for tool in await ws.tools.list(agent_id=AGENT, session_id=SESSION)}
    assert {"Bash", "Read", "Write", "Skill", "mcp__everything__echo", "mcp__files__read_text_file"} <= tools, tools

    assert "Step 1" in await called(ws, "Skill", skill="careful")
    await called(ws, "Write", file_path="letter.txt", content=LETTER)
    assert LETTER in await called(ws, "mcp__files__read_text_file", path="letter.txt")
    assert "42" in await called(ws, "mcp__everything__get-sum", a=19, b=23)
    long = await ws.tools.call(
        "Bash", {"command": "seq 1 5000"}, offload_over_bytes=1000, agent_id=AGENT, session_id=SESSION
    )
    assert long.offloaded
    call = ToolCallBlock("call-1", "mcp__everything__get-tiny-image")
    image = await ws.tools.call(call.name, call_id=call.id, agent_id=AGENT, session_id=SESSION)
    question = Message("user", [TextBlock("What is this?"), DataBlock("image/png", PICTURE)])
    await ws.offload.context(SESSION, [question, Message("assistant", [call]), Message("user", [image.block()])])
    await ws.offload.context(OTHER, [Message("user", [TextBlock("Hello.")])])
    await ws.start("sleep 600", process_id="background")

    say("begun")
    events = ws.tools.stream(
        "mcp__everything__trigger-long-running-operation", {"duration": 600, "steps": 600},
        agent_id=AGENT, session_id=SESSION,
    )  # fmt: skip
    async for event in events:
        say(type(event).__name__)


async def resume(ws: workspaced.Workspace) -> None:
    """Everything is there, and a further call works."""
    assert [skill.name for skill in await ws.skills.list(agent_id=AGENT)] == ["careful"]
    servers = await ws.mcps.list(agent_id=AGENT, session_id=SESSION)
    assert [(server.name, server.state) for server in servers] == [("everything", "ready"), ("files", "ready")]
    stored = {(item.kind, item.session_id) for item in await ws.offload.list()}
    assert stored == {
        ("context", SESSION), ("context", OTHER), ("tool_result", SESSION), ("data", ""),
    }, stored  # fmt: skip
    [context] = await ws.offload.list(SESSION, kind="context")
    async with ws.offload.messages(context.path) as messages:
        found = [message async for message in messages]
    assert [message.role for message in found] == ["user", "assistant", "user"]
    picture = found[0].content[1]
    assert isinstance(picture, DataBlock)
    assert await ws.offload.read(picture.url) == PICTURE
    [result] = await ws.offload.list(SESSION, kind="tool_result")
    whole = (await ws.offload.read(result.path)).decode()
    assert whole.startswith("".join(f"{number}\n" for number in range(1, 5001)))
    # The agent's own file tools read the same paths.
    assert "5000" in await called(ws, "Grep", pattern="^5000$", path=result.path, output_mode="content")
    assert "Hi Bob" in await called(ws, "Read", file_path="letter.txt")
    assert (await ws.process("background").info()).state is workspaced.ProcessState.RUNNING
    assert "Echo: again" in await called(ws, "mcp__everything__echo", message="again")
    say("resumed")


async def called(ws: workspaced.Workspace, name: str, **arguments: object) -> str:
    """Call a tool that is to succeed; its text."""
    result = await ws.tools.call(name, arguments, agent_id=AGENT, session_id=SESSION)
    assert not result.is_error, result.text
    return result.text


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def main() -> None:
    phase, address, workspace_id, skill = sys.argv[1:]
    async with workspaced.connect(address) as client:
        workspace = client.workspace(workspace_id)
        await (begin(workspace, Path(skill)) if phase == "begin" else resume(workspace))


if __name__ == "__main__":
    asyncio.run(main())
