"""What a process is: how it starts, ends, is timed out, killed, found again."""

from __future__ import annotations

import time

import anyio
import pytest

import workspaced
from tests.conformance.conftest import Make
from tests.support.faults import FaultProxy
from tests.support.server import ServerProcess

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("command", "code", "stdout"),
    [
        ("exit 42", 42, b""),
        ("set -e; false; echo unreachable", 1, b""),
        ("exec sh -c 'echo replaced; exit 3'", 3, b"replaced\n"),
        ("cat; echo done", 0, b"done\n"),
        ("read line; echo $?", 0, b"1\n"),
        (["printf", "%s|", "a b", "", "$HOME", "*"], 0, b"a b||$HOME|*|"),
        ("no-such-program-at-all 2>/dev/null", 127, b""),
    ],
)
async def test_behaves_as_in_a_shell(
    ws: workspaced.Workspace, command: str | list[str], code: int, stdout: bytes
) -> None:
    result = await ws.run(command)
    assert (result.exit_code, result.stdout, result.signal) == (code, stdout, None)
    assert result.reason == "EXITED"


async def test_environment_and_directory(make: Make) -> None:
    ws = await make(env={"FROM_WORKSPACE": "1", "OVERRIDDEN": "workspace"})
    await ws.run("mkdir -p sub/dir")
    result = await ws.run(
        'echo "$FROM_WORKSPACE $OVERRIDDEN $OWN"; pwd', cwd="sub/dir", env={"OVERRIDDEN": "process", "OWN": "ü"}
    )
    first, second = result.stdout.decode().splitlines()
    assert first == "1 process ü"
    assert second.endswith("/sub/dir")
    info = await ws.info()
    assert second == f"{info.workdir}/sub/dir"


async def test_server_secrets_do_not_reach_a_process(ws: workspaced.Workspace) -> None:
    environment = (await ws.run(["env", "-0"])).stdout.decode().split("\0")
    names = {entry.partition("=")[0] for entry in environment if entry}
    assert not {name for name in names if "TOKEN" in name or name.startswith("WORKSPACED_TEST")}, names


async def test_cannot_start_is_an_error_of_its_own(ws: workspaced.Workspace) -> None:
    with pytest.raises(workspaced.ProcessStartFailed) as caught:
        await ws.run(["/no/such/program"])
    assert caught.value.reason == "PROCESS_START_FAILED"
    await ws.files.write("not-executable", b"#!/bin/sh\n")
    with pytest.raises(workspaced.ProcessStartFailed):
        await ws.run(["./not-executable"])
    with pytest.raises(workspaced.ProcessStartFailed):
        await ws.run("true", cwd="no-such-directory")
    assert await ws.processes() == []


async def test_a_background_child_does_not_hold_the_call(ws: workspaced.Workspace) -> None:
    started = time.monotonic()
    result = await ws.run("sleep 300 & echo started")
    assert time.monotonic() - started < 30, "the call waited for the child"
    assert (result.exit_code, result.stdout) == (0, b"started\n")
    assert (await ws.run("pgrep -x sleep")).exit_code == 0, "the child was killed"


async def test_a_background_child_that_writes_later_is_not_killed_by_sigpipe(ws: workspaced.Workspace) -> None:
    await ws.run("(while [ ! -e go ]; do sleep 0.05; done; echo late; echo late; echo alive > proof) & echo started")
    await ws.run("touch go")
    result = await ws.run("while [ ! -e proof ]; do sleep 0.05; done; cat proof", timeout=20)
    assert result.stdout == b"alive\n"


async def test_timeout_kills_the_whole_tree_and_keeps_the_output(ws: workspaced.Workspace) -> None:
    result = await ws.run("echo before; (sleep 301 & sleep 302) & setsid sleep 303 & sleep 304", timeout=1)
    assert result.reason == "TIMED_OUT"
    assert result.stdout == b"before\n"
    assert (await ws.run("pgrep -f 'sleep 30[1-4]' || echo none")).stdout == b"none\n"


async def test_a_process_that_ignores_term_is_killed_after_the_grace(ws: workspaced.Workspace) -> None:
    result = await ws.run("trap '' TERM; echo ready; while :; do sleep 0.1; done", timeout=0.5, kill_grace=0.5)
    assert result.reason == "TIMED_OUT"
    assert result.stdout == b"ready\n"
    assert result.signal == "KILL"


async def test_exit_by_signal_is_not_an_exit_code(ws: workspaced.Workspace) -> None:
    result = await ws.run("kill -SEGV $$")
    assert (result.exit_code, result.signal, result.reason) == (None, "SEGV", "SIGNALED")


async def test_signal_reaches_the_tree(ws: workspaced.Workspace) -> None:
    async with ws.exec(
        "sh -c 'trap \"echo child; exit\" USR1; echo ready; while :; do sleep 0.05; done' & wait"
    ) as process:
        output = b""
        async for event in process:
            output += event.data
            if output == b"ready\n":
                await process.signal("SIGUSR1")
        assert b"child" in output
        assert (await process.wait()).signal == "USR1"


async def test_out_of_memory_says_so(make: Make) -> None:
    ws = await make(resources={"memory_bytes": 128 << 20})
    result = await ws.run(["python3", "-c", "x = bytearray(1 << 30)\nfor i in range(0, 1 << 30, 4096): x[i] = 1"])
    assert (result.reason, result.signal) == ("OOM_KILLED", "KILL")
    assert (await ws.run("echo alive")).stdout == b"alive\n"


async def test_same_id_attaches_and_another_spec_is_refused(ws: workspaced.Workspace) -> None:
    first = await ws.start("echo once >> count; sleep 0.2; echo out", process_id="job")
    again = await ws.start("echo once >> count; sleep 0.2; echo out", process_id="job")
    assert first.process_id == again.process_id == "job"
    assert (await again.wait()).exit_code == 0
    late = await ws.start("echo once >> count; sleep 0.2; echo out", process_id="job")
    assert [e.data async for e in late] == [b"out\n"]
    assert await ws.files.read("count") == b"once\n"
    with pytest.raises(workspaced.AlreadyExists) as caught:
        await ws.start("echo other", process_id="job")
    assert caught.value.reason == "PROCESS_EXISTS"


async def test_unknown_process(ws: workspaced.Workspace) -> None:
    with pytest.raises(workspaced.ProcessNotFound):
        await ws.attach("no-such-process")


async def test_ps_lists_by_start(ws: workspaced.Workspace) -> None:
    for number in range(7):
        await ws.start("sleep 100", process_id=f"p{number}")
    assert [p.process_id for p in await ws.processes()] == [f"p{n}" for n in range(7)]


async def test_usage_is_reported(ws: workspaced.Workspace) -> None:
    result = await ws.run(["python3", "-c", "x = bytearray(50 << 20)\nfor i in range(2000000): pass"])
    assert result.usage is not None
    assert result.usage.max_rss_bytes > 50 << 20
    assert result.usage.user_seconds > 0


async def test_run_input_and_cap(ws: workspaced.Workspace) -> None:
    assert (await ws.run("cat", stdin=b"a\0b\xff")).stdout == b"a\0b\xff"
    result = await ws.run("head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2", max_output_bytes=1000)
    assert (len(result.stdout), len(result.stderr), result.truncated) == (1000, 1000, True)
    whole = await ws.run("head -c 3000000 /dev/zero", max_output_bytes=4000000)
    assert (len(whole.stdout), whole.truncated) == (3000000, False)


async def test_cancelled_run_leaves_no_process(ws: workspaced.Workspace) -> None:
    with anyio.move_on_after(0.5):
        await ws.run("sleep 4711", process_id="cancelled")
    info = await (await ws.attach("cancelled")).wait()
    assert (info.reason, info.signal) == ("SIGNALED", "TERM")
    assert (await ws.run("pgrep -f 'sleep 471[1]' || echo none")).stdout == b"none\n"


async def test_leaving_a_process_keeps_it_or_kills_it(ws: workspaced.Workspace) -> None:
    async with ws.exec("echo up; sleep 4712", process_id="kept") as process:
        await anext(aiter(process))
    async with ws.exec("echo up; sleep 4713", process_id="killed", disconnect_policy="kill") as process:
        await anext(aiter(process))
    assert (await (await ws.attach("killed")).wait()).signal == "KILL"
    assert (await ws.process("kept").info()).state == "RUNNING"
    await ws.process("kept").signal("KILL")


async def test_a_lost_reader_ends_a_process_whose_policy_says_so(
    ws: workspaced.Workspace, server: ServerProcess
) -> None:
    """The connection is cut, so nobody says anything: the guest ends the process when its grace is over."""
    async with anyio.create_task_group() as group:
        proxy = FaultProxy("127.0.0.1", server.port)
        port = await group.start(proxy.serve)
        async with workspaced.connect(f"127.0.0.1:{port}", resume_timeout=0) as through:
            for policy in ("keep", "kill"):
                process = through.workspace(ws.id).exec("sleep 4715", process_id=policy, disconnect_policy=policy)
                await process.__aenter__()
            proxy.refuse = True
            proxy.cut_all()
        with anyio.fail_after(60):
            exit = await ws.process("kill").wait()
        assert (exit.reason, exit.signal) == ("CANCELLED", "TERM")
        assert (await ws.process("keep").info()).state == "RUNNING"
        group.cancel_scope.cancel()


async def test_five_hundred_at_once(ws: workspaced.Workspace) -> None:
    results: dict[int, bytes] = {}

    async def one(number: int) -> None:
        async with ws.exec(f"read go; echo {number}", stdin=True, process_id=f"many-{number}") as process:
            arrived.append(number)
            await go.wait()
            await process.write(b"go\n")
            results[number] = b"".join([event.data async for event in process])

    arrived: list[int] = []
    go = anyio.Event()
    async with anyio.create_task_group() as group:
        for number in range(500):
            group.start_soon(one, number)
        with anyio.fail_after(120):
            while len(arrived) < 500:
                await anyio.sleep(0.05)
            alive = await ws.run("echo alive")
            assert alive.stdout == b"alive\n"
            go.set()
    assert results == {n: f"{n}\n".encode() for n in range(500)}
