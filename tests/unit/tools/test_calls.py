"""CallTool and ListTools: events, ids, times, cancellation, and what does not fit a message."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.support.real_guest import RealGuest, RunningServer, reason, violations
from tests.unit.tools.conftest import Answer, Caller
from workspaced.v1 import (
    content_pb2,
    discovery_pb2,
    execution_pb2,
    management_pb2,
    management_pb2_grpc,
    process_pb2,
    tool_pb2,
)

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n"


async def refused(
    caller: Caller, name: str, given: dict[str, Any] | None = None, **fields: Any
) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await caller.call(name, given, **fields)
    return caught.value


async def test_the_builtin_tools_are_listed(caller: Caller) -> None:
    listed = await caller.discovery.ListTools(discovery_pb2.ListToolsRequest(workspace_id="w"))
    assert [tool.name for tool in listed.tools] == ["Bash", "Read", "Write", "Edit", "Glob", "Grep", "Skill"]
    assert {tool.name for tool in listed.tools if tool.read_only} == {"Read", "Glob", "Grep", "Skill"}
    assert all(tool.kind == tool_pb2.TOOL_KIND_BUILTIN and tool.source == "BUILTIN" for tool in listed.tools)
    assert all(tool.input_schema["type"] == "object" and tool.description for tool in listed.tools)


async def test_pages(caller: Caller) -> None:
    names, token = [], ""
    while True:
        request = discovery_pb2.ListToolsRequest(workspace_id="w", page_size=3, page_token=token)
        page = await caller.discovery.ListTools(request)
        names += [tool.name for tool in page.tools]
        token = page.next_page_token
        if not token:
            break
    assert len(names) == 7
    for fields in (
        {"page_token": "!"},
        {"page_token": "bm9uZQ"},
        {"page_size": -1},
        {"kind": 9},
        {"kind": tool_pb2.TOOL_KIND_BUILTIN, "mcp": "m"},
        {"agent_id": "../x"},
        {"session_id": ""},
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await caller.discovery.ListTools(discovery_pb2.ListToolsRequest(workspace_id="w", **fields))
        assert reason(caught.value) == "ARGUMENT_INVALID", fields


async def test_a_command_is_a_process_from_its_start_to_its_end(caller: Caller, guest: RealGuest) -> None:
    os.mkfifo(guest.workdir / "gate")
    stream = caller.open("Bash", {"command": "printf 'ü€'; cat gate; echo end"}, call_id="c1")
    answer, process_id = Answer(), ""
    async for event in stream:
        answer.events.append(event)
        if answer.streamed == "ü€":
            process_id = answer.events[0].process.process_id
            assert answer.events[0].process.call_id == "c1"
            listed = await caller.execution.ListProcesses(execution_pb2.ListProcessesRequest(workspace_id="w"))
            assert [process.process_id for process in listed.processes] == [process_id]
            attached: Any = caller.execution.AttachProcess(
                execution_pb2.AttachProcessRequest(workspace_id="w", process_id=process_id)
            )
            assert (await attached.read()).event.started.process.process_id == process_id
            assert (await attached.read()).event.output.data.decode() == "ü€"
            attached.cancel()
            await asyncio.to_thread((guest.workdir / "gate").write_text, "through\n")
    assert answer.kinds[0] == "process"
    assert answer.streamed == "ü€through\nend\n"
    assert answer.text == "ü€through\nend\n[exit code 0]"
    result = answer.result
    assert (result.call_id, result.is_error, result.state) == ("c1", False, content_pb2.TOOL_RESULT_STATE_SUCCESS)
    assert dict(result.structured) == {
        "exit_code": 0,
        "signal": None,
        "timed_out": False,
        "truncated": False,
        "process_id": process_id,
    }


async def test_a_command_killed_as_a_process_is_a_result(caller: Caller) -> None:
    answer = Answer()
    async for event in caller.open("Bash", {"command": "echo here; sleep 60"}):
        answer.events.append(event)
        if event.HasField("text"):
            await caller.execution.SignalProcess(
                execution_pb2.SignalProcessRequest(
                    workspace_id="w", process_id=answer.events[0].process.process_id, signal="KILL"
                )
            )
    assert answer.text == "here\n[killed by KILL]"
    assert answer.result.state == content_pb2.TOOL_RESULT_STATE_ERROR


async def test_the_time_of_a_call_is_not_its_deadline(caller: Caller) -> None:
    started = time.monotonic()
    answer = await caller.call("Bash", {"command": "echo a; sleep 60"}, timeout=Duration(nanos=300_000_000))
    assert time.monotonic() - started < 20
    assert answer.text == "a\n[stopped after 0.3 s: the time was up]"
    assert answer.result.is_error
    assert answer.result.state == content_pb2.TOOL_RESULT_STATE_INTERRUPTED
    stream = caller.execution.CallTool(_bash("sleep 60"), timeout=0.5)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await _rest(stream)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await _nothing_runs(caller)


async def test_cancellation_ends_the_process_though_somebody_watches(caller: Caller) -> None:
    stream: Any = caller.execution.CallTool(_bash("trap '' TERM; echo on; sleep 60"))
    process_id = (await stream.read()).process.process_id
    assert (await stream.read()).text.delta == "on\n"
    attached: Any = caller.execution.AttachProcess(
        execution_pb2.AttachProcessRequest(workspace_id="w", process_id=process_id)
    )
    assert (await attached.read()).event.HasField("started")
    stream.cancel()
    assert (await _rest(attached))[-1].event.exited.signal == "KILL"
    await _nothing_runs(caller)


async def test_a_call_id_is_taken_while_its_call_runs(caller: Caller, guest: RealGuest) -> None:
    os.mkfifo(guest.workdir / "gate")
    stream = caller.open("Bash", {"command": "cat gate"}, call_id="c", session_id="s")
    await stream.read()
    error = await refused(caller, "Bash", {"command": "true"}, call_id="c", session_id="s")
    assert (error.code(), reason(error)) == (grpc.StatusCode.ALREADY_EXISTS, "TOOL_CALL_RUNNING")
    for fields in ({"session_id": "other"}, {}):
        assert (await caller.call("Bash", {"command": "true"}, call_id="c", **fields)).text == "[exit code 0]"
    await asyncio.to_thread((guest.workdir / "gate").write_text, "")
    await _rest(stream)
    assert (await caller.call("Bash", {"command": "true"}, call_id="c", session_id="s")).result.call_id == "c"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 300}, "name"),
        ({"name": "Bash", "call_id": "a/b"}, "call_id"),
        ({"name": "Bash", "call_id": ".a"}, "call_id"),
        ({"name": "Bash", "call_id": "a" * 201}, "call_id"),
        ({"name": "Bash", "timeout": Duration()}, "timeout"),
        ({"name": "Bash", "timeout": Duration(seconds=-1)}, "timeout"),
        ({"name": "Bash", "session_id": ""}, "session_id"),
        ({"name": "Bash", "agent_id": "a\nb"}, "agent_id"),
    ],
)
async def test_wrong_requests(caller: Caller, fields: dict[str, Any], field: str) -> None:
    error = await refused(caller, fields.pop("name"), {"command": "touch ran"}, **fields)
    assert violations(error) == {field}


async def test_no_such_tool(caller: Caller) -> None:
    for name in ("Nope", "mcp__none__x", "bash"):
        error = await refused(caller, name)
        assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "TOOL_NOT_FOUND")


async def test_parallel_calls_do_not_disturb_each_other(caller: Caller, guest: RealGuest) -> None:
    async def one(number: int) -> None:
        name = f"d/{number}.txt"
        assert (await caller.call("Write", {"file_path": name, "content": f"n{number}\n"})).result.is_error is False
        edited = await caller.call("Edit", {"file_path": name, "old_string": "n", "new_string": "m"})
        assert not edited.result.is_error, edited.text
        shown = await caller.call("Bash", {"command": f"cat {name}; echo $$ >> pids"})
        assert shown.text == f"m{number}\n[exit code 0]"
        found = await caller.call("Grep", {"pattern": f"^m{number}$", "path": "d"})
        assert found.text == name

    await asyncio.gather(*(one(number) for number in range(12)))
    assert len(set((guest.workdir / "pids").read_text().split())) == 12


async def test_sessions_and_agents_read_for_themselves(caller: Caller, guest: RealGuest) -> None:
    (guest.workdir / "f").write_text("a")
    edit = {"file_path": "f", "old_string": "a", "new_string": "b"}
    await caller.call("Read", {"file_path": "f"}, agent_id="a", session_id="s")
    for fields in ({}, {"agent_id": "a"}, {"session_id": "s"}, {"agent_id": "s", "session_id": "a"}):
        assert "not been read" in (await caller.call("Edit", edit, **fields)).text
    assert not (await caller.call("Edit", edit, agent_id="a", session_id="s")).result.is_error


async def test_what_overflows_is_stored_by_the_call(caller: Caller, guest: RealGuest) -> None:
    command = {"command": "yes 0123456789 | head -n 20000"}
    answer = await caller.call("Bash", command, call_id="c", session_id="s", offload_over_bytes=1000)
    stored = answer.result.offloaded
    whole = "0123456789\n" * 20_000 + "[exit code 0]"
    assert (guest.workdir / "sessions" / "s" / "tool_result-c.txt").read_text().rstrip("\n") == whole
    assert (stored.url, stored.media_type) == ("workspace:///sessions/s/tool_result-c.txt", "text/plain")
    assert len(answer.text.encode()) < 1300
    assert answer.text.startswith("0123456789\n")
    assert answer.text.endswith("0123456789\n[exit code 0]")
    left_out = len(whole) - 1000
    assert (
        f"\n[{left_out} bytes left out here. The whole output is in {stored.path}: use Read or Grep on it.]\n"
        in answer.text
    )
    assert answer.streamed == whole.removesuffix("[exit code 0]")
    assert (await caller.call("Read", {"file_path": stored.path, "limit": 1})).text.startswith("     1\t0123456789\n")
    small = await caller.call("Bash", {"command": "echo small"}, offload_over_bytes=1000)
    assert small.text == "small\n[exit code 0]"
    assert not small.result.HasField("offloaded")


async def test_images(caller: Caller, guest: RealGuest) -> None:
    picture = PNG + os.urandom(200_000)
    (guest.workdir / "p.png").write_bytes(picture)
    answer = await caller.call("Read", {"file_path": "p.png"})
    [block] = answer.result.content
    assert (block.data.bytes, block.data.media_type, block.data.name) == (picture, "image/png", "p.png")
    assert answer.kinds == ["data", "result"]
    assert answer.events[0].data == block.data
    answer = await caller.call("Read", {"file_path": "p.png"}, offload_over_bytes=1000)
    [block] = answer.result.content
    assert block.data.url.startswith("workspace:///data/")
    assert (guest.workdir / block.data.url.removeprefix("workspace:///")).read_bytes() == picture
    assert answer.events[0].data == block.data


async def test_a_result_above_the_message_limit(caller: Caller, guest: RealGuest) -> None:
    (guest.workdir / "wide").write_text(("x" * 1990 + "\n") * 60)
    answer = await caller.call("Read", {"file_path": "wide"})
    assert len(answer.text) > 100_000
    skill = guest.workdir / "skills" / "default" / "s"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: s\ndescription: d\n---\n" + "x" * 1_000_000)
    assert len((await caller.call("Skill", {"skill": "s"})).text) > 1_000_000


async def test_the_shell_is_bash_where_there_is_one(caller: Caller) -> None:
    assert (await caller.call("Bash", {"command": "[[ a == a ]] && echo ${BASH_VERSION:+bash}"})).text == (
        "bash\n[exit code 0]"
    )


async def test_a_purge_ends_the_calls_of_its_session(server: RunningServer, caller: Caller) -> None:
    stream = caller.open("Bash", {"command": "echo on; sleep 60"}, session_id="s", agent_id="a")
    assert (await stream.read()).HasField("process")
    management = management_pb2_grpc.ManagementServiceStub(server.channel)
    await management.PurgeSession(management_pb2.PurgeSessionRequest(workspace_id="w", agent_id="a", session_id="s"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await _rest(stream)
    assert reason(caught.value) == "SESSION_PURGED"
    await _nothing_runs(caller)


def _bash(command: str) -> tool_pb2.CallToolRequest:
    request = tool_pb2.CallToolRequest(workspace_id="w", name="Bash")
    request.input["command"] = command
    return request


async def _rest(stream: Any) -> list[Any]:
    """What is still to come of a stream that `read` was called on."""
    found = []
    while (message := await stream.read()) is not grpc.aio.EOF:
        found.append(message)
    return found


async def _nothing_runs(caller: Caller) -> None:
    request = execution_pb2.ListProcessesRequest(workspace_id="w", state=process_pb2.PROCESS_STATE_RUNNING)
    async with asyncio.timeout(20):
        while (await caller.execution.ListProcesses(request)).processes:
            await asyncio.sleep(0.05)
