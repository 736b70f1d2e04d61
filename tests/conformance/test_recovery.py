"""What survives: a killed server, a killed guest, a removed sandbox, a frozen peer."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

import workspaced
from tests.conformance.backends import BackendUnderTest
from tests.support.server import ServerProcess, open_descriptors

pytestmark = pytest.mark.anyio


async def test_background_process_outlives_call_client_and_server(
    own_server: ServerProcess, backend: BackendUnderTest
) -> None:
    async with workspaced.connect(own_server.address) as client:
        ws = await client.initialize(**backend.arguments, workspace_id="lasting")
        await ws.start("i=0; while [ ! -e stop ]; do echo $i; i=$((i+1)); sleep 0.01; done; exit 5", process_id="job")
        early = await anext(aiter(await ws.attach("job")))
        assert early.offset == 0
    own_server.restart()
    async with workspaced.connect(own_server.address) as client:
        ws = await client.initialize(**backend.arguments, workspace_id="lasting")
        assert [(p.process_id, p.state) for p in await ws.processes()] == [("job", "RUNNING")]
        own_server.restart()
        await ws.files.write("stop", b"")
        whole = b"".join([e.data async for e in await ws.attach("job")])
        numbers = [int(line) for line in whole.split()]
        assert numbers == list(range(len(numbers)))
        own_server.restart()
        assert (await (await ws.attach("job")).wait()).exit_code == 5, "the exit code was lost"
        await ws.delete()


async def test_a_server_killed_while_it_initializes(own_server: ServerProcess, backend: BackendUnderTest) -> None:
    """At whatever moment it dies, the id is usable afterwards and there is one sandbox."""
    for number, delay in enumerate([0.01, 0.05, 0.1, 0.2, 0.4, 0.7]):
        name = f"crash-{number}"

        async def initialize(name: str = name) -> None:
            async with workspaced.connect(own_server.address) as client:
                await client.initialize(**backend.arguments, workspace_id=name)

        async with anyio.create_task_group() as group:
            group.start_soon(initialize)
            await anyio.sleep(delay)
            await anyio.to_thread.run_sync(own_server.restart)
        async with workspaced.connect(own_server.address) as client:
            ws = await client.initialize(**backend.arguments, workspace_id=name)
            assert (await ws.run("echo works")).stdout == b"works\n"
            if backend.name == "docker":
                listed = subprocess.run(
                    ["docker", "ps", "-aq", "--filter", f"label=workspaced.workspace_id={name}"],
                    check=True,
                    capture_output=True,
                )
                assert len(listed.stdout.split()) == 1
            await ws.delete()


async def test_a_killed_guest_is_restarted_and_its_processes_are_lost(
    client: workspaced.Client, ws: workspaced.Workspace
) -> None:
    await ws.run("echo finished", process_id="finished")
    async with ws.exec("sleep 3600 & echo $$ $!; wait", process_id="running") as process:
        pids = (await anext(aiter(process))).data.decode().split()
        guest = (await ws.run("echo $PPID")).stdout.decode().strip()
        await ws.start(f"kill -9 {guest}", process_id="killer")
        exit = await process.wait()
    assert (exit.reason, exit.exit_code, exit.signal, exit.output_incomplete) == ("LOST", None, None, True)
    assert (await (await ws.attach("finished", gaps="yield")).wait()).exit_code == 0
    # A zombie has ended; when it is reaped is up to the init of the machine.
    alive = f"for pid in {' '.join(pids)}; do sed 's/.*) //' /proc/$pid/stat 2>/dev/null; done | grep -vc '^[ZX]'; true"
    assert len(pids) == 2
    with anyio.fail_after(20):
        while (await ws.run(alive)).stdout != b"0\n":
            await anyio.sleep(0.1)


async def test_a_removed_sandbox_is_said_and_recovered(
    client: workspaced.Client, ws: workspaced.Workspace, backend: BackendUnderTest
) -> None:
    await ws.run("true")
    if backend.remove_sandbox is None:
        guest = int((await ws.run("echo $PPID")).stdout)
        info = await ws.info()
        os.kill(guest, signal.SIGKILL)
        subprocess.run(["rm", "-rf", str(Path(info.workdir).parent)], check=True)
    else:
        backend.remove_sandbox(ws.id)
    with pytest.raises(workspaced.Unavailable) as caught:
        await client.workspace(ws.id).run("true")
    assert caught.value.reason == "WORKSPACE_UNREACHABLE"
    assert (await ws.info()).state == "DEGRADED"
    again = await client.initialize(**backend.arguments, workspace_id=ws.id)
    assert (await again.run("echo back")).stdout == b"back\n"


async def test_a_frozen_server_is_known_within_ten_seconds(
    own_server: ServerProcess, backend: BackendUnderTest
) -> None:
    async with workspaced.connect(own_server.address, resume_timeout=0) as client:
        ws = await client.initialize(**backend.arguments, workspace_id="frozen")
        async with ws.exec("echo up; sleep 1000", disconnect_policy="kill") as process:
            await anext(aiter(process))
            own_server.freeze()
            started = time.monotonic()
            try:
                with pytest.raises(workspaced.Unavailable):
                    await process.wait()
                assert time.monotonic() - started < 30, "ten seconds, and what a busy machine adds"
            finally:
                own_server.thaw()
        await ws.delete()


_READER = """
import sys
import anyio
import workspaced

async def read() -> None:
    async with workspaced.connect(sys.argv[1]) as client:
        async for _ in await client.workspace("frozen-client").attach("flood", gaps="yield"):
            print("reading", flush=True)

anyio.run(read)
"""


@pytest.mark.slow
async def test_a_frozen_client_frees_its_stream(own_server: ServerProcess, backend: BackendUnderTest) -> None:
    async with workspaced.connect(own_server.address) as client:
        ws = await client.initialize(**backend.arguments, workspace_id="frozen-client")
        await ws.start("yes", process_id="flood")
        idle = open_descriptors(own_server.pid)
        command = [sys.executable, "-c", _READER, own_server.address]
        reader = await anyio.open_process(command, stderr=None, env=dict(os.environ, PYTHONPATH=":".join(sys.path)))
        try:
            assert reader.stdout is not None
            await reader.stdout.receive()
            assert open_descriptors(own_server.pid) > idle
            reader.send_signal(signal.SIGSTOP)
            with anyio.fail_after(60):
                while open_descriptors(own_server.pid) > idle:
                    await anyio.sleep(0.2)
        finally:
            reader.kill()
            await reader.aclose()
        await ws.process("flood").signal("KILL")
        await ws.delete()


async def test_drain_ends_long_streams_and_clients_resume(own_server: ServerProcess, backend: BackendUnderTest) -> None:
    async with workspaced.connect(own_server.address) as client:
        ws = await client.initialize(**backend.arguments, workspace_id="drained")
        async with ws.exec("i=0; while [ $i -lt 300 ]; do echo $i; i=$((i+1)); sleep 0.01; done") as process:
            events = aiter(process)
            output = (await anext(events)).data
            started = time.monotonic()
            assert await anyio.to_thread.run_sync(own_server.stop) == 0
            assert time.monotonic() - started < 60, "the drain waited for the stream"
            own_server.start()
            output += b"".join([event.data async for event in events])
            assert output == b"".join(b"%d\n" % n for n in range(300))
        await ws.delete()


async def test_leftovers_are_swept(own_server: ServerProcess, backend: BackendUnderTest) -> None:
    """A sandbox whose record is gone is removed at the next start."""

    def sandboxes() -> list[str]:
        if backend.name == "local":
            names = [path.name for path in (own_server.state_dir / "workspaces").iterdir()]
            return [name for name in names if not name.startswith(".")]
        listed = ["docker", "ps", "-aq", "--filter", "label=workspaced.workspace_id=leftover"]
        return subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()

    async with workspaced.connect(own_server.address) as client:
        await client.initialize(**backend.arguments, workspace_id="leftover")
    assert len(sandboxes()) == 1
    own_server.kill()
    with closing(sqlite3.connect(own_server.state_dir / "registry.db")) as registry:
        registry.execute("DELETE FROM workspaces")
        registry.commit()
    own_server.environment["WORKSPACED_WORKSPACES__SWEEP_GRACE_SECONDS"] = "0"
    own_server.start()
    with anyio.fail_after(60):
        while sandboxes():
            await anyio.sleep(0.1)
