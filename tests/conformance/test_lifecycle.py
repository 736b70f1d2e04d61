"""Workspaces come, go and come back; names are kept apart; a failure leaves nothing."""

from __future__ import annotations

import sqlite3
import subprocess
import uuid
from contextlib import closing

import anyio
import pytest

import workspaced
from tests.conformance.backends import BackendUnderTest
from tests.conformance.conftest import Make
from tests.support.server import ServerProcess

pytestmark = pytest.mark.anyio


def containers(server: ServerProcess) -> set[str]:
    """Every container of this server: others may run on the same engine."""
    with closing(sqlite3.connect(server.state_dir / "registry.db")) as registry:
        ((installation,),) = registry.execute("SELECT value FROM properties WHERE name = 'installation_id'")
    listed = subprocess.run(
        ["docker", "ps", "-aq", "--no-trunc", "--filter", f"label=workspaced.installation={installation}"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(listed.stdout.split())


async def test_initialize_is_idempotent(client: workspaced.Client, make: Make, ws: workspaced.Workspace) -> None:
    await ws.run("echo here > file")
    again = await make(workspace_id=ws.id)
    assert await again.files.read("file") == b"here\n"
    found = await client.initialize(workspace_id=ws.id)
    assert await found.files.read("file") == b"here\n"


async def test_another_spec_is_refused(make: Make, ws: workspaced.Workspace) -> None:
    with pytest.raises(workspaced.AlreadyExists) as caught:
        await make(workspace_id=ws.id, env={"OTHER": "1"})
    assert caught.value.reason == "WORKSPACE_SPEC_MISMATCH"
    assert "env" in str(caught.value)


async def test_request_id_makes_creation_idempotent(make: Make) -> None:
    request_id = uuid.uuid4().hex
    first = await make(workspace_id=None, request_id=request_id)
    second = await make(workspace_id=None, request_id=request_id)
    assert first.id == second.id


async def test_concurrent_initialize_is_one_provisioning(make: Make, backend: BackendUnderTest) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    found: list[workspaced.Workspace] = []

    async def one() -> None:
        found.append(await make(workspace_id=name))

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(one)
    await found[0].run("echo only >> marker")
    assert {await ws.files.read("marker") for ws in found} == {b"only\n"}
    if backend.name == "docker":
        listed = subprocess.run(
            ["docker", "ps", "-aq", "--filter", f"label=workspaced.workspace_id={name}"],
            check=True,
            capture_output=True,
            text=True,
        )
        assert len(listed.stdout.split()) == 1


async def test_failed_initialize_leaves_nothing(
    client: workspaced.Client, server: ServerProcess, backend: BackendUnderTest
) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    before = containers(server)
    arguments = dict(backend.arguments)
    if backend.name == "docker":
        arguments["image"] = "localhost:1/no/such:image"
    else:
        arguments["local"] = {"directory": "/proc/not-allowed"}
    with pytest.raises(workspaced.WorkspacedError) as caught:
        await client.initialize(**arguments, workspace_id=name)
    assert caught.value.reason in {"IMAGE_NOT_FOUND", "PROVIDER_UNAVAILABLE", "OPTION_NOT_ALLOWED"}
    with pytest.raises(workspaced.WorkspaceNotFound):
        await client.workspace(name).info()
    assert containers(server) == before


async def test_cancelled_initialize_leaves_nothing(
    client: workspaced.Client, server: ServerProcess, backend: BackendUnderTest
) -> None:
    before = containers(server)
    for delay in [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5]:
        name = f"t-{uuid.uuid4().hex[:12]}"
        with anyio.move_on_after(delay) as scope:
            await client.initialize(**backend.arguments, workspace_id=name)
        if not scope.cancelled_caught:
            await client.workspace(name).delete()
            continue
        with anyio.fail_after(60):
            while await client.list(workspace_ids=[name]):
                await anyio.sleep(0.05)
    with anyio.fail_after(60):
        while containers(server) - before:
            await anyio.sleep(0.1)


async def test_close_delete_and_reset_are_idempotent(client: workspaced.Client, make: Make) -> None:
    ws = await make()
    await ws.files.write("project", b"1")
    await ws.run("mkdir -p skills/a sessions/s data; touch skills/a/SKILL.md sessions/s/context.jsonl data/x")
    await ws.start("sleep 1000", process_id="server")
    for _ in range(2):
        await ws.reset()
    assert await ws.files.read("project") == b"1"
    assert (await ws.run("ls -d skills/a sessions/s data/x 2>/dev/null || true")).stdout == b""
    assert (await ws.process("server").info()).state == "RUNNING"
    await ws.reset(wipe_files=True, kill_processes=True)
    assert (await (await ws.attach("server")).wait()).reason == "WORKSPACE_STOPPED"
    with pytest.raises(workspaced.FileNotFound):
        await ws.files.read("project")
    for _ in range(2):
        await ws.close()
    assert (await ws.info()).state == "CLOSED"
    await ws.delete()
    await ws.delete(allow_missing=True)
    with pytest.raises(workspaced.WorkspaceNotFound):
        await ws.delete()


async def test_close_tells_attached_readers_and_ends_processes(make: Make) -> None:
    ws = await make()
    async with ws.exec("trap '' TERM; echo up; while :; do sleep 0.1; done") as process:
        await anext(aiter(process))
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: ws.close(grace=0.5))
            exit = await process.wait()
    assert exit.reason == "WORKSPACE_STOPPED"
    with pytest.raises(workspaced.FailedPrecondition) as caught:
        await ws.run("true")
    assert caught.value.reason == "WORKSPACE_NOT_READY"


async def test_what_persists_over_close(make: Make, backend: BackendUnderTest) -> None:
    ws = await make()
    await ws.files.write("kept", b"bytes")
    await ws.close()
    await make(workspace_id=ws.id)
    if backend.persistent_by_default:
        assert await ws.files.read("kept") == b"bytes"
    else:
        with pytest.raises(workspaced.FileNotFound):
            await ws.files.read("kept")


async def test_persistent_when_asked(make: Make) -> None:
    ws = await make(persistent=True)
    await ws.files.write("kept", b"bytes")
    await ws.close()
    await make(workspace_id=ws.id, persistent=True)
    assert await ws.files.read("kept") == b"bytes"


async def test_names_are_kept_apart(make: Make) -> None:
    names = ["User_A", "user-a", "用户", "用户二", "../../etc", "a/b", " ", "x" * 256, "x" * 255 + "y"]
    unique = uuid.uuid4().hex[:6]
    made = {name: await make(workspace_id=name if len(name) > 200 else f"{name}{unique}") for name in names}
    for name, ws in made.items():
        await ws.files.write("name", name.encode())
    for name, ws in made.items():
        assert await ws.files.read("name") == name.encode()


@pytest.mark.parametrize("name", ["x" * 257, "a\nb", "a\0b", "tab\t", "\x7f"])
async def test_names_that_are_refused_with_the_reason(make: Make, name: str) -> None:
    with pytest.raises(workspaced.InvalidArgument) as caught:
        await make(workspace_id=name)
    assert caught.value.violations[0].field == "workspace_id"
    assert caught.value.violations[0].description


async def test_watch_tells_of_states_and_phases(client: workspaced.Client, make: Make) -> None:
    label = uuid.uuid4().hex[:12]
    sentinel = await make(labels={"watch": label})
    seen: list[tuple[str, str]] = []
    phases: set[str] = set()
    watching = anyio.Event()

    async def watch() -> None:
        async with client.watch(labels={"watch": label}) as changes:
            async for change in changes:
                watching.set()  # the state there was: from here on every change is told
                if change.workspace_id == sentinel.id:
                    continue
                seen.append((change.workspace_id, change.state))
                if change.progress is not None:
                    phases.add(change.progress.phase)
                if change.state == "DELETED":
                    return

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            await watching.wait()
            ws = await make(labels={"watch": label})
            await ws.close()
            await ws.delete()
    assert {workspace_id for workspace_id, _ in seen} == {ws.id}
    states = [state for _, state in seen]
    assert states[0] == "INITIALIZING"
    assert states[-1] == "DELETED"
    assert "READY" in states
    assert phases & {"CREATING", "STARTING", "CONNECTING"}


async def test_list_filters(client: workspaced.Client, make: Make) -> None:
    label = uuid.uuid4().hex[:8]
    made = [await make(labels={"suite": label, "n": str(n)}) for n in range(3)]
    listed = [w.workspace_id for w in await client.list(labels={"suite": label})]
    assert listed == [ws.id for ws in made]
    one = [w.workspace_id for w in await client.list(labels={"suite": label, "n": "1"})]
    assert one == [made[1].id]


async def test_unknown_workspace(client: workspaced.Client) -> None:
    with pytest.raises(workspaced.WorkspaceNotFound):
        await client.workspace("no-such").run("true")
