"""A workspace for a user, an agent or a session, by the real client, and what a lease is worth."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

import workspaced
from tests.conformance.backends import BackendUnderTest
from tests.support.server import ServerProcess

pytestmark = pytest.mark.anyio


def who(backend: BackendUnderTest) -> dict[str, str]:
    arguments = {name: value for name, value in backend.arguments.items() if name in ("backend", "image")}
    return {**arguments, "policy": "per_session", "user_id": uuid.uuid4().hex, "agent_id": "a", "session_id": "s"}


async def test_the_same_session_comes_back_to_its_files(
    client: workspaced.Client, backend: BackendUnderTest, server: ServerProcess
) -> None:
    key = who(backend)
    async with client.acquire(**key) as ws:  # type: ignore[arg-type]
        assert ws.created
        await ws.files.write("note", b"kept")
        info = await ws.info()
        assert info.labels["session"] == "s"
    async with workspaced.connect(server.address) as other:
        again = await other.acquire(**key)  # type: ignore[arg-type]
        assert not again.created
        assert await again.files.read("note") == b"kept"
        await again.release()
        await again.delete()


async def test_a_lease_is_renewed_and_acquired_again_when_it_was_lost(
    client: workspaced.Client, backend: BackendUnderTest
) -> None:
    async with client.acquire(**who(backend), lease_duration=0.6) as ws:  # type: ignore[arg-type]
        first, until = ws.lease_id, ws.lease_expire_time
        async with asyncio.timeout(30):
            while ws.lease_expire_time == until:
                await asyncio.sleep(0.01)
        assert ws.lease_id == first
        stub = client._connection.lifecycle
        from workspaced.v1 import lifecycle_pb2

        await stub.ReleaseWorkspace(lifecycle_pb2.ReleaseWorkspaceRequest(lease_id=first))
        async with asyncio.timeout(30):
            while ws.lease_id == first:
                await asyncio.sleep(0.01)
    await ws.delete()


def test_without_await(server: ServerProcess, backend: BackendUnderTest) -> None:
    with workspaced.sync.connect(server.address) as client:
        with client.acquire(**who(backend)) as ws:  # type: ignore[arg-type]
            assert ws.run("echo here").stdout == b"here\n"
        ws.delete()


async def test_an_owner_has_so_many_processes(backend: BackendUnderTest, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "state", config="[workspaces]\nmax_processes_per_owner = 3\n")
    server.start()
    async with workspaced.connect(server.address) as limited:
        one, other = [await limited.initialize(**backend.arguments) for _ in range(2)]
        try:
            started = [await one.start(["sleep", "600"]), await other.start(["sleep", "600"])]
            assert (await one.run("true")).exit_code == 0
            started.append(await one.start(["sleep", "600"]))
            for ws in (one, other):
                with pytest.raises(workspaced.QuotaExceeded):
                    await ws.run("true")
                with pytest.raises(workspaced.QuotaExceeded):
                    await ws.start(["true"])
                with pytest.raises(workspaced.QuotaExceeded):
                    await ws.tools.call("Bash", {"command": "true"})
            await started[1].signal("KILL")
            await started[1].wait()
            assert (await one.run("true")).exit_code == 0
        finally:
            await one.delete()
            await other.delete()
    assert server.stop() == 0
