"""Scopes that are left early, leaks, and load."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import os
import time
from contextlib import AsyncExitStack
from typing import Any

from grpc.aio import Call

from tests.clients.python_operations.registry import Args, DriverBug, Objects, operation
from tests.support.server import rss_bytes
from workspaced.client import Client


class _Leave(Exception):
    """How a user's own error leaves a scope."""


def _thing(objects: Objects, args: Args) -> Any:
    what = args["what"]
    if what == "watch_workspaces":
        return objects.get(args, "client", Client).watch()
    ws = objects.workspace(args)
    if what == "exec":
        return ws.exec(args["command"])
    if what == "attach":
        return ws.process(args["process_id"])
    if what == "file":
        return ws.files.read_stream(args["path"])
    if what == "watch_files":
        return ws.files.watch(args["path"])
    if what == "tool":
        return ws.tools.stream(args["name"], args["input"])
    if what == "messages":
        return ws.offload.messages(args["path"])
    raise DriverBug(f"no scope of {what!r}")


@operation
async def scope(objects: Objects, args: Args) -> dict[str, Any]:
    with contextlib.suppress(_Leave):
        async with _thing(objects, args) as items:
            async for _ in items:
                if args["how"] == "error":
                    raise _Leave
                break
    return {}


@operation
async def live(objects: Objects, args: Args) -> dict[str, Any]:
    """Waits up to 2 s for what is ending."""
    calls, left = 0, list[asyncio.Task[object]]()
    for _ in range(20):
        gc.collect()
        calls = sum(1 for found in gc.get_objects() if isinstance(found, Call) and not found.done())
        left = [task for task in asyncio.all_tasks() if not task.get_name().startswith("driver")]
        if not calls and not left:
            break
        await asyncio.sleep(0.1)
    return {"calls": calls, "tasks": len(left), "which": [str(task) for task in left]}


@operation
async def rss(objects: Objects, args: Args) -> dict[str, Any]:
    return {"bytes": rss_bytes(os.getpid())}


@operation
async def bench_run(objects: Objects, args: Args) -> dict[str, Any]:
    ws = objects.workspace(args)
    seconds = []
    for _ in range(args["count"]):
        start = time.perf_counter()
        await ws.run(args["command"])
        seconds.append(time.perf_counter() - start)
    seconds.sort()
    return {"p50": seconds[len(seconds) // 2], "p90": seconds[len(seconds) * 9 // 10], "max": seconds[-1]}


@operation
async def bench_stdout(objects: Objects, args: Args) -> dict[str, Any]:
    size, start = 0, time.perf_counter()
    async with objects.workspace(args).exec(args["command"]) as process:
        async for event in process:
            size += len(event.data)
    return {"bytes": size, "seconds": time.perf_counter() - start}


@operation
async def spawn_many(objects: Objects, args: Args) -> dict[str, Any]:
    ws, count = objects.workspace(args), int(args["count"])

    def process(index: int) -> Any:
        return ws.exec(args["command"], env={"INDEX": str(index)}, disconnect_policy="kill")

    if args.get("hold"):
        processes = [process(index) for index in range(count)]
        async with AsyncExitStack() as stack:
            await asyncio.gather(*(one.__aenter__() for one in processes))
            for one in processes:
                stack.push_async_exit(one)
            objects.held.append(stack.pop_all())
        return {"count": count}

    async def read(index: int) -> tuple[str, int | None]:
        digest = hashlib.sha256()
        async with process(index) as running:
            async for event in running:
                if event.stream == "stdout":
                    digest.update(event.data)
            return digest.hexdigest(), (await running.wait()).exit_code

    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(read(index)) for index in range(count)]
    ends = [reader.result() for reader in readers]
    return {"outputs": [output for output, _ in ends], "exit_codes": sorted({str(code) for _, code in ends})}


@operation
async def release_many(objects: Objects, args: Args) -> dict[str, Any]:
    while objects.held:
        await objects.held.pop().aclose()
    return {}
