"""Runs in AgentScope's environment with the client beside it: uses ``AgentScopeWorkspace`` as its agents and its
application do, method by method. ``python agentscope_workspace_program.py TARGET SKILL MCP_PROGRAM…``; silent when all
is as it should be.
"""

from __future__ import annotations

import asyncio
import base64
import io
import sys
import zipfile
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

from agentscope.agent import Agent, ContextConfig
from agentscope.mcp import MCPClient, StdioMCPConfig
from agentscope.message import (
    AssistantMsg,
    Base64Source,
    DataBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultState,
    UserMsg,
)
from agentscope.permission import (
    PermissionBehavior,
    PermissionContext,
    PermissionEngine,
    PermissionMode,
    PermissionRule,
)
from agentscope.state import AgentState
from agentscope.tool import Toolkit
from agentscope.workspace import WorkspaceBase

import workspaced
from workspaced.agentscope import AgentScopeWorkspace
from workspaced.content import TextBlock as OurText

PAIR = {"agent_id": "ada", "session_id": "s1"}
PICTURE = bytes(range(256))


async def raises(kind: type[BaseException], call: Any) -> None:
    """The call has to fail like this."""
    try:
        await call
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


async def lifecycle(client: workspaced.Client) -> None:
    """What is made is resumed by its id, and closed when the block ends."""
    async with AgentScopeWorkspace(client, workspace_id="lifecycle", backend="local") as workspace:
        assert isinstance(workspace, WorkspaceBase)
        assert workspace.is_alive
        await workspace.initialize()
        await workspace.get_backend().write_file("kept.txt", b"kept")
        assert workspace.workdir in await workspace.get_instructions()
    assert not workspace.is_alive
    try:
        workspace.get_backend()
    except RuntimeError:
        pass
    else:
        raise AssertionError("a closed workspace has a backend")
    async with AgentScopeWorkspace(client, workspace_id="lifecycle") as again:
        assert await again.get_backend().read_file("kept.txt") == b"kept"
    await client.workspace("lifecycle").delete()


async def backend(workspace: AgentScopeWorkspace) -> None:
    """Files and programs, as AgentScope's tools and its REST router use them."""
    used = workspace.get_backend()
    assert await used.getcwd() == workspace.workdir
    done = await used.exec_shell(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert (await used.exec_shell(["no-such-program"])).exit_code == 127
    assert (await used.exec_shell(["sh", "-c", "kill -9 $$"])).exit_code == 137
    late = await used.exec_shell(["sleep", "60"], timeout=0.2)
    assert (late.exit_code, late.stderr) == (-1, b"timed out")
    large = await used.exec_shell(["head", "-c", "12000000", "/dev/zero"])
    assert len(large.stdout) == 12_000_000

    async def chunks() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    await used.write_stream("d/e/file.txt", chunks())
    path = f"{workspace.workdir}/d/e/file.txt"
    assert b"".join([chunk async for chunk in used.read_stream(path, 3)]) == b"one two"
    await raises(FileNotFoundError, used.read_file("missing"))
    assert await used.file_exists(path)
    assert not await used.file_exists("d/missing")
    assert await used.is_dir("d")
    assert not await used.is_dir(path)
    assert await used.list_dir("d", recursive=True) == [path]
    assert await used.list_dir("d") == ["e"]
    assert await used.list_dir("missing") == []
    (entry,) = await used.scandir("d/e")
    assert (entry.name, entry.is_dir, entry.size_bytes) == ("file.txt", False, 7)
    found = await used.stat(path)
    assert found is not None
    assert found.mtime == await used.stat_mtime(path)
    await used.delete_path("d")
    await used.delete_path("d")
    assert await used.stat("d") is None


async def their_own_tools(workspace: AgentScopeWorkspace) -> None:
    """AgentScope's built-in tools over the backend, unchanged."""
    tools = {tool.name: tool for tool in await WorkspaceBase.list_tools(workspace)}
    path = f"{workspace.workdir}/theirs.txt"
    toolkit = Toolkit(tools=list(tools.values()))
    state = AgentState()

    async def call(name: str, arguments: str) -> str:
        block = ToolCallBlock(id=name, name=name, input=arguments)
        last: Any = None
        async for chunk in toolkit.call_tool(block, state):
            last = chunk
        assert last.state == ToolResultState.SUCCESS, last
        return "".join(part.text for part in last.content)

    await call("Write", f'{{"file_path": "{path}", "content": "theirs"}}')
    assert "theirs" in await call("Read", f'{{"file_path": "{path}"}}')
    assert "theirs" in await call("Bash", '{"command": "cat theirs.txt"}')


async def skills(workspace: AgentScopeWorkspace, directory: str) -> None:
    """A directory and an archive; what is taken, what is none, what is not there."""
    await workspace.add_skill(directory, agent_id="ada")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("SKILL.md", "---\nname: packed\ndescription: From an archive.\n---\nText.\n")

    async def stream(data: bytes) -> AsyncIterator[bytes]:
        yield data

    await workspace.add_skill_archive(stream(content.getvalue()), "zip", "packed", agent_id="ada")
    found = {skill.name: skill for skill in await workspace.list_skills(agent_id="ada")}
    assert sorted(found) == ["greeting", "packed"]
    assert "Text." in found["packed"].markdown
    assert found["packed"].updated_at > 0
    assert await workspace.list_skills(agent_id="bob") == []
    await raises(ValueError, workspace.add_skill_archive(stream(b"nothing"), "zip", "x", agent_id="ada"))
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("SKILL.md", "---\nname: packed\ndescription: Another of the name.\n---\n")
    await raises(ValueError, workspace.add_skill_archive(stream(content.getvalue()), "zip", "packed", agent_id="ada"))
    await workspace.remove_skill("packed", agent_id="ada")
    await raises(KeyError, workspace.remove_skill("packed", agent_id="ada"))
    await workspace.purge_agent(agent_id="ada")


async def mcps(workspace: AgentScopeWorkspace, program: list[str]) -> None:
    """A server of one agent in one session."""
    config = StdioMCPConfig(command=program[0], args=program[1:], env={"KEY": "s3cret"})
    client = MCPClient(name="m", is_stateful=True, mcp_config=config, enable_tools=["echo", "fail"])
    added = await workspace.add_mcp(client, **PAIR)
    assert added.is_connected
    (listed,) = await workspace.list_mcps(**PAIR)
    assert (listed.name, listed.enable_tools) == ("m", ["echo", "fail"])
    assert "s3cret" not in repr(listed.model_dump())
    assert await workspace.list_mcps(agent_id="ada", session_id="s2") == []
    assert sorted(tool.name for tool in await listed.list_tools()) == ["mcp__m__echo", "mcp__m__fail"]
    chunk = await (await listed.get_tool("echo"))(text="hello")
    assert (chunk.state, chunk.content[0].text) == (ToolResultState.SUCCESS, "hello")
    failed = await (await listed.get_tool("fail"))()
    assert failed.state == ToolResultState.ERROR
    await raises(ValueError, listed.get_tool("missing"))
    other = MCPClient(name="m", is_stateful=True, mcp_config=StdioMCPConfig(command="cat"))
    await raises(ValueError, workspace.add_mcp(other, **PAIR))
    await workspace.remove_mcp("m", **PAIR)
    await workspace.remove_mcp("m", **PAIR)
    assert await workspace.list_mcps(**PAIR) == []


async def offload(workspace: AgentScopeWorkspace) -> None:
    """What an agent puts aside is there for its tools, and for every client."""
    picture = DataBlock(source=Base64Source(data=base64.b64encode(PICTURE).decode(), media_type="image/png"), name="p")
    stored = await workspace.offload_data_block(picture)
    assert (stored.id, stored.name) == (picture.id, "p")
    assert str(stored.source.url).startswith("workspace:///data/")
    assert await workspace.offload_data_block(stored) is stored

    result = ToolResultBlock(id="t1", name="Bash", output=[TextBlock(text="long"), picture], state="success")
    assert b"long" in await workspace.get_backend().read_file(await workspace.offload_tool_result("s1", result))
    content = [
        ThinkingBlock(thinking="hm"),
        ToolCallBlock(id="t1", name="Bash", input='{"command": "ls"}'),
        result,
        TextBlock(text="There."),
    ]
    path = await workspace.offload_context("s1", [UserMsg(name="bo", content="What?"), AssistantMsg("ada", content)])
    async with workspace.handle.offload.messages(path) as messages:
        read = [message async for message in messages]
    assert [message.name for message in read] == ["bo", "ada"]
    assert isinstance(read[0].content[0], OurText)
    assert read[0].content[0].text == "What?"
    assert len(read[1].content) == 4
    await workspace.purge_session(agent_id="ada", session_id="s1")
    assert not await workspace.get_backend().file_exists(path)


async def permissions(workspace: AgentScopeWorkspace) -> None:
    """AgentScope's rules decide of these tools as they do of its own."""
    tools = {tool.name: tool for tool in await workspace.list_tools()}
    context = PermissionContext()
    engine = PermissionEngine(context)

    async def decided(name: str, **arguments: Any) -> PermissionBehavior:
        behavior: PermissionBehavior = (await engine.check_permission(tools[name], arguments)).behavior
        return behavior

    assert await decided("Bash", command="ls -l") is PermissionBehavior.ALLOW
    assert await decided("Bash", command="make") is PermissionBehavior.ASK
    assert await decided("Write", file_path="src/a.py", content="") is PermissionBehavior.ASK
    rule = PermissionRule(tool_name="Write", rule_content="src/**", behavior=PermissionBehavior.ALLOW, source="user")
    engine.add_rule(rule)
    assert await decided("Write", file_path="src/a.py", content="") is PermissionBehavior.ALLOW
    assert await decided("Write", file_path="etc/a.py", content="") is PermissionBehavior.ASK
    assert await tools["Bash"].check_read_only({"command": "git status"})
    assert not await tools["Bash"].check_read_only({"command": "rm a"})


async def agent_offloads(workspace: AgentScopeWorkspace) -> None:
    """An agent puts the overflow of a result aside by itself, and tells the model where."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    model = import_module("agentscope_agent").ScriptedModel([("Bash", {"command": "seq 1 3000"})])
    state = AgentState(permission_context=PermissionContext(mode=PermissionMode.BYPASS))
    agent = Agent(
        name="ada",
        system_prompt="",
        model=model,
        toolkit=Toolkit(tools=await workspace.list_tools()),
        context_config=ContextConfig(tool_result_limit=500),
        offloader=workspace,
        state=state,
    )
    await agent.reply(UserMsg(name="bo", content="Count."))
    (stored,) = await workspace.handle.offload.list(state.session_id, kind="tool_result")
    assert b"2999" in await workspace.get_backend().read_file(stored.path)
    assert stored.path in str(state.context)


async def main() -> None:
    target, skill, *program = sys.argv[1:]
    async with workspaced.connect(target) as client:
        await lifecycle(client)
        try:
            async with AgentScopeWorkspace(client, workspace_id="used", backend="local") as workspace:
                await backend(workspace)
                await their_own_tools(workspace)
                await skills(workspace, str(Path(skill)))
                await mcps(workspace, program)
                await offload(workspace)
                await permissions(workspace)
                await agent_offloads(workspace)
                await workspace.reset()
        finally:
            await client.workspace("used").delete(allow_missing=True)


if __name__ == "__main__":
    asyncio.run(main())
