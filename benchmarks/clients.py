"""The three client libraries, each in a program of its own: the drivers of the conformance suite."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from benchmarks.measure import Row, interleaved, medians, quartiles
from benchmarks.world import World
from tests.clients.driver import Driver
from tests.clients.languages import LANGUAGES, environment
from workspaced.v1 import execution_pb2, process_pb2

GIB = 1 << 30
ZEROS = ["head", "-c", "1G", "/dev/zero"]
ATTACHMENTS = 200
MEMORY_MB = {"go": 60, "typescript": 150, "python": 120}
MIB = 1 << 20


@asynccontextmanager
async def _drivers(world: World, workspace_id: str) -> AsyncIterator[dict[str, Driver]]:
    """One of each language, connected to the server and holding a workspace."""
    directory = Path(world.scratch)
    running: dict[str, Driver] = {}
    try:
        for name, language in LANGUAGES.items():
            command = await asyncio.to_thread(language.command, directory)
            driver = running[name] = Driver(command, directory / f"{name}.log", environment())
            await _do(driver, "connect", address=world.server.address)
            await _do(driver, "workspace", id=workspace_id)
        yield running
    finally:
        for driver in running.values():
            await asyncio.to_thread(driver.close)


async def _do(driver: Driver, op: str, **arguments: Any) -> dict[str, Any]:
    return await asyncio.to_thread(lambda: driver.do(op, 300, **arguments))


def _sampler(driver: Driver, op: str, figure: str, **arguments: Any) -> Callable[[], Awaitable[float]]:
    async def sample() -> float:
        return float((await _do(driver, op, **arguments))[figure])

    return sample


@asynccontextmanager
async def _bare_http2(world: World, workspace_id: str) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """The same calls by node:http2 without any client: what nobody can do better in Node."""
    request = execution_pb2.RunProcessRequest(
        workspace_id=workspace_id, spec=process_pb2.ProcessSpec(argv=process_pb2.Argv(args=["true"]))
    )
    program = await asyncio.create_subprocess_exec(
        "node", str(Path(__file__).with_name("bare_http2.mjs")), world.server.address,
        "/workspaced.v1.ExecutionService/RunProcess", request.SerializeToString().hex(),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert program.stdin is not None
    assert program.stdout is not None
    orders, answers = program.stdin, program.stdout

    async def sample() -> float:
        orders.write(b"50\n")
        return float(await answers.readline())

    try:
        yield sample
    finally:
        orders.close()
        await program.wait()


async def run_true(world: World) -> list[Row]:
    async with _drivers(world, world.docker.id) as drivers, _bare_http2(world, world.docker.id) as bare:
        samples = {
            name: _sampler(driver, "bench_run", "p50", command=["true"], count=50) for name, driver in drivers.items()
        }
        taken = await interleaved({**samples, "node:http2": bare}, rounds=15, warmup=2)
    middle, spread = medians(taken, 1000), quartiles(taken, 1000)
    peers = {"python client": middle["python"]}
    return [
        Row(
            f"run true, Docker, {name} client", "ms", middle[name],
            peers if name == "go" else {**peers, "node:http2 alone": middle["node:http2"]},
            "no slower than Python", f"{middle[name] / middle['python']:.2f}", middle[name] <= middle["python"],
            samples=15 * 50, spread=spread, notes="medians of medians of 50 calls in a row",
        )
        for name in ("go", "typescript")
    ]  # fmt: skip


async def stdout(world: World) -> list[Row]:
    async with _drivers(world, world.docker.id) as drivers, grpc.aio.insecure_channel(world.server.address) as channel:
        bare: grpc.aio.StreamStreamMultiCallable[execution_pb2.ExecRequest, bytes] = channel.stream_stream(
            "/workspaced.v1.ExecutionService/Exec",
            request_serializer=execution_pb2.ExecRequest.SerializeToString,
            response_deserializer=None,
        )

        async def undecoded() -> None:
            """What the server can send at most: its messages are counted and dropped."""
            spec = process_pb2.ProcessSpec(argv=process_pb2.Argv(args=ZEROS))
            start = execution_pb2.ExecStart(workspace_id=world.docker.id, spec=spec)
            call = bare()
            await call.write(execution_pb2.ExecRequest(start=start))
            received = 0
            while (message := await call.read()) is not grpc.aio.EOF:
                received += len(message) if isinstance(message, bytes) else 0
            if received < GIB:
                raise RuntimeError(f"{received} bytes came")

        samples: dict[str, Callable[[], Awaitable[object]]] = {
            name: _sampler(driver, "bench_stdout", "seconds", command=ZEROS) for name, driver in drivers.items()
        }
        samples["bare gRPC reader"] = undecoded
        taken = await interleaved(samples, rounds=5, warmup=1)
    rates = {name: GIB / 1e6 / seconds for name, seconds in medians(taken).items()}
    limit = rates["bare gRPC reader"]
    targets = {"go": min(400.0, limit), "typescript": 200.0}
    words = {"go": "400 MB/s, or what the server gives", "typescript": "200 MB/s"}
    return [
        Row(
            f"stdout 1 GiB, Docker, {name} client", "MB/s", rates[name],
            {"python client": rates["python"], "bare gRPC reader": limit}, words[name],
            f"{rates[name]:.0f}", rates[name] >= target, samples=5, spread=quartiles(taken),
        )
        for name, target in targets.items()
    ]  # fmt: skip


async def memory(world: World) -> list[Row]:
    rows = []
    async with _drivers(world, world.local.id) as drivers:
        for name, driver in drivers.items():
            alone = (await _do(driver, "rss"))["bytes"]
            await _do(driver, "spawn_many", count=ATTACHMENTS, command=["sleep", "600"], hold=True)
            await asyncio.sleep(2)
            held = statistics.median([(await _do(driver, "rss"))["bytes"] for _ in range(3)])
            await _do(driver, "release_many")
            rows.append(
                Row(
                    f"memory of the {name} client, {ATTACHMENTS} idle attachments", "MiB", held / MIB,
                    {"before them": alone / MIB}, f"at most {MEMORY_MB[name]} MB", f"{held / 1e6:.0f} MB",
                    held <= MEMORY_MB[name] * 1e6,
                )
            )  # fmt: skip
    return rows
