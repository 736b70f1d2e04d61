"""How fast bytes move: output of a process, files in and out."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import workspaced
from benchmarks.measure import Row, interleaved, medians, quartiles
from benchmarks.world import IMAGE, World, running_server

GIB = 1 << 30
ZEROS = ["head", "-c", "1G", "/dev/zero"]
# The engine's share varies by a factor of two between runs, for both sides.
_PIPE_ROUNDS = 11


async def _ours(workspace: workspaced.Workspace) -> None:
    size = 0
    async with workspace.exec(ZEROS) as process:
        async for event in process:
            size += len(event.data)
    assert size == GIB


async def _pipe(*command: str) -> None:
    """Read a command's stdout to its end, as a program would that does nothing else."""
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, limit=1 << 20)
    assert process.stdout is not None
    size = 0
    while piece := await process.stdout.read(1 << 18):
        size += len(piece)
    assert await process.wait() == 0
    assert size == GIB


def _rate(seconds: dict[str, float]) -> dict[str, float]:
    return {name: GIB / 1e6 / value for name, value in seconds.items()}


async def stdout_docker(world: World) -> Row:
    samples: dict[str, Callable[[], Awaitable[object]]] = {
        "workspaced": lambda: _ours(world.docker),
        "docker exec": lambda: _pipe("docker", "exec", world.container, *ZEROS),
    }
    taken = await interleaved(samples, rounds=5, warmup=1)
    rates = _rate(medians(taken))
    mine = rates.pop("workspaced")
    ratio = mine / rates["docker exec"]
    return Row(
        "stdout 1 GiB, Docker, shared socket", "MB/s", mine, rates, "at least as fast", f"{ratio:.2f}", ratio >= 1,
        samples=5, spread=quartiles(taken),
    )  # fmt: skip


async def stdout_docker_exec_pipe(world: World) -> Row:
    with running_server(world.scratch, '[docker]\nsocket_channel = "never"\n') as server:
        async with workspaced.connect(server.address) as client:
            workspace = await client.initialize(backend="docker", image=IMAGE, workspace_id="pipe")
            samples: dict[str, Callable[[], Awaitable[object]]] = {
                "workspaced": lambda: _ours(workspace),
                "docker exec": lambda: _pipe("docker", "exec", world.container, *ZEROS),
            }
            taken = await interleaved(samples, rounds=_PIPE_ROUNDS, warmup=1)
            await workspace.delete()
    rates = _rate(medians(taken))
    mine = rates.pop("workspaced")
    ratio = mine / rates["docker exec"]
    return Row(
        "stdout 1 GiB, Docker, exec pipe", "MB/s", mine, rates, "at least 0.6 of it", f"{ratio:.2f}", ratio >= 0.6,
        samples=_PIPE_ROUNDS, spread=quartiles(taken),
    )  # fmt: skip


async def stdout_local(world: World) -> Row:
    samples: dict[str, Callable[[], Awaitable[object]]] = {
        "workspaced": lambda: _ours(world.local),
        "bare pipe": lambda: _pipe(*ZEROS),
    }
    taken = await interleaved(samples, rounds=5, warmup=1)
    rates = _rate(medians(taken))
    mine = rates.pop("workspaced")
    return Row(
        "stdout 1 GiB, Local", "MB/s", mine, rates, "at least 300 MB/s", f"{mine:.0f} MB/s", mine >= 300,
        samples=5, spread=quartiles(taken),
    )  # fmt: skip


async def _copy(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        "docker", "cp", *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0


def _source(world: World) -> Path:
    path = world.scratch / "gibibyte"
    if not path.exists():
        block = os.urandom(1 << 20)
        with path.open("wb") as file:
            for _ in range(GIB >> 20):
                file.write(block)
    return path


async def _blocks(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(1 << 18):
            yield block


async def file_write(world: World) -> Row:
    """Like for like: `docker cp` neither hashes nor waits for the disk, so the first of ours does not either.

    Each begins without the file and with a clean page cache: what the one before left to be written or freed would
    otherwise be paid by the next.
    """
    source = _source(world)

    async def timed(write: Awaitable[object]) -> float:
        await world.docker.files.remove("gibibyte", allow_missing=True)
        removal = await asyncio.create_subprocess_exec("docker", "exec", world.container, "rm", "-f", "/gibibyte")
        assert await removal.wait() == 0
        await asyncio.to_thread(os.sync)
        began = time.perf_counter()
        await write
        return time.perf_counter() - began

    def ours(*, hashed: bool, sync: bool) -> Awaitable[object]:
        return timed(world.docker.files.write("gibibyte", _blocks(source), hashed=hashed, sync=sync))

    samples: dict[str, Callable[[], Awaitable[object]]] = {
        "workspaced": lambda: ours(hashed=False, sync=False),
        "synced": lambda: ours(hashed=False, sync=True),
        "synced and hashed": lambda: ours(hashed=True, sync=True),
        "docker cp": lambda: timed(_copy(str(source), f"{world.container}:/gibibyte")),
    }
    taken = await interleaved(samples, rounds=5, warmup=1)
    rates = _rate(medians(taken))
    mine = rates.pop("workspaced")
    ratio = mine / rates["docker cp"]
    return Row(
        "write a file of 1 GiB, Docker", "MB/s", mine, rates, "at least as fast", f"{ratio:.2f}", ratio >= 1,
        samples=5, spread=quartiles(taken), notes="synced and hashed is the default",
    )  # fmt: skip


async def file_read(world: World) -> Row:
    source, target = _source(world), world.scratch / "back"
    await world.docker.files.write("gibibyte", _blocks(source))
    await _copy(str(source), f"{world.container}:/gibibyte")

    async def ours() -> None:
        with target.open("wb") as file:
            async for piece in world.docker.files.read_stream("gibibyte"):
                file.write(piece)

    samples: dict[str, Callable[[], Awaitable[object]]] = {
        "workspaced": ours,
        "docker cp": lambda: _copy(f"{world.container}:/gibibyte", str(target)),
    }
    taken = await interleaved(samples, rounds=3, warmup=1)
    rates = _rate(medians(taken))
    mine = rates.pop("workspaced")
    ratio = mine / rates["docker cp"]
    return Row(
        "read a file of 1 GiB, Docker", "MB/s", mine, rates, "at least as fast", f"{ratio:.2f}", ratio >= 1,
        samples=3, spread=quartiles(taken),
    )  # fmt: skip
