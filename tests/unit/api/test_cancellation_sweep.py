"""Every RPC over a real guest, cancelled at many points: no task, stream, use or process stays."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

import grpc
import pytest

from tests.support.real_guest import WORKSPACE, RealGuest, RunningServer
from workspaced.v1 import (
    content_pb2,
    execution_pb2_grpc,
    file_pb2_grpc,
    offload_pb2_grpc,
    port_pb2_grpc,
    process_pb2,
)
from workspaced.v1 import execution_pb2 as execution_pb
from workspaced.v1 import file_pb2 as file_pb
from workspaced.v1 import offload_pb2 as offload_pb
from workspaced.v1 import port_pb2 as port_pb
from workspaced.v1 import tool_pb2 as tool_pb

pytestmark = pytest.mark.anyio

KILL = process_pb2.DISCONNECT_POLICY_KILL
Call: TypeAlias = Callable[[grpc.aio.Channel], Coroutine[None, None, None]]

POINTS = 25
LONGEST_SECONDS = 0.012
CallT = TypeVar("CallT", bound=grpc.aio.Call)
PORT: ContextVar[int] = ContextVar("PORT")


def spec(command: str, **fields: object) -> process_pb2.ProcessSpec:
    return process_pb2.ProcessSpec(shell_command=command, disconnect_policy=KILL, **fields)  # type: ignore[arg-type]


def owned(call: CallT) -> CallT:
    """The call, cancelled together with the task that makes it: grpc does so only where the task waits for the call
    itself.
    """
    task = asyncio.current_task()
    assert task is not None
    task.add_done_callback(lambda _: call.cancel())
    return call


async def exec_output(channel: grpc.aio.Channel) -> None:
    call = owned(execution_pb2_grpc.ExecutionServiceStub(channel).Exec())
    start = execution_pb.ExecStart(workspace_id=WORKSPACE, spec=spec("head -c 3000000 /dev/zero; sleep 4713"))
    await call.write(execution_pb.ExecRequest(start=start))
    while await call.read() is not grpc.aio.EOF:
        pass


async def exec_stdin(channel: grpc.aio.Channel) -> None:
    call = owned(execution_pb2_grpc.ExecutionServiceStub(channel).Exec())
    wanted = spec("sleep 4713", stdin=process_pb2.STDIN_MODE_OPEN)
    await call.write(execution_pb.ExecRequest(start=execution_pb.ExecStart(workspace_id=WORKSPACE, spec=wanted)))
    for n in range(100):
        chunk = execution_pb.StdinChunk(offset=n * 100_000, data=bytes(100_000))
        await call.write(execution_pb.ExecRequest(stdin=chunk))


async def run_process(channel: grpc.aio.Channel) -> None:
    wanted = spec("cat; sleep 4713")
    wanted.kill_grace.FromMilliseconds(100)
    request = execution_pb.RunProcessRequest(workspace_id=WORKSPACE, spec=wanted, stdin=bytes(1 << 20))
    await owned(execution_pb2_grpc.ExecutionServiceStub(channel).RunProcess(request))


async def attach(channel: grpc.aio.Channel) -> None:
    request = execution_pb.AttachProcessRequest(workspace_id=WORKSPACE, process_id="lasting")
    async for _ in owned(execution_pb2_grpc.ExecutionServiceStub(channel).AttachProcess(request)):
        pass


async def wait_process(channel: grpc.aio.Channel) -> None:
    request = execution_pb.WaitProcessRequest(workspace_id=WORKSPACE, process_id="lasting")
    await owned(execution_pb2_grpc.ExecutionServiceStub(channel).WaitProcess(request))


async def write_stdin(channel: grpc.aio.Channel) -> None:
    request = execution_pb.WriteStdinRequest(workspace_id=WORKSPACE, process_id="lasting", data=bytes(1 << 20))
    await owned(execution_pb2_grpc.ExecutionServiceStub(channel).WriteStdin(request))


async def read_file(channel: grpc.aio.Channel) -> None:
    request = file_pb.ReadFileRequest(workspace_id=WORKSPACE, path="big", hash=True)
    async for _ in owned(file_pb2_grpc.FileServiceStub(channel).ReadFile(request)):
        pass


async def write_file(channel: grpc.aio.Channel) -> None:
    call = owned(file_pb2_grpc.FileServiceStub(channel).WriteFile())
    head = file_pb.WriteFileHeader(workspace_id=WORKSPACE, path="never", no_sync=True)
    await call.write(file_pb.WriteFileRequest(header=head))
    for _ in range(200):
        await call.write(file_pb.WriteFileRequest(data=bytes(100_000)))
    await asyncio.Event().wait()


async def copy_file(channel: grpc.aio.Channel) -> None:
    request = file_pb.CopyFileRequest(workspace_id=WORKSPACE, source="big", destination="copy", overwrite=True)
    await owned(file_pb2_grpc.FileServiceStub(channel).CopyFile(request))


async def watch_files(channel: grpc.aio.Channel) -> None:
    request = file_pb.WatchFilesRequest(workspace_id=WORKSPACE, path=".", recursive=True)
    async for _ in owned(file_pb2_grpc.FileServiceStub(channel).WatchFiles(request)):
        pass


async def tunnel(channel: grpc.aio.Channel) -> None:
    call = owned(port_pb2_grpc.PortServiceStub(channel).Tunnel())
    await call.write(port_pb.TunnelRequest(open=port_pb.TunnelOpen(workspace_id=WORKSPACE, port=PORT.get())))
    for _ in range(100):
        await call.write(port_pb.TunnelRequest(data=bytes(100_000)))


async def offload_context(channel: grpc.aio.Channel) -> None:
    call = owned(offload_pb2_grpc.OffloadServiceStub(channel).OffloadContext())
    head = offload_pb.OffloadContextStart(workspace_id=WORKSPACE, session_id="never")
    await call.write(offload_pb.OffloadContextRequest(start=head))
    message = content_pb2.Message(role=content_pb2.ROLE_USER)
    message.content.add(data=content_pb2.DataBlock(media_type="a/b", bytes=bytes(100_000)))
    message.content.add(text=content_pb2.TextBlock(text="x" * 100_000))
    for _ in range(200):
        await call.write(offload_pb.OffloadContextRequest(message=message))
    await asyncio.Event().wait()


async def offload_data(channel: grpc.aio.Channel) -> None:
    call = owned(offload_pb2_grpc.OffloadServiceStub(channel).OffloadData())
    head = offload_pb.OffloadDataStart(workspace_id=WORKSPACE)
    await call.write(offload_pb.OffloadDataRequest(start=head))
    for _ in range(200):
        await call.write(offload_pb.OffloadDataRequest(chunk=bytes(100_000)))
    await asyncio.Event().wait()


async def read_offload(channel: grpc.aio.Channel) -> None:
    stub = offload_pb2_grpc.OffloadServiceStub(channel)
    start = offload_pb.OffloadDataRequest(start=offload_pb.OffloadDataStart(workspace_id=WORKSPACE))
    chunks = [offload_pb.OffloadDataRequest(chunk=bytes(1 << 20)) for _ in range(10)]
    stored = await stub.OffloadData(iter([start, *chunks]))
    request = offload_pb.ReadOffloadRequest(workspace_id=WORKSPACE, path=stored.offload.path)
    async for _ in owned(stub.ReadOffload(request)):
        pass


async def call_tool(channel: grpc.aio.Channel, name: str, **given: str) -> None:
    request = tool_pb.CallToolRequest(workspace_id=WORKSPACE, name=name)
    request.input.update(given)
    async for _ in owned(execution_pb2_grpc.ExecutionServiceStub(channel).CallTool(request)):
        pass


async def call_bash(channel: grpc.aio.Channel) -> None:
    await call_tool(channel, "Bash", command="head -c 3000000 /dev/zero; sleep 4713")


async def call_grep(channel: grpc.aio.Channel) -> None:
    await call_tool(channel, "Grep", pattern="(e+)+[^e]", path="/usr")


async def call_write(channel: grpc.aio.Channel) -> None:
    await call_tool(channel, "Write", file_path="written/by/tool", content="x" * 3_000_000)
    await asyncio.Event().wait()


CALLS = [
    pytest.param(exec_output, marks=pytest.mark.slow),
    pytest.param(exec_stdin, marks=pytest.mark.slow),
    run_process,
    attach,
    wait_process,
    write_stdin,
    read_file,
    write_file,
    copy_file,
    watch_files,
    tunnel,
    offload_context,
    offload_data,
    read_offload,
    call_bash,
    call_grep,
    call_write,
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
async def test_nothing_is_left(
    call: Call,
    server: RunningServer,
    guest: RealGuest,
    rng: random.Random,
) -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionResetError):
            while await reader.read(1000):
                pass
        writer.close()

    stub = execution_pb2_grpc.ExecutionServiceStub(server.channel)
    lasting = process_pb2.ProcessSpec(shell_command="sleep 4714", stdin=process_pb2.STDIN_MODE_OPEN)
    await stub.StartProcess(
        execution_pb.StartProcessRequest(workspace_id=WORKSPACE, process_id="lasting", spec=lasting)
    )
    (guest.workdir / "big").write_bytes(bytes(20_000_000))
    async with await asyncio.start_server(swallow, "127.0.0.1", 0) as listener:
        PORT.set(listener.sockets[0].getsockname()[1])
        before = _server_tasks()
        for point in range(POINTS):
            task = asyncio.create_task(call(server.channel))
            await asyncio.wait([task], timeout=LONGEST_SECONDS * point / POINTS * rng.uniform(0.5, 1.5))
            task.cancel()
            await asyncio.wait([task])
        async with asyncio.timeout(10):
            await server.workspaces.idle.wait()
        channel = server.workspaces.channel
        assert not channel.closed
        assert channel.streams == 0
        assert _server_tasks() <= before
        await _only_lasting(stub)
    assert not [path for path in guest.workdir.rglob("*") if path.name == "never"]
    async with asyncio.timeout(10):
        # The guest may have been in a sync when it heard of the cancellation.
        while [path for path in guest.workdir.rglob("*") if path.name.endswith(".part")]:
            await asyncio.sleep(0.05)


def _server_tasks() -> int:
    """Tasks that are ours: of the guest channel, of companions and stops. The transport's own are not counted."""
    return sum("workspaced" in repr(task.get_coro()) for task in asyncio.all_tasks())


async def _only_lasting(stub: execution_pb2_grpc.ExecutionServiceAsyncStub) -> None:
    """Processes of cancelled calls end by their policy, after the grace for a lost attachment."""
    running = execution_pb.ListProcessesRequest(
        workspace_id=WORKSPACE, page_size=1000, state=process_pb2.PROCESS_STATE_RUNNING
    )
    async with asyncio.timeout(20):
        for process in (await stub.ListProcesses(running)).processes:
            if process.process_id != "lasting":
                wait = execution_pb.WaitProcessRequest(workspace_id=WORKSPACE, process_id=process.process_id)
                exited = (await stub.WaitProcess(wait)).exit
                assert exited.reason == process_pb2.EXIT_REASON_CANCELLED
