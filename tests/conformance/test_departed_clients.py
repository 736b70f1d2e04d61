"""A client that is gone in the middle of a stream is a call that was cancelled, and no error of the server."""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
import pytest

import workspaced
from tests.support.server import ServerProcess

pytestmark = pytest.mark.anyio

# Takes one message of a stream and no more, so that the server waits in the middle of a write.
READER = """
import asyncio, sys, workspaced
async def main():
    async with workspaced.connect(sys.argv[1]) as client:
        ws = client.workspace(sys.argv[2])
        reads = sys.argv[3] == "ReadFile"
        async with ws.files.read_stream("big") if reads else ws.exec("cat big", process_id=sys.argv[4]) as messages:
            await anext(aiter(messages))
            print(flush=True)
            await asyncio.sleep(3600)
asyncio.run(main())
"""
CLIENTS = 5


@pytest.mark.parametrize("method", ["ReadFile", "Exec"])
async def test_a_killed_client(ws: workspaced.Workspace, server: ServerProcess, method: str) -> None:
    await ws.files.write("big", bytes(64 << 20))
    before = server.log_path.stat().st_size

    def lines() -> list[dict[str, Any]]:
        with server.log_path.open("rb") as log:
            log.seek(before)
            return [json.loads(line) for line in log.read().splitlines() if line.startswith(b"{")]

    for index in range(CLIENTS):
        arguments = [server.address, ws.id, method, f"reader-{index}"]
        async with await anyio.open_process([sys.executable, "-c", READER, *arguments], stderr=None) as client:
            assert client.stdout is not None
            assert await client.stdout.receive() == b"\n"
            client.kill()
    with anyio.fail_after(30):
        while len(ended := [line for line in lines() if line.get("method", "").endswith(f"/{method}")]) < CLIENTS:
            await anyio.sleep(0.05)
    assert {line["code"] for line in ended} == {"CANCELLED"}
    assert [line for line in lines() if line["level"] == "error"] == []
