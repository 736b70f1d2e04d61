"""The stream guarantees by name, under injected faults between client and server, and between server and guest.

Each run draws a seed, printed on failure; WORKSPACED_FAULT_SEED replays one.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import workspaced
from tests.conformance.backends import BackendUnderTest
from tests.support.faults import FaultPlan, FaultProxy, FaultRates
from tests.support.server import ServerProcess

pytestmark = pytest.mark.anyio

SEEDS = (
    [int(os.environ["WORKSPACED_FAULT_SEED"])]
    if "WORKSPACED_FAULT_SEED" in os.environ
    else [random.SystemRandom().randrange(1 << 32) for _ in range(2)]
)
# Writes numbered lines to both streams, slowly enough that faults fall into the middle of it.
WRITER = """
import os, sys, time
for i in range(4000):
    os.write(1 + i % 2, b"%06d " % i + b"x" * (i % 977) + b"\\n")
    if i % 100 == 0: time.sleep(0.02)
"""


def expected_lines() -> list[bytes]:
    return [b"%06d " % i + b"x" * (i % 977) for i in range(4000)]


def assert_in_order(lines: list[tuple[str, bytes]], damaged: Damaged) -> None:
    """Each stream in the order in which it was written. Which of two pipes was written first within microseconds, only
    the writer knows; what the guest read first is the same for every reader (test_ordered)."""
    for remainder, stream in enumerate(("stdout", "stderr")):
        assert [line for name, line in lines if name == stream] == expected_lines()[remainder::2], str(damaged.plan)


class Damaged:
    """A workspace reached through both kinds of fault, and the means to look at it without."""

    def __init__(self, proxy: FaultProxy, server: ServerProcess, ws: workspaced.Workspace, plan: FaultPlan) -> None:
        self.proxy = proxy
        self.server = server
        self.ws = ws
        self.plan = plan


@pytest.fixture(params=SEEDS, ids=lambda seed: f"seed{seed}")
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
async def damaged(seed: int, backend: BackendUnderTest, tmp_path: Path) -> AsyncIterator[Damaged]:
    plan = FaultPlan(seed, FaultRates(cut=0.02, stall=0.01, delay=0.1, split=0.4))
    server = ServerProcess(
        tmp_path / "state", faults={"seed": seed, "cut": 0.01, "stall": 0.005, "delay": 0.05, "split": 0.3}
    )
    server.start()
    try:
        async with anyio.create_task_group() as group:
            proxy = FaultProxy("127.0.0.1", server.port, plan)
            plan.enabled = False
            port = await group.start(proxy.serve)
            async with workspaced.connect(f"127.0.0.1:{port}") as client:
                ws = await client.initialize(**backend.arguments, workspace_id="damaged")
                await ws.files.write("writer.py", WRITER.encode())
                plan.enabled = True
                yield Damaged(proxy, server, ws, plan)
                plan.enabled = False
                async with workspaced.connect(server.address) as direct:
                    await direct.workspace("damaged").delete()
            group.cancel_scope.cancel()
    finally:
        server.stop()


async def collect(events: AsyncIterator[Any]) -> tuple[list[tuple[str, bytes]], list[tuple[int, int]]]:
    """Lines with their stream in the order in which they were complete, and the (offset, length) of each event."""
    lines: list[tuple[str, bytes]] = []
    spans: list[tuple[int, int]] = []
    pending = {"stdout": b"", "stderr": b""}
    async for event in events:
        spans.append((event.offset, len(event.data)))
        *whole, pending[event.stream] = (pending[event.stream] + event.data).split(b"\n")
        lines += [(event.stream, line) for line in whole]
    assert pending == {"stdout": b"", "stderr": b""}
    return lines, spans


async def test_ordered(damaged: Damaged) -> None:
    async with damaged.ws.exec(["python3", "-u", "writer.py"]) as process:
        lines, _ = await collect(aiter(process))
        exit = await process.wait()
    assert_in_order(lines, damaged)
    assert exit.exit_code == 0
    again, _ = await collect(aiter(await damaged.ws.attach(process.process_id)))
    assert again == lines, str(damaged.plan)


async def test_unique_and_reliable(damaged: Damaged) -> None:
    process = await damaged.ws.start(["python3", "-u", "writer.py"])
    for _ in range(2):
        _, spans = await collect(aiter(await damaged.ws.attach(process.process_id)))
        position = 0
        for offset, length in spans:
            assert offset == position, f"{damaged.plan}: {offset} after {position}"
            position += length
        assert position == sum(len(line) + 1 for line in expected_lines())


async def test_resumable(damaged: Damaged, seed: int) -> None:
    process = await damaged.ws.start(["python3", "-u", "writer.py"])
    whole = b"".join([e.data async for e in await damaged.ws.attach(process.process_id)])
    choose = random.Random(seed)
    for offset in [0, 1, len(whole) - 1, len(whole), *(choose.randrange(len(whole)) for _ in range(6))]:
        events = [e async for e in await damaged.ws.attach(process.process_id, offset=offset)]
        assert b"".join(e.data for e in events) == whole[offset:]
        if events:
            assert events[0].offset == offset


async def test_resumable_after_a_server_restart(damaged: Damaged) -> None:
    async with damaged.ws.exec(["python3", "-u", "writer.py"]) as process:
        lines: list[tuple[str, bytes]] = []

        async def restart_twice() -> None:
            for _ in range(2):
                await anyio.to_thread.run_sync(damaged.server.restart)

        async with anyio.create_task_group() as group:
            group.start_soon(restart_twice)
            lines, _ = await collect(aiter(process))
            exit = await process.wait()
    assert_in_order(lines, damaged)
    assert exit.exit_code == 0


async def test_terminal_once(damaged: Damaged) -> None:
    async with damaged.ws.exec("echo one; exit 7") as process:
        data = [event.data async for event in process]
        assert b"".join(data) == b"one\n"
        assert [event async for event in process] == []
        first, second = await process.wait(), await process.wait()
    assert (first.exit_code, second.exit_code) == (7, 7)


async def test_stdin_exactly_once(damaged: Damaged, seed: int) -> None:
    choose = random.Random(seed)
    data = choose.randbytes(3 << 20)
    async with damaged.ws.exec("sha256sum; cat > /dev/null", stdin=True) as process:

        async def feed() -> None:
            position = 0
            while position < len(data):
                size = choose.randrange(1, 65536)
                await process.write(data[position : position + size])
                position += size
            await process.close_stdin()

        async with anyio.create_task_group() as group:
            group.start_soon(feed)
            answer = b"".join([event.data async for event in process])
    assert answer.split()[0].decode() == hashlib.sha256(data).hexdigest(), str(damaged.plan)


async def test_a_process_runs_once_though_its_start_is_retried(damaged: Damaged) -> None:
    for number in range(15):
        assert (await damaged.ws.run(f"echo {number} >> ran")).exit_code == 0
    async with workspaced.connect(damaged.server.address) as direct:
        ran = await direct.workspace("damaged").files.read("ran")
    assert ran.split() == [b"%d" % n for n in range(15)], str(damaged.plan)


async def test_files_under_faults(damaged: Damaged, seed: int) -> None:
    data = random.Random(seed).randbytes(5 << 20)
    await damaged.ws.files.write("blob.bin", data)
    assert await damaged.ws.files.read("blob.bin") == data, str(damaged.plan)
