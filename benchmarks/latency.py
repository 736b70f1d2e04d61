"""How long a small thing takes: ``true`` from call to exit code, the first byte of an attachment, a new workspace."""

from __future__ import annotations

import asyncio
import itertools
import uuid

import aiodocker
import anyio.to_thread
import docker

import workspaced
from benchmarks.measure import Row, interleaved, medians, quartiles
from benchmarks.world import IMAGE, World

TRUE = ["true"]


async def run_true_docker(world: World) -> list[Row]:
    sdk = docker.from_env()
    sdk_container = sdk.containers.get(world.container)
    async with aiodocker.Docker() as aio:
        aio_container = await aio.containers.get(world.container)

        async def ours() -> None:
            assert (await world.docker.run(TRUE)).exit_code == 0

        async def by_sdk() -> None:
            result = await anyio.to_thread.run_sync(lambda: sdk_container.exec_run(TRUE))
            assert result.exit_code == 0

        async def by_aiodocker() -> None:
            execution = await aio_container.exec(TRUE)
            async with execution.start(detach=False) as stream:
                while await stream.read_out() is not None:
                    pass
            assert (await execution.inspect())["ExitCode"] == 0

        async def by_cli() -> None:
            process = await asyncio.create_subprocess_exec("docker", "exec", world.container, *TRUE)
            assert await process.wait() == 0

        samples = {"workspaced": ours, "docker SDK": by_sdk, "aiodocker": by_aiodocker, "docker exec": by_cli}
        in_a_row = await interleaved(samples, rounds=8, pause=0.1, block=10)
        single = await interleaved(samples, rounds=40, pause=0.1)
    sdk.close()
    return [
        _run_row("run true, Docker, calls in a row", in_a_row),
        _run_row("run true, Docker, a call after 100 ms of idleness", single),
    ]


def _run_row(measure: str, taken: dict[str, list[float]]) -> Row:
    middle = medians(taken, 1000)
    mine = middle.pop("workspaced")
    best = min(middle.values())
    return Row(
        measure, "ms", mine, middle, "12 times faster than the best", f"{best / mine:.1f} times", best / mine >= 12,
        samples=len(taken["workspaced"]), spread=quartiles(taken, 1000),
    )  # fmt: skip


async def run_true_local(world: World) -> Row:
    async def ours() -> None:
        assert (await world.local.run(TRUE)).exit_code == 0

    async def bare() -> None:
        process = await asyncio.create_subprocess_exec(*TRUE)
        assert await process.wait() == 0

    taken = await interleaved({"workspaced": ours, "asyncio subprocess": bare}, rounds=200, warmup=10)
    middle = medians(taken, 1000)
    mine = middle.pop("workspaced")
    more = mine - middle["asyncio subprocess"]
    return Row(
        "run true, Local", "ms", mine, middle, "at most 3 ms more", f"{more:+.2f} ms", more <= 3, samples=200,
        spread=quartiles(taken, 1000),
    )  # fmt: skip


async def initialize_docker(world: World) -> Row:
    async def ours() -> None:
        made.append(await world.client.initialize(backend="docker", image=IMAGE))

    async def docker_run() -> None:
        name = f"workspaced-bench-{uuid.uuid4().hex[:8]}"
        process = await asyncio.create_subprocess_exec(
            "docker", "run", "--init", "--name", name, IMAGE,
            "python3", "-c", "print('ready', flush=True); import time; time.sleep(600)",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        started.append((name, process))

    made: list[workspaced.Workspace] = []
    started: list[tuple[str, asyncio.subprocess.Process]] = []
    taken: dict[str, list[float]] = {"workspaced": [], "docker run": []}
    for _ in range(9):
        # One at a time, and removed outside of the measured time: an engine that removes is a slower engine.
        for name, seconds in (await interleaved({"workspaced": ours, "docker run": docker_run}, 1, warmup=0)).items():
            taken[name] += seconds
        for workspace in made:
            await workspace.delete()
        for name, process in started:
            removal = await asyncio.create_subprocess_exec(
                "docker", "rm", "-f", name, stdout=asyncio.subprocess.DEVNULL
            )
            await removal.wait()
            await process.wait()
        made.clear()
        started.clear()
    middle = medians(taken, 1000)
    mine = middle.pop("workspaced")
    more = mine - middle["docker run"]
    return Row(
        "Initialize, Docker, image present", "ms", mine, middle, "at most 250 ms more", f"{more:+.0f} ms", more <= 250,
        samples=9, spread=quartiles(taken, 1000),
    )  # fmt: skip


async def attach_first_byte(world: World) -> Row:
    process = await world.docker.start("head -c 104857600 /dev/zero", process_id="journal")
    await process.wait()

    turns = itertools.count(1)

    async def ours() -> None:
        offset = (next(turns) * 7919 * 1013) % 104857600
        attached = await world.docker.attach("journal", offset=offset)
        async for event in attached:
            assert event.offset == offset
            break
        await attached.aclose()

    taken = await interleaved({"workspaced": ours}, rounds=60)
    mine = medians(taken, 1000)["workspaced"]
    return Row(
        "attach in a journal of 100 MB, first byte", "ms", mine, {}, "at most 10 ms", f"{mine:.1f} ms", mine <= 10,
        samples=60, spread=quartiles(taken, 1000),
    )  # fmt: skip
