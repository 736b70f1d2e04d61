"""A directory of AgentScope's LocalWorkspace is a workspace here, and one written here is one there.

With its real package, in an environment of its own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import workspaced
from tests.conformance.backends import DOCKER_IMAGE
from tests.support.real_parts import agentscope_python, mcp_servers
from tests.support.server import ServerProcess
from workspaced.content import DataBlock, HintBlock, Message, TextBlock, ThinkingBlock, ToolCallBlock, ToolResultBlock

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).parent / "agentscope_program.py"
PICTURE = bytes(range(256)) * 4
AGENT, SESSION = "researcher", "session-1"


def agentscope(action: str, directory: Path, agents: list[str | None], sessions: list[str]) -> dict[str, Any]:
    """What the real package sees in the directory, after it did something there."""
    path = f"{mcp_servers()}:/usr/bin:/bin"
    job = json.dumps({"agents": agents, "sessions": sessions, "path": path})
    command = [str(agentscope_python()), str(PROGRAM), action, str(directory)]
    done = subprocess.run(
        command, input=job, capture_output=True, text=True, env={"PATH": path}, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that may use directories below the test's own."""
    config = f'[local]\nallowed_roots = ["{tmp_path}"]\n[docker]\nallowed_mounts = ["{tmp_path}"]\n'
    running = ServerProcess(tmp_path / "state", config=config)
    running.start()
    yield running
    assert running.stop() == 0


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[workspaced.Client]:
    async with workspaced.connect(server.address) as connected:
        yield connected


@asynccontextmanager
async def opened(client: workspaced.Client, backend: str, directory: Path) -> AsyncIterator[workspaced.Workspace]:
    """A workspace of that directory, forgotten in the end; the directory stays."""
    if backend == "local":
        workspace = await client.initialize(backend="local", local={"directory": str(directory)})
    else:
        workspace = await client.initialize(
            backend="docker", image=DOCKER_IMAGE, docker={"host_workdir": str(directory)}
        )
    try:
        yield workspace
    finally:
        await workspace.delete()


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A directory that AgentScope wrote, and what it sees in there. Tests take a copy."""
    directory = tmp_path_factory.mktemp("agentscope") / "workspace"
    return directory, agentscope("write", directory, [None, AGENT, "another"], [SESSION, "other session"])


@pytest.fixture(params=["local", "docker"])
async def ws(
    request: pytest.FixtureRequest, client: workspaced.Client, theirs: tuple[Path, dict[str, Any]], tmp_path: Path
) -> AsyncIterator[workspaced.Workspace]:
    """A workspace of a copy of that directory."""
    directory = tmp_path / "opened"
    subprocess.run(["cp", "-a", theirs[0], directory], check=True)
    async with opened(client, request.param, directory) as workspace:
        yield workspace


async def test_skills(ws: workspaced.Workspace, theirs: tuple[Path, dict[str, Any]]) -> None:
    for agent, skills in theirs[1]["skills"].items():
        listed = await ws.skills.list(agent_id=agent or None)
        assert {(skill.name, skill.description) for skill in listed} == {
            (skill["name"], skill["description"]) for skill in skills
        }, agent
        assert await ws.skills.problems(agent_id=agent or None) == []
        for skill in skills:
            detail = await ws.skills.get(skill["name"], agent_id=agent or None)
            assert skill["markdown"] in detail.markdown
    files = {file.path: file.executable for file in (await ws.skills.get("runs", agent_id=AGENT)).files}
    assert files == {"SKILL.md": False, "scripts/run.sh": True}
    # A new agent starts from their seed.
    assert [skill.name for skill in await ws.skills.list(agent_id="new here")] == ["seeded"]
    await ws.skills.remove("seeded", agent_id=AGENT)
    assert [skill.name for skill in await ws.skills.list(agent_id=AGENT)] == ["runs"]


async def test_contexts_data_and_tool_results(ws: workspaced.Workspace, theirs: tuple[Path, dict[str, Any]]) -> None:
    found = {(item.kind, item.session_id): item for item in await ws.offload.list()}
    assert {(kind, session) for kind, session in found} == {
        ("context", SESSION), ("context", "other session"), ("tool_result", SESSION), ("data", ""),
    }  # fmt: skip
    messages = await _messages(ws, found["context", SESSION].path)
    assert [(message.role, message.name) for message in messages] == [
        ("system", "system"), ("user", "ann"), ("assistant", "bot"), ("user", "ann"),
    ]  # fmt: skip
    dumps = theirs[1]["contexts"][SESSION]
    assert [message.id for message in messages] == [dump["id"] for dump in dumps]
    assert messages[2].metadata == dumps[2]["metadata"]
    photo = messages[1].content[1]
    assert isinstance(photo, DataBlock)
    assert (photo.media_type, photo.name) == ("image/png", "photo.png")
    assert await ws.offload.read(photo.url) == PICTURE
    sound = messages[1].content[2]
    assert isinstance(sound, DataBlock)
    assert sound.url == "https://example.org/a%20b.wav?q=1"
    thinking, call, result, failed, note, picture_note, text = messages[2].content
    assert isinstance(thinking, ThinkingBlock)
    assert (thinking.thinking, thinking.signature) == ("It is a directory.", "opaque==")
    assert isinstance(call, ToolCallBlock)
    assert (call.id, call.name, call.input["command"]) == ("call-1", "Bash", "ls -l")
    assert call.raw_input == '{"command": "ls -l", "count": 12345678901234567890}'
    assert isinstance(result, ToolResultBlock)
    assert result.state == "success"
    assert isinstance(result.output[0], TextBlock)
    assert result.output[0].text == "three files\n"
    assert isinstance(result.output[1], DataBlock)
    assert result.output[1].url == photo.url
    assert isinstance(failed, ToolResultBlock)
    assert (failed.state, len(failed.output)) == ("error", 1)
    assert isinstance(note, HintBlock)
    assert note.source == "team"
    assert isinstance(picture_note, HintBlock)
    assert len(picture_note.content) == 2
    assert isinstance(text, TextBlock)
    assert text.text == "There are three files: ü, 漢字, 🙂, \u2028 and \\n."
    results = [item for item in await ws.offload.list(SESSION) if item.kind == "tool_result"]
    assert [item.path.rpartition("/")[2] for item in results] == ["tool_result-call-9(1).txt", "tool_result-call-9.txt"]
    assert (await ws.offload.read(results[0].path)).startswith(b"line 1\nline 2\n<data url='workspace:///data/")
    # What is appended here follows theirs.
    path = await ws.offload.context(SESSION, [Message("assistant", [TextBlock("You are welcome.")], name="bot")])
    assert len(await _messages(ws, path)) == 5


async def test_mcp_servers_are_declared(ws: workspaced.Workspace) -> None:
    everything, remote, older = [
        status.spec for status in await ws.mcps.list(agent_id=AGENT, session_id=SESSION, start=False)
    ]
    assert (everything.name, everything.stdio.command) == ("everything", "mcp-server-everything")
    assert list(everything.stdio.args) == ["stdio"]
    assert dict(everything.stdio.env) == {"PATH": "[redacted]", "KEY": "[redacted]"}
    assert everything.call_timeout.ToMilliseconds() == 7500
    assert (remote.http.url, dict(remote.http.headers)) == (
        "https://mcp.example.org/v1/mcp",
        {"Authorization": "[redacted]"},
    )
    assert (remote.stateless, list(remote.enabled_tools)) == (True, ["search"])
    assert (older.http.kind, list(older.disabled_tools)) == (2, ["rm", "mv"])
    assert [status.name for status in await ws.mcps.list(start=False)] == ["files"]
    assert await ws.mcps.list(agent_id="another") == []
    assert not any(status.inherited for status in await ws.mcps.list(start=False))


async def test_their_file_is_read_once(
    client: workspaced.Client, theirs: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    directory = tmp_path / "once"
    subprocess.run(["cp", "-a", theirs[0], directory], check=True)
    async with opened(client, "local", directory) as workspace:
        await workspace.mcps.remove("files")
        await workspace.close()
        again = await client.initialize(workspace_id=workspace.id, backend="local", local={"directory": str(directory)})
        assert await again.mcps.list(start=False) == []
        assert len(await again.mcps.list(agent_id=AGENT, session_id=SESSION, start=False)) == 3
        await again.reset()
        assert await again.mcps.list(agent_id=AGENT, session_id=SESSION, start=False) == []
        assert await again.skills.list(agent_id=AGENT) == []


async def test_a_server_that_they_declared_runs(
    client: workspaced.Client, theirs: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    directory = tmp_path / "runs"
    subprocess.run(["cp", "-a", theirs[0], directory], check=True)
    async with opened(client, "local", directory) as workspace:
        await workspace.mcps.remove("remote", agent_id=AGENT, session_id=SESSION)
        await workspace.mcps.remove("older", agent_id=AGENT, session_id=SESSION)
        result = await workspace.tools.call(
            "mcp__everything__echo", {"message": "hello"}, agent_id=AGENT, session_id=SESSION
        )
        assert result.text == "Echo: hello"


@pytest.mark.parametrize("backend", ["local", "docker"])
async def test_a_directory_written_here_opens_there(client: workspaced.Client, backend: str, tmp_path: Path) -> None:
    directory = tmp_path / "ours"
    directory.mkdir()
    skill = tmp_path / "careful"
    (skill / "scripts").mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: careful\ndescription: 'works: with care'\n---\n\nStep 1: ü 漢字.\n")
    (skill / "scripts/run.sh").write_text("#!/bin/sh\n")
    messages = [
        Message("system", [TextBlock("You are careful.")], name="system"),
        Message("user", [TextBlock("What is this?"), DataBlock("image/png", PICTURE, name="photo.png")], name="ann"),
        Message(
            "assistant",
            [
                ThinkingBlock("It is a directory.", signature="opaque=="),
                ToolCallBlock("call-1", "Bash", {"command": "ls"}),
                ToolResultBlock("call-1", "Bash", [TextBlock("a\n"), DataBlock("image/png", PICTURE)], "error"),
                HintBlock([TextBlock("Be brief."), DataBlock("image/png", PICTURE)], source="team"),
                DataBlock("audio/wav", url="https://example.org/a.wav"),
                TextBlock("ü, 漢字, 🙂, \u2028."),
            ],
            name="bot",
            metadata={"depth": {"a": [1, None, True, "x"]}},
        ),
    ]  # fmt: skip
    async with opened(client, backend, directory) as workspace:
        await workspace.skills.add(skill)
        await workspace.skills.add(skill, agent_id=AGENT)
        await workspace.offload.context(SESSION, messages)
        await workspace.offload.context(SESSION, [Message("user", [TextBlock("Thank you.")])])
        await workspace.offload.tool_result(SESSION, ToolResultBlock("call-9", "Bash", [TextBlock("out")]))

        seen = agentscope("read", directory, [None, AGENT, "another"], [SESSION])

        assert {agent: [skill["name"] for skill in skills] for agent, skills in seen["skills"].items()} == {
            "": ["careful"], AGENT: ["careful"], "another": [],
        }  # fmt: skip
        assert seen["skills"][AGENT][0]["description"] == "works: with care"
        assert seen["skills"][AGENT][0]["markdown"] == "Step 1: ü 漢字."
        assert (Path(seen["skills"][AGENT][0]["dir"]) / "scripts/run.sh").is_file()
        context = seen["contexts"][SESSION]
        assert [(line["role"], line["name"]) for line in context[:3]] == [
            ("system", "system"), ("user", "ann"), ("assistant", "bot"),
        ]  # fmt: skip
        kinds = ["thinking", "tool_call", "tool_result", "hint", "data", "text"]
        assert [block["type"] for block in context[2]["content"]] == kinds
        thinking, call, result, note, sound, text = context[2]["content"]
        assert (thinking["thinking"], thinking["signature"]) == ("It is a directory.", "opaque==")
        assert json.loads(call["input"]) == {"command": "ls"}
        assert (result["id"], result["state"], result["output"][0]["text"]) == ("call-1", "error", "a\n")
        assert (note["source"], note["hint"][0]["text"]) == ("team", "Be brief.")
        assert sound["source"]["url"] == "https://example.org/a.wav"
        assert text["text"] == "ü, 漢字, 🙂, \u2028."
        assert context[2]["metadata"] == {"depth": {"a": [1, None, True, "x"]}}
        urls = [context[1]["content"][1], result["output"][1], note["hint"][1]]
        for block in urls:
            scheme, _, name = block["source"]["url"].partition("workspace:///")
            assert (scheme, (directory / name).read_bytes()) == ("", PICTURE)
        # They write into it too, and that is seen here.
        agentscope("write", directory, [None], [])
        names = {skill.name for skill in await workspace.skills.list(agent_id=AGENT)}
        assert names == {"careful", "runs"}
        path = next(item.path for item in await workspace.offload.list(SESSION) if item.kind == "context")
        assert [message.name for message in await _messages(workspace, path)][:3] == ["system", "ann", "bot"]
        assert len(await _messages(workspace, path)) == 8


async def _messages(workspace: workspaced.Workspace, path: str) -> list[Message]:
    async with workspace.offload.messages(path) as messages:
        return [message async for message in messages]
