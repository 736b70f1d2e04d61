"""Servers that are absent, frozen or restarted."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import workspaced
from tests.unit.client.fake_server import FakeExecution, serve

PROGRAM = """
import asyncio
from tests.unit.client.fake_server import FakeExecution, serve
async def main():
    async with serve(FakeExecution()) as target:
        print(target, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    with child:
        yield child
        child.kill()


async def test_frozen_server_is_known_within_ten_seconds(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    target = (await asyncio.to_thread(process.stdout.readline)).strip()
    client = workspaced.connect(target, resume_timeout=0)
    async with client, client.workspace("w").exec("sleep") as running:
        process.send_signal(signal.SIGSTOP)
        started = asyncio.get_running_loop().time()
        with pytest.raises(workspaced.Unavailable):
            await running.__anext__()
        assert asyncio.get_running_loop().time() - started < 10


async def test_absent_server_is_an_error_soon() -> None:
    async with workspaced.connect("127.0.0.1:9") as client:
        for attempt in (client.list(), client.workspace("w").run("true"), client.workspace("w").attach("p")):
            started = asyncio.get_running_loop().time()
            with pytest.raises(workspaced.Unavailable):
                await attempt
            assert asyncio.get_running_loop().time() - started < 8


async def test_unary_calls_wait_for_a_draining_server() -> None:
    fake = FakeExecution()
    async with serve(fake) as target, workspaced.connect(target) as client:
        ws = client.workspace("w")
        await ws.start("sleep", process_id="p")
        fake.unary_cuts.extend(["SERVER_DRAINING"] * 6)
        assert (await ws.process("p").info()).pid == 7


async def test_client_is_not_used_after_its_end() -> None:
    client = workspaced.connect("127.0.0.1:9")
    await client.aclose()
    await client.aclose()
    with pytest.raises(RuntimeError, match="closed"):
        await client.list()


def test_synchronous_face() -> None:
    async def start() -> tuple[str, asyncio.Event]:
        fake, stop, ready = FakeExecution(), asyncio.Event(), asyncio.Event()
        fake.output = b"hello"

        async def run() -> None:
            async with serve(fake) as target:
                targets.append(target)
                ready.set()
                await stop.wait()

        tasks.append(asyncio.create_task(run()))
        await ready.wait()
        return targets[0], stop

    from workspaced.sync.portal import call

    targets: list[str] = []
    tasks: list[asyncio.Task[None]] = []
    target, stop = call(start())
    try:
        with workspaced.sync.connect(target) as client:
            ws = client.workspace("w")
            assert ws.run("produce").stdout == b"hello"
            with ws.exec(["cat"], stdin=True) as process:
                process.write(b" you")
                process.close_stdin()
                assert b"".join(event.data for event in process if isinstance(event, workspaced.Output)) == b"hello you"
                assert process.wait().ok
            with pytest.raises(workspaced.ProcessNotFound):
                ws.attach("nobody")
    finally:

        async def end() -> None:
            stop.set()
            await tasks[0]

        call(end())
