"""One unbroken stream over broken connections, against a server that breaks them at every message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import workspaced
from tests.unit.client.fake_server import FakeExecution, serve

OUTPUT = bytes(range(100))


@pytest.fixture
async def fake() -> FakeExecution:
    execution = FakeExecution()
    execution.output = OUTPUT
    return execution


@pytest.fixture
async def ws(fake: FakeExecution) -> AsyncIterator[workspaced.Workspace]:
    async with serve(fake) as target, workspaced.connect(target, resume_timeout=5) as client:
        yield client.workspace("w")


async def collect(process: workspaced.Process) -> bytes:
    data = b""
    async for event in process:
        assert isinstance(event, workspaced.Output)
        assert event.offset == len(data)
        data += event.data
    return data


@pytest.mark.parametrize("cut", range(15))
async def test_cut_after_each_message(ws: workspaced.Workspace, fake: FakeExecution, cut: int) -> None:
    fake.cuts.extend([cut, 2])
    async with ws.exec("produce") as process:
        assert await collect(process) == OUTPUT
        assert (await process.wait()).exit_code == 0
        assert process.offset == len(OUTPUT)
    assert fake.started == 1


async def test_lost_start_answer_does_not_run_twice(ws: workspaced.Workspace, fake: FakeExecution) -> None:
    fake.cuts.extend([0, 0, 0])
    async with ws.exec("produce") as process:
        assert await collect(process) == OUTPUT
    assert fake.started == 1
    assert fake.streams == 4


async def test_bytes_delivered_twice_are_seen_once(ws: workspaced.Workspace, fake: FakeExecution) -> None:
    fake.overlap = 5
    async with ws.exec("produce") as process:
        assert await collect(process) == OUTPUT


@pytest.mark.parametrize("cut", range(1, 8))
async def test_stdin_is_exactly_once_when_acks_are_lost(
    ws: workspaced.Workspace, fake: FakeExecution, cut: int
) -> None:
    fake.output = b""
    fake.chunk = 1 << 20
    fake.cuts.extend([cut] * 4)
    data = bytes(range(256)) * 4096 * 3
    async with ws.exec(["cat"], stdin=True) as process:

        async def feed() -> None:
            await process.write(data)
            await process.close_stdin()

        feeder = asyncio.create_task(feed())
        assert await collect(process) == data
        await feeder
    assert fake.processes[process.process_id].stdin == data


async def test_write_waits_for_acknowledgements(ws: workspaced.Workspace, fake: FakeExecution) -> None:
    fake.mute = True
    async with ws.exec(["cat"], stdin=True) as process:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(process.write(bytes(3 << 20)), 0.3)
        assert process.stdin_offset == 1 << 20


async def test_closed_stdin_keeps_the_output(ws: workspaced.Workspace, fake: FakeExecution) -> None:
    async with ws.exec(["cat"], stdin=True) as process:
        fake.processes[process.process_id].stdin_broken = True
        with pytest.raises(workspaced.StdinClosed):
            await process.write(bytes(16 << 20))
        fake.processes[process.process_id].end()
        assert await collect(process) == OUTPUT


async def test_gap_is_raised_and_reading_goes_on(ws: workspaced.Workspace, fake: FakeExecution) -> None:
    await ws.start("produce", process_id="p")
    fake.processes["p"].first_offset = 40
    process = await ws.attach("p")
    with pytest.raises(workspaced.OutputLost) as lost:
        await process.__anext__()
    assert (lost.value.start, lost.value.end) == (0, 40)
    rest = [event.data async for event in process if isinstance(event, workspaced.Output)]
    assert b"".join(rest) == OUTPUT[40:]


async def test_gap_is_yielded_when_asked(ws: workspaced.Workspace, fake: FakeExecution) -> None:
    await ws.start("produce", process_id="p")
    fake.processes["p"].first_offset = 40
    async with await ws.attach("p", gaps="yield") as process:
        assert await process.__anext__() == workspaced.Gap(0, 40)


async def test_start_failure_is_raised_on_entering(ws: workspaced.Workspace) -> None:
    with pytest.raises(workspaced.ProcessStartFailed) as failed:
        async with ws.exec("missing"):
            pass
    assert failed.value.request_id == "request-1"


async def test_unknown_process(ws: workspaced.Workspace) -> None:
    with pytest.raises(workspaced.ProcessNotFound):
        await ws.attach("nobody")


async def test_wait_does_not_need_a_reader(ws: workspaced.Workspace, fake: FakeExecution) -> None:
    fake.output = bytes(5 << 20)
    fake.chunk = 256 << 10
    async with ws.exec("produce") as process:
        assert (await asyncio.wait_for(process.wait(), 10)).ok
        assert len(await collect(process)) == 5 << 20


async def test_wait_with_timeout_changes_nothing(ws: workspaced.Workspace, fake: FakeExecution) -> None:
    async with ws.exec("sleep") as process:
        with pytest.raises(workspaced.DeadlineExceeded):
            await process.wait(timeout=0.1)
        assert await process.signal("TERM") == 1
        assert (await process.wait()).ok


async def test_cancelled_read_loses_nothing(ws: workspaced.Workspace, fake: FakeExecution) -> None:
    async with ws.exec(["cat"], stdin=True) as process:
        read = 0
        while read < len(OUTPUT):
            read += len((await process.__anext__()).data)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(process.__anext__(), 0.1)
        await process.write(b"more")
        assert await process.__anext__() == workspaced.Output("stdout", b"more", len(OUTPUT))
    assert fake.streams == 1


async def test_leaving_ends_the_stream_on_the_server(ws: workspaced.Workspace, fake: FakeExecution) -> None:
    async with ws.exec("sleep") as process:
        await process.__anext__()
    await asyncio.wait_for(fake.all_closed.wait(), 5)
    assert not fake.processes[process.process_id].ended


async def test_leaving_with_the_policy_kill_ends_the_process(ws: workspaced.Workspace, fake: FakeExecution) -> None:
    async with ws.exec("sleep", disconnect_policy="kill") as process:
        pass
    assert fake.processes[process.process_id].ended


async def test_no_progress_is_an_error_after_the_resume_timeout(fake: FakeExecution) -> None:
    async with serve(fake) as target:
        client = workspaced.connect(target, resume_timeout=0.3)
        process = await client.workspace("w").exec("sleep").__aenter__()
    with pytest.raises(workspaced.Unavailable):
        await collect(process)
    await client.aclose()


async def test_run_is_repeated_and_runs_once(ws: workspaced.Workspace, fake: FakeExecution) -> None:
    fake.unary_cuts.extend(["", "SERVER_DRAINING", "WORKSPACE_UNREACHABLE"])
    result = await ws.run("produce")
    assert (result.stdout, result.exit_code, result.truncated) == (OUTPUT, 0, False)
    assert fake.started == 1


async def test_run_reads_output_beyond_the_cap_of_the_answer(ws: workspaced.Workspace, fake: FakeExecution) -> None:
    fake.output = bytes(range(256)) * 4096 * 3
    fake.chunk = 256 << 10
    fake.cuts.extend([3, 3])
    result = await ws.run("produce")
    assert result.stdout == fake.output
    assert not result.truncated
    short = await ws.run("produce", max_output_bytes=1000)
    assert (short.stdout, short.truncated) == (fake.output[:1000], True)
    middle = await ws.run("produce", max_output_bytes=2 << 20)
    assert (middle.stdout, middle.truncated) == (fake.output[: 2 << 20], True)


async def test_run_with_large_input_streams_it(ws: workspaced.Workspace, fake: FakeExecution) -> None:
    fake.output = b""
    fake.chunk = 256 << 10
    fake.cuts.extend([3, 5])
    data = bytes(range(256)) * 4096 * 2
    assert (await ws.run(["cat"], stdin=data)).stdout == data
    assert fake.started == 1
