"""ExecutionService over a real guest."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from typing import TypeAlias

import grpc
import pytest

from tests.support.real_guest import WORKSPACE, RealGuest, RunningServer, error_info, reason, violations
from workspaced.v1 import execution_pb2 as execution_pb
from workspaced.v1 import execution_pb2_grpc, process_pb2
from workspaced_server.api import attachment

pytestmark = pytest.mark.anyio

Stub: TypeAlias = "execution_pb2_grpc.ExecutionServiceAsyncStub"
Event = execution_pb.ProcessEvent


def shell(command: str, **fields: object) -> process_pb2.ProcessSpec:
    return process_pb2.ProcessSpec(shell_command=command, **fields)  # type: ignore[arg-type]


def start(spec: process_pb2.ProcessSpec, process_id: str = "") -> execution_pb.ExecRequest:
    return execution_pb.ExecRequest(
        start=execution_pb.ExecStart(workspace_id=WORKSPACE, process_id=process_id, spec=spec)
    )


def stdin(offset: int, data: bytes) -> execution_pb.ExecRequest:
    return execution_pb.ExecRequest(stdin=execution_pb.StdinChunk(offset=offset, data=data))


CLOSE = execution_pb.ExecRequest(close_stdin=execution_pb.CloseStdin())


class Execution:
    """One Exec call: what is sent, and the events that come."""

    def __init__(self, stub: Stub) -> None:
        self.call = stub.Exec()

    async def send(self, *requests: execution_pb.ExecRequest) -> None:
        for request in requests:
            await self.call.write(request)

    async def events(self) -> AsyncIterator[Event]:
        while True:
            response = await self.call.read()
            if not isinstance(response, execution_pb.ExecResponse):
                return
            yield response.event

    async def next(self, kind: str) -> Event:
        async for event in self.events():
            if event.WhichOneof("event") == kind:
                return event
        raise AssertionError(f"no {kind}")

    async def fails(self) -> grpc.aio.AioRpcError:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in self.events():
                pass
        return caught.value


def run(spec: process_pb2.ProcessSpec, **fields: object) -> execution_pb.RunProcessRequest:
    return execution_pb.RunProcessRequest(workspace_id=WORKSPACE, spec=spec, **fields)  # type: ignore[arg-type]


async def test_run_returns_output_exit_code_and_process(execution: Stub, server: RunningServer) -> None:
    server.workspaces.env = {"A": "workspace", "B": "workspace"}
    spec = shell("printf $A$B; printf err >&2; exit 42", env={"B": "process", "SECRET": "s3cret"})
    response = await execution.RunProcess(run(spec))
    assert (response.stdout, response.stderr, response.truncated) == (b"workspaceprocess", b"err", False)
    process = response.process
    assert process.process_id.startswith("p-")
    assert (process.exit.reason, process.exit.exit_code) == (process_pb2.EXIT_REASON_EXITED, 42)
    assert process.state == process_pb2.PROCESS_STATE_EXITED
    assert dict(process.spec.env) == {"B": "[redacted]", "SECRET": "[redacted]"}
    assert process.next_offset == len(response.stdout) + len(response.stderr)
    got = await execution.GetProcess(
        execution_pb.GetProcessRequest(workspace_id=WORKSPACE, process_id=process.process_id)
    )
    assert got.process.exit == process.exit
    assert got.process.spec == process.spec


async def test_run_passes_input_and_caps_output(execution: Stub) -> None:
    data = random.Random(1).randbytes(1 << 20)
    response = await execution.RunProcess(run(shell("cat"), stdin=data))
    assert response.stdout == data
    response = await execution.RunProcess(
        run(shell("cat; cat /dev/zero | head -c 5000000 >&2"), stdin=data, max_output_bytes=1000)
    )
    assert (response.stdout, response.stderr, response.truncated) == (data[:1000], bytes(1000), True)
    # One that does not read what it is given ends as it ends.
    response = await execution.RunProcess(run(shell("exit 3"), stdin=data))
    assert response.process.exit.exit_code == 3


async def test_a_command_that_cannot_start_is_an_error_of_the_call(execution: Stub) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await execution.RunProcess(run(process_pb2.ProcessSpec(argv=process_pb2.Argv(args=["/no/such/program"]))))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert reason(caught.value) == "PROCESS_START_FAILED"


async def test_starting_the_same_id_again(execution: Stub) -> None:
    request = execution_pb.StartProcessRequest(workspace_id=WORKSPACE, process_id="one", spec=shell("sleep 60"))
    first = await execution.StartProcess(request)
    again = await execution.StartProcess(request)
    assert (first.existing, again.existing) == (False, True)
    assert first.process.pid == again.process.pid
    request.spec.shell_command = "sleep 61"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await execution.StartProcess(request)
    assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert reason(caught.value) == "PROCESS_EXISTS"


async def test_exec_orders_events_and_ends_with_the_exit(execution: Stub) -> None:
    call = Execution(execution)
    await call.send(start(shell("echo out; echo err >&2; sleep 0.05; echo out2")))
    events = [event async for event in call.events()]
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds[0] == "started"
    assert kinds[-1] == "exited"
    assert (kinds.count("started"), kinds.count("exited"), kinds.count("eof")) == (1, 1, 2)
    offset = 0
    for event in events:
        if event.WhichOneof("event") == "output":
            assert event.output.offset == offset
            offset += len(event.output.data)
    assert offset == len("out\nerr\nout2\n")
    assert await call.call.code() is grpc.StatusCode.OK


async def test_an_attachment_continues_at_any_byte(execution: Stub) -> None:
    response = await execution.RunProcess(run(shell("seq 1 20000")))
    process_id, whole = response.process.process_id, response.stdout
    for offset in (0, 1, 65_537, len(whole) - 1, len(whole)):
        request = execution_pb.AttachProcessRequest(workspace_id=WORKSPACE, process_id=process_id, offset=offset)
        events = [item.event async for item in execution.AttachProcess(request)]
        assert events[0].started.next_offset == offset
        assert b"".join(event.output.data for event in events) == whole[offset:]
        assert events[-1].exited == response.process.exit
    request = execution_pb.AttachProcessRequest(workspace_id=WORKSPACE, process_id=process_id, offset=len(whole) + 1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await anext(aiter(execution.AttachProcess(request)))
    assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE
    assert error_info(caught.value).metadata["expected_offset"] == str(len(whole))


async def test_no_follow_ends_at_the_present_end(execution: Stub) -> None:
    await execution.StartProcess(
        execution_pb.StartProcessRequest(workspace_id=WORKSPACE, process_id="p", spec=shell("echo x; sleep 60"))
    )
    follow = execution_pb.AttachProcessRequest(workspace_id=WORKSPACE, process_id="p")
    reader = execution.AttachProcess(follow)
    async for item in reader:
        if item.event.WhichOneof("event") == "output":
            break
    reader.cancel()
    look = execution_pb.AttachProcessRequest(workspace_id=WORKSPACE, process_id="p", no_follow=True)
    events = [item.event.WhichOneof("event") async for item in execution.AttachProcess(look)]
    assert events == ["started", "output"]


async def test_stdin_is_exactly_once_by_offset(execution: Stub) -> None:
    data = random.Random(2).randbytes(3_000_000)
    call = Execution(execution)
    await call.send(start(shell("sha256sum", stdin=process_pb2.STDIN_MODE_OPEN), "in"))
    await call.next("started")
    await call.send(stdin(0, data[:1_000_000]), stdin(500_000, data[500_000:1_500_000]))
    while (await call.next("stdin_ack")).stdin_ack.offset < 1_500_000:
        pass
    call.call.cancel()
    again = Execution(execution)
    attach = execution_pb.ExecAttach(workspace_id=WORKSPACE, process_id="in")
    await again.send(execution_pb.ExecRequest(attach=attach))
    started = (await again.next("started")).started.process
    assert (started.stdin_offset, started.stdin_open) == (1_500_000, True)
    await again.send(stdin(1_000_000, data[1_000_000:2_000_000]), stdin(2_000_000, data[2_000_000:]), CLOSE, CLOSE)
    assert (await again.next("output")).output.data.split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert (await again.next("exited")).exited.exit_code == 0


async def test_a_hole_in_stdin_is_refused_with_the_offset_that_fits(execution: Stub) -> None:
    for requests in ([stdin(5, b"x")], [stdin(0, b"abc"), stdin(4, b"x")]):
        call = Execution(execution)
        await call.send(start(shell("cat", stdin=process_pb2.STDIN_MODE_OPEN)), *requests)
        error = await call.fails()
        assert (error.code(), reason(error)) == (grpc.StatusCode.OUT_OF_RANGE, "STDIN_OFFSET_INVALID")
        assert error_info(error).metadata["expected_offset"] == ("0" if len(requests) == 1 else "3")


async def test_bytes_after_the_close_are_refused(execution: Stub) -> None:
    call = Execution(execution)
    spec = shell("cat >/dev/null; sleep 60", stdin=process_pb2.STDIN_MODE_OPEN)
    await call.send(start(spec), stdin(0, b"abc"), CLOSE, stdin(0, b"abc"), stdin(3, b"more"))
    error = await call.fails()
    assert (error.code(), reason(error)) == (grpc.StatusCode.FAILED_PRECONDITION, "STDIN_CLOSED")


async def test_a_process_that_stops_reading_ends_the_call_with_its_exit(execution: Stub) -> None:
    call = Execution(execution)
    await call.send(start(shell("head -c 3; exit 5", stdin=process_pb2.STDIN_MODE_OPEN)))
    await call.send(*(stdin(n * 100_000, bytes(100_000)) for n in range(8)))
    assert (await call.next("exited")).exited.exit_code == 5


async def test_write_stdin_waits_for_the_pipe_and_is_idempotent(execution: Stub) -> None:
    spec = shell("sha256sum", stdin=process_pb2.STDIN_MODE_OPEN)
    await execution.StartProcess(execution_pb.StartProcessRequest(workspace_id=WORKSPACE, process_id="w", spec=spec))
    write = execution_pb.WriteStdinRequest(workspace_id=WORKSPACE, process_id="w", data=bytes(1 << 20))
    for _ in range(2):
        assert (await execution.WriteStdin(write)).next_offset == 1 << 20
    write.offset = 2 << 20
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await execution.WriteStdin(write)
    assert reason(caught.value) == "STDIN_OFFSET_INVALID"
    write.offset, write.close = 1 << 20, True
    assert (await execution.WriteStdin(write)).next_offset == 2 << 20
    wait = execution_pb.WaitProcessRequest(workspace_id=WORKSPACE, process_id="w")
    assert (await execution.WaitProcess(wait)).exit.exit_code == 0


async def test_pty_resize_and_signal(execution: Stub) -> None:
    call = Execution(execution)
    spec = shell("stty size; read x; stty size; sleep 60", pty=process_pb2.PtySize(cols=80, rows=24))
    await call.send(start(spec))
    assert (await call.next("output")).output.data.strip() == b"24 80"
    await call.send(execution_pb.ExecRequest(resize=process_pb2.PtySize(cols=100, rows=30)), stdin(0, b"\n"))
    seen = b""
    while b"30 100" not in seen:
        seen += (await call.next("output")).output.data
    await call.send(execution_pb.ExecRequest(signal=execution_pb.ExecSignal(name="SIGKILL")))
    exited = (await call.next("exited")).exited
    assert (exited.reason, exited.signal) == (process_pb2.EXIT_REASON_SIGNALED, "KILL")


async def test_requests_that_make_no_sense(execution: Stub) -> None:
    cases: list[tuple[list[execution_pb.ExecRequest], str]] = [
        ([], "request"),
        ([stdin(0, b"x")], "request"),
        ([start(shell("sleep 9")), start(shell("sleep 9"))], "start"),
        ([start(shell("sleep 9")), execution_pb.ExecRequest()], "request"),
        ([start(shell("sleep 9")), execution_pb.ExecRequest(resize=process_pb2.PtySize())], "resize.cols"),
        ([start(shell("sleep 9")), execution_pb.ExecRequest(signal=execution_pb.ExecSignal(name="NO"))], "signal.name"),
    ]
    for requests, field in cases:
        call = Execution(execution)
        await call.send(*requests)
        await call.call.done_writing()
        error = await call.fails()
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert field in violations(error)
    call = Execution(execution)
    await call.send(start(shell("sleep 9")), execution_pb.ExecRequest(resize=process_pb2.PtySize(cols=1, rows=1)))
    assert reason(await call.fails()) == "NO_PTY"


async def test_list_pages_and_states(execution: Stub) -> None:
    for n in range(5):
        spec = shell("sleep 60" if n % 2 else "true")
        request = execution_pb.StartProcessRequest(workspace_id=WORKSPACE, process_id=f"p{n}", spec=spec)
        await execution.StartProcess(request)
    for n in (0, 2, 4):
        await execution.WaitProcess(execution_pb.WaitProcessRequest(workspace_id=WORKSPACE, process_id=f"p{n}"))
    found, token = [], ""
    while True:
        page = await execution.ListProcesses(
            execution_pb.ListProcessesRequest(workspace_id=WORKSPACE, page_size=2, page_token=token)
        )
        found += [process.process_id for process in page.processes]
        token = page.next_page_token
        if not token:
            break
    assert found == [f"p{n}" for n in range(5)]
    running = await execution.ListProcesses(
        execution_pb.ListProcessesRequest(workspace_id=WORKSPACE, state=process_pb2.PROCESS_STATE_RUNNING)
    )
    assert [process.process_id for process in running.processes] == ["p1", "p3"]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await execution.ListProcesses(execution_pb.ListProcessesRequest(workspace_id=WORKSPACE, page_token="ü"))
    assert violations(caught.value) == {"page_token"}


async def test_wait_with_a_limit_and_signal(execution: Stub) -> None:
    await execution.StartProcess(
        execution_pb.StartProcessRequest(workspace_id=WORKSPACE, process_id="p", spec=shell("sleep 60"))
    )
    wait = execution_pb.WaitProcessRequest(workspace_id=WORKSPACE, process_id="p")
    wait.timeout.FromMilliseconds(20)
    assert not (await execution.WaitProcess(wait)).HasField("exit")
    kill = execution_pb.SignalProcessRequest(workspace_id=WORKSPACE, process_id="p", signal="term")
    assert (await execution.SignalProcess(kill)).signaled >= 1
    wait.ClearField("timeout")
    assert (await execution.WaitProcess(wait)).exit.signal == "TERM"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await execution.SignalProcess(kill)
    assert reason(caught.value) == "PROCESS_EXITED"


async def test_heartbeats_when_nothing_happens(execution: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachment, "HEARTBEAT_SECONDS", 0.05)
    call = Execution(execution)
    await call.send(start(shell("printf abc; sleep 60")))
    await call.next("output")
    for _ in range(3):
        assert (await call.next("heartbeat")).heartbeat.next_offset == 3
    call.call.cancel()


async def test_the_same_run_again_goes_on_after_a_call_that_broke_off(execution: Stub, guest: RealGuest) -> None:
    again = run(shell("echo began >> log; while [ ! -e go ]; do sleep 0.02; done; echo done"), process_id="again")
    call = execution.RunProcess(again)
    await _exists(execution, "again")
    call.cancel()  # a connection that breaks looks the same to a server
    call = execution.RunProcess(again)
    (guest.workdir / "go").touch()
    response = await call
    assert (response.stdout, response.process.exit.exit_code) == (b"done\n", 0)
    assert (guest.workdir / "log").read_text() == "began\n"


async def test_a_cancelled_run_ends_its_process_unless_kept(execution: Stub, guest: RealGuest) -> None:
    for name, policy, state in (
        ("killed", process_pb2.DISCONNECT_POLICY_UNSPECIFIED, process_pb2.PROCESS_STATE_EXITED),
        ("kept", process_pb2.DISCONNECT_POLICY_KEEP, process_pb2.PROCESS_STATE_RUNNING),
    ):
        spec = shell("trap '' TERM; sleep 61 & sleep 60", disconnect_policy=policy)
        spec.kill_grace.FromMilliseconds(50)
        call = execution.RunProcess(run(spec, process_id=name))
        wait = execution_pb.WaitProcessRequest(workspace_id=WORKSPACE, process_id=name)
        await _exists(execution, name)
        call.cancel()
        wait.timeout.FromMilliseconds(20000 if name == "killed" else 50)
        response = await execution.WaitProcess(wait)
        assert response.process.state == state
        if name == "kept":
            kill = execution_pb.SignalProcessRequest(workspace_id=WORKSPACE, process_id=name, signal="KILL")
            await execution.SignalProcess(kill)
        else:
            assert response.exit.reason == process_pb2.EXIT_REASON_CANCELLED


async def test_a_deadline_ends_the_process_too(execution: Stub) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await execution.RunProcess(run(shell("sleep 60"), process_id="late"), timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    wait = execution_pb.WaitProcessRequest(workspace_id=WORKSPACE, process_id="late")
    assert (await execution.WaitProcess(wait)).exit.reason == process_pb2.EXIT_REASON_CANCELLED


async def _exists(execution: Stub, process_id: str) -> None:
    look = execution_pb.ListProcessesRequest(workspace_id=WORKSPACE)
    async with asyncio.timeout(5):
        while True:
            processes = (await execution.ListProcesses(look)).processes
            if process_id in {process.process_id for process in processes}:
                return


async def test_a_dead_guest_is_unavailable_and_never_an_exit(execution: Stub, guest: RealGuest) -> None:
    call = Execution(execution)
    await call.send(start(shell("sleep 60")))
    await call.next("started")
    guest.process.kill()
    error = await call.fails()
    assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "WORKSPACE_UNREACHABLE")


async def test_an_unknown_workspace(execution: Stub) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await execution.GetProcess(execution_pb.GetProcessRequest(workspace_id="other", process_id="p"))
    assert reason(caught.value) == "WORKSPACE_NOT_FOUND"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await execution.GetProcess(execution_pb.GetProcessRequest(process_id="p"))
    assert violations(caught.value) == {"workspace_id"}


async def test_a_reader_that_does_not_read_holds_little_and_delays_nobody(
    execution: Stub, server: RunningServer
) -> None:
    stalled = Execution(execution)
    await stalled.send(start(shell("head -c 200000000 /dev/zero")))
    await stalled.next("started")
    for _ in range(20):
        assert (await execution.RunProcess(run(shell("echo here")))).stdout == b"here\n"
    total = 0
    async for event in stalled.events():
        total += len(event.output.data)
    assert total == 200_000_000
    assert server.workspaces.channel.streams == 0
