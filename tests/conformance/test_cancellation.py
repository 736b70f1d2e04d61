"""Every call cancelled at many points leaves no task, descriptor, process or temporary file behind."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

import anyio
import pytest

import workspaced
from tests.support.server import ServerProcess, open_descriptors

pytestmark = pytest.mark.anyio

DELAYS = [0.0, 0.0003, 0.0006, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.008, 0.015, 0.03]


async def exec_output(ws: workspaced.Workspace) -> None:
    async with ws.exec("head -c 5000000 /dev/zero", disconnect_policy="kill") as process:
        async for _ in process:
            pass


async def exec_stdin(ws: workspaced.Workspace) -> None:
    async with ws.exec("cat > /dev/null", stdin=True, disconnect_policy="kill") as process:
        await process.write(bytes(5000000))


async def write_file(ws: workspaced.Workspace) -> None:
    await ws.files.write("scratch", bytes(5000000))


async def read_file(ws: workspaced.Workspace) -> None:
    await ws.files.read("big")


async def copy_file(ws: workspaced.Workspace) -> None:
    await ws.files.copy("big", "copy", overwrite=True)


async def watch(ws: workspaced.Workspace) -> None:
    async with ws.files.watch(".", recursive=True) as changes:
        async for _ in changes:
            pass


async def attach(ws: workspaced.Workspace) -> None:
    await (await ws.attach("lasting")).wait()


async def wait(ws: workspaced.Workspace) -> None:
    await ws.process("lasting").wait()


async def tunnel(ws: workspaced.Workspace) -> None:
    async with ws.tunnel(int(await ws.files.read("port"))) as stream:
        await stream.send(b"x")
        await stream.receive()


async def run(ws: workspaced.Workspace) -> None:
    await ws.run("sleep 4714")


async def start(ws: workspaced.Workspace) -> None:
    await (await ws.start("true")).wait()


async def signal(ws: workspaced.Workspace) -> None:
    await ws.process("lasting").signal("CONT")


async def listing(ws: workspaced.Workspace) -> None:
    assert await ws.files.list(recursive=True)
    assert await ws.processes()
    assert await ws.ports()


async def small_files(ws: workspaced.Workspace) -> None:
    # Names of its own: what was cancelled before may still take effect.
    name = f"small-{uuid.uuid4().hex}"
    await ws.files.mkdir(name, exist_ok=True)
    await ws.files.move(name, f"{name}-moved", overwrite=True)
    await ws.files.stat(f"{name}-moved")
    await ws.files.remove(f"{name}-moved", recursive=True)


async def lifecycle(ws: workspaced.Workspace) -> None:
    await ws.info()
    await ws.reset()


CALLS: list[Callable[[workspaced.Workspace], Awaitable[None]]] = [
    exec_output, exec_stdin, write_file, read_file, copy_file, watch, attach, wait, tunnel, run, start, signal,
    listing, small_files, lifecycle,
]  # fmt: skip

STATE = (
    "rm -rf small-*; ls /proc/$PPID/fd | wc -l; ls /proc/$PPID/task | wc -l; ls -A; "
    "pgrep -f 'sleep 471[4]|head -c 500000[0]' || echo none"
)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
async def test_cancelled_anywhere(
    ws: workspaced.Workspace, server: ServerProcess, call: Callable[[workspaced.Workspace], Awaitable[None]]
) -> None:
    await ws.files.write("big", bytes(5000000))
    listener = (
        "import socket, pathlib\ns = socket.create_server(('127.0.0.1', 0))\n"
        "pathlib.Path('port').write_text(str(s.getsockname()[1]))\nkept = []\nwhile True: kept.append(s.accept())"
    )
    await ws.start(["python3", "-c", listener], process_id="listener")
    await ws.start("sleep 4000", process_id="lasting")
    await ws.run("while [ ! -s port ]; do sleep 0.02; done")
    before = (await ws.run(STATE)).stdout
    descriptors = open_descriptors(server.pid)
    for delay in DELAYS:
        with anyio.move_on_after(delay):
            await call(ws)
    await ws.files.remove("scratch", allow_missing=True)
    await ws.files.remove("copy", allow_missing=True)
    with anyio.move_on_after(20):
        while (after := (await ws.run(STATE)).stdout) != before or open_descriptors(server.pid) > descriptors:
            await anyio.sleep(0.1)
    assert after == before
    assert open_descriptors(server.pid) <= descriptors
