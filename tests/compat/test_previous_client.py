"""A client of an earlier revision of the API does all its work with the present server."""

from __future__ import annotations

import base64
import io
import sys
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.compat.previous import REVISIONS, Contract, PreviousClient
from tests.support.server import ServerProcess

MCP_SERVER = Path(__file__).parents[1] / "support/mcp_server.py"
WS = {"workspace_id": "compat"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path_factory.mktemp("compat") / "state")
    running.start()
    yield running
    assert running.stop() == 0


@pytest.fixture(params=REVISIONS)
async def client(server: ServerProcess, request: pytest.FixtureRequest) -> AsyncIterator[PreviousClient]:
    """A client with a workspace."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        client = PreviousClient(Contract(request.param), channel)
        await client.ask("InitializeWorkspace", {**WS, "spec": {"backend": "BACKEND_LOCAL"}})
        yield client
        await client.ask("DeleteWorkspace", WS)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def first(client: PreviousClient, rpc: str, request: dict[str, Any], event: str) -> Any:
    """The first such event of a stream that does not end."""
    async with aclosing(client.stream(rpc, request)) as stream:
        async for answer in stream:
            if answer.WhichOneof("event") == event:
                return answer
    raise AssertionError(f"{rpc} ended without {event}")


async def test_server_service(client: PreviousClient) -> None:
    info = await client.ask("GetServerInfo", {})
    assert info.api_revision >= 2
    assert info.backends[0].available
    assert client.unanswered("ServerService") == []


async def test_lifecycle_service(client: PreviousClient) -> None:
    made = await client.ask("InitializeWorkspace", {**WS, "spec": {"backend": "BACKEND_LOCAL"}})
    assert (made.created, made.workspace.workspace_id) == (False, "compat")
    got = await client.ask("GetWorkspace", WS)
    assert got.workspace.workdir
    listed = await client.ask("ListWorkspaces", {"filter": {"workspace_ids": ["compat"]}})
    assert [workspace.workspace_id for workspace in listed.workspaces] == ["compat"]
    watched = await first(client, "WatchWorkspaces", {"filter": {"workspace_ids": ["compat"]}}, "workspace")
    assert watched.workspace.state == got.workspace.state
    await client.ask("ResetWorkspace", {**WS, "wipe_files": True, "kill_processes": True})
    closed = await client.ask("CloseWorkspace", WS)
    assert closed.workspace.state != got.workspace.state

    person = {"policy": "ALLOCATION_POLICY_PER_USER", "user_id": "ada", "spec": {"backend": "BACKEND_LOCAL"}}
    acquired = await client.ask("AcquireWorkspace", person)
    assert acquired.lease.workspace_id == acquired.workspace.workspace_id
    renewed = await client.ask("RenewLease", {"lease_id": acquired.lease.lease_id, "lease_duration": "120s"})
    assert renewed.lease.expire_time.seconds > acquired.lease.expire_time.seconds
    await client.ask("ReleaseWorkspace", {"lease_id": acquired.lease.lease_id})
    await client.ask("DeleteWorkspace", {"workspace_id": acquired.workspace.workspace_id})
    assert client.unanswered("LifecycleService") == []


async def test_execution_service(client: PreviousClient) -> None:
    ran = await client.ask("RunProcess", {**WS, "spec": {"shell_command": "echo out; echo err >&2; exit 3"}})
    assert (ran.stdout, ran.stderr, ran.process.exit.exit_code) == (b"out\n", b"err\n", 3)

    events = await client.answers(
        "Exec",
        {"start": {**WS, "process_id": "cat", "spec": {"shell_command": "cat", "stdin": "STDIN_MODE_OPEN"}}},
        {"stdin": {"offset": 0, "data": b64(b"through")}},
        {"close_stdin": {"offset": 7}},
    )
    kinds = [answer.event.WhichOneof("event") for answer in events]
    assert (kinds[0], kinds[-1]) == ("started", "exited")
    assert b"".join(answer.event.output.data for answer in events) == b"through"
    assert events[-1].event.exited.exit_code == 0

    cat = {**WS, "process_id": "open"}
    spec = {"shell_command": "cat; sleep 600", "stdin": "STDIN_MODE_OPEN"}
    await client.ask("StartProcess", {**cat, "spec": spec})
    written = await client.ask("WriteStdin", {**cat, "data": b64(b"late"), "close": True})
    assert written.next_offset == 4
    async with aclosing(client.stream("AttachProcess", cat)) as attached:
        async for answer in attached:
            if answer.event.output.data == b"late":
                break
    assert (await client.ask("GetProcess", cat)).process.next_offset == 4
    listed = await client.ask("ListProcesses", {**WS, "state": "PROCESS_STATE_RUNNING"})
    assert [process.process_id for process in listed.processes] == ["open"]
    assert (await client.ask("SignalProcess", {**cat, "signal": "KILL"})).signaled >= 1
    assert (await client.ask("WaitProcess", {**cat, "timeout": "30s"})).exit.signal == "KILL"

    answers = await client.answers("CallTool", {**WS, "name": "Bash", "input": {"command": "echo tool"}})
    assert answers[-1].result.content[0].text.text.startswith("tool\n")
    assert client.unanswered("ExecutionService") == []


async def test_file_service(client: PreviousClient) -> None:
    async with aclosing(client.stream("WatchFiles", {**WS, "path": "."})) as changes:
        assert (await anext(changes)).WhichOneof("event") == "ready"
        header = {"header": {**WS, "path": "a.txt"}}
        await client.ask("WriteFile", header, {"data": b64(b"one ")}, {"data": b64(b"two")})
        async for change in changes:
            if change.change.path.endswith("a.txt"):
                break
    parts = await client.answers("ReadFile", {**WS, "path": "a.txt", "offset": 4})
    assert [part.WhichOneof("part") for part in parts] == ["info", "data", "end"]
    assert parts[1].data == b"two"
    assert (await client.ask("StatFile", {**WS, "path": "a.txt"})).info.size == 7
    assert (await client.ask("MakeDirectory", {**WS, "path": "d/e", "parents": True})).created
    await client.ask("CopyFile", {**WS, "source": "a.txt", "destination": "d/b.txt"})
    await client.ask("MoveFile", {**WS, "source": "a.txt", "destination": "d/e/c.txt"})
    listed = await client.ask("ListFiles", {**WS, "path": "d", "recursive": True})
    assert [Path(file.path).name for file in listed.files if file.size == 7] == ["b.txt", "c.txt"]
    assert (await client.ask("RemoveFile", {**WS, "path": "d", "recursive": True})).removed == 4
    assert client.unanswered("FileService") == []


SERVE = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); c = s.accept()[0]; c.sendall(c.recv(99).upper())"  # noqa: E501


async def test_port_service(client: PreviousClient) -> None:
    server = {**WS, "process_id": "server"}
    await client.ask("StartProcess", {**server, "spec": {"argv": {"args": [sys.executable, "-c", SERVE]}}})
    port = 0
    async with aclosing(client.stream("AttachProcess", server)) as attached:
        async for answer in attached:
            if answer.event.output.data:
                port = int(answer.event.output.data)
                break
    assert port in [listening.port for listening in (await client.ask("ListPorts", WS)).ports]
    parts = await client.answers("Tunnel", {"open": {**WS, "port": port}}, {"data": b64(b"hello")})
    assert parts[0].WhichOneof("part") == "opened"
    assert b"".join(part.data for part in parts) == b"HELLO"
    assert client.unanswered("PortService") == []


def archive() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        made.writestr("SKILL.md", "---\nname: greet\ndescription: Say hello.\n---\nHello.\n")
    return content.getvalue()


async def test_discovery_and_management_services(client: PreviousClient) -> None:
    start = {"start": {**WS, "agent_id": "a", "format": "SKILL_ARCHIVE_FORMAT_ZIP"}}
    assert (await client.ask("AddSkill", start, {"chunk": b64(archive())})).skill.name == "greet"
    skills = await client.ask("ListSkills", {**WS, "agent_id": "a"})
    assert [skill.description for skill in skills.skills] == ["Say hello."]
    skill = await client.ask("GetSkill", {**WS, "agent_id": "a", "name": "greet"})
    assert "Hello." in skill.markdown

    mcp = {"name": "m", "stdio": {"command": sys.executable, "args": [str(MCP_SERVER)]}}
    added = await client.ask("AddMcp", {**WS, "agent_id": "a", "session_id": "s", "mcp": mcp})
    assert added.mcp.tool_count > 0
    pair = {**WS, "agent_id": "a", "session_id": "s"}
    assert [status.mcp.name for status in (await client.ask("ListMcps", pair)).mcps] == ["m"]
    tools = (await client.ask("ListTools", pair)).tools
    assert {"Bash", "mcp__m__echo"} <= {tool.name for tool in tools}
    assert "greet" in (await client.ask("GetInstructions", pair)).instructions
    resources = (await client.ask("ListMcpResources", pair)).resources
    uri = next(resource.uri for resource in resources if resource.uri)
    assert (await client.ask("ReadMcpResource", {**pair, "mcp": "m", "uri": uri})).contents
    prompts = (await client.ask("ListMcpPrompts", pair)).prompts
    arguments = {argument.name: "x" for argument in prompts[0].arguments}
    prompt = {**pair, "mcp": "m", "name": prompts[0].name, "arguments": arguments}
    assert (await client.ask("GetMcpPrompt", prompt)).messages
    assert (await client.ask("RemoveMcp", {**pair, "name": "m"})).removed
    await client.ask("PurgeSession", pair)
    assert (await client.ask("RemoveSkill", {**WS, "agent_id": "a", "name": "greet"})).removed
    await client.ask("PurgeAgent", {**WS, "agent_id": "a"})
    assert client.unanswered("DiscoveryService") == []
    assert client.unanswered("ManagementService") == []


async def test_offload_service(client: PreviousClient) -> None:
    message = {"role": "ROLE_USER", "content": [{"text": {"text": "remember"}}]}
    context = await client.ask(
        "OffloadContext", {"start": {**WS, "session_id": "s", "request_id": "r"}}, {"message": message}
    )
    assert context.message_count == 1
    result = {"id": "t1", "name": "Bash", "output": [{"text": {"text": "long"}}], "state": "TOOL_RESULT_STATE_SUCCESS"}
    await client.ask("OffloadToolResult", {**WS, "session_id": "s", "result": result, "request_id": "q"})
    data = await client.ask("OffloadData", {"start": {**WS, "media_type": "text/plain"}}, {"chunk": b64(b"blob")})
    assert data.data.url.startswith("workspace:")
    listed = await client.ask("ListOffloads", {**WS, "session_id": "s"})
    assert len(listed.offloads) == 2
    read = await client.answers("ReadOffload", {**WS, "path": context.offload.path, "messages": {"skip": 0}})
    (part,) = (part for part in read if part.WhichOneof("part") == "message")
    assert part.message.message.content[0].text.text == "remember"
    assert client.unanswered("OffloadService") == []
