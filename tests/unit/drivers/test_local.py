"""The Local backend with the real guest."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from workspaced_server.drivers.base import DriverError, Phase, SandboxGone, SandboxSpec, SandboxState
from workspaced_server.drivers.cgroups import Cgroups
from workspaced_server.drivers.config import LocalConfig
from workspaced_server.drivers.local import LocalDriver
from workspaced_server.guest.channel import GuestChannel

TOKEN = secrets.token_hex(16)


def spec(**fields: Any) -> SandboxSpec:
    return SandboxSpec(**{"key": secrets.token_hex(16), "token": TOKEN, **fields})


def report(phase: Phase, fraction: float | None = None, message: str = "") -> None:
    """Nobody is told."""


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[LocalDriver]:
    (tmp_path / "allowed").mkdir()
    driver = LocalDriver(LocalConfig(tmp_path / "root", allowed_roots=(tmp_path / "allowed",)))
    yield driver
    async for ref in driver.list():
        await driver.destroy(ref)
    await driver.aclose()


async def run(driver: LocalDriver, ref: Any, command: str) -> dict[str, Any]:
    channel = await GuestChannel.connect(await driver.open_channel(ref), TOKEN)
    try:
        started = await channel.call("process.start", {"spec": {"shell": command}, "fingerprint": ""})
        return await channel.call("process.wait", {"process_id": started["started"]["process_id"]})
    finally:
        await channel.aclose()


async def guest_pid(driver: LocalDriver, ref: Any) -> int:
    channel = await GuestChannel.connect(await driver.open_channel(ref), TOKEN)
    await channel.aclose()
    return channel.hello.pid


async def test_life_of_a_sandbox(driver: LocalDriver) -> None:
    assert (await driver.probe()).available
    wanted = spec(env={"GIVEN": "by the caller"})
    ref = await driver.provision(wanted, report)
    assert (await driver.status(ref)).state is SandboxState.RUNNING
    assert (await run(driver, ref, 'test "$GIVEN" = "by the caller" && echo kept >file'))["exit"]["code"] == 0
    pid = await guest_pid(driver, ref)
    again = await driver.provision(wanted, report)
    assert again == ref
    assert await guest_pid(driver, again) == pid

    await driver.suspend(ref)
    await driver.suspend(ref)
    assert (await driver.status(ref)).state is SandboxState.SUSPENDED
    with pytest.raises(SandboxGone):
        await driver.open_channel(ref)

    ref = await driver.provision(wanted, report)
    assert (await run(driver, ref, "grep -q kept file"))["exit"]["code"] == 0
    assert await guest_pid(driver, ref) != pid
    assert [found.key async for found in driver.list()] == [ref.key]

    await driver.destroy(ref)
    await driver.destroy(ref)
    assert (await driver.status(ref)).state is SandboxState.GONE
    assert [found.key async for found in driver.list()] == []


async def test_concurrent_channels_start_one_guest(driver: LocalDriver) -> None:
    ref = await driver.provision(spec(), report)
    assert len(set(await asyncio.gather(*(guest_pid(driver, ref) for _ in range(8))))) == 1


async def test_a_killed_guest_is_started_again(driver: LocalDriver) -> None:
    ref = await driver.provision(spec(), report)
    pid = await guest_pid(driver, ref)
    pidfd = os.pidfd_open(pid)
    os.kill(pid, 9)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(pidfd, ended.set)
    await ended.wait()
    asyncio.get_running_loop().remove_reader(pidfd)
    os.close(pidfd)
    assert await guest_pid(driver, ref) != pid


async def test_the_guest_is_a_daemon_with_nothing_of_the_server(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_SECRET", "hidden")
    leaking, other = os.pipe()
    os.set_inheritable(leaking, True)
    ref = await driver.provision(spec(), report)
    pid = await guest_pid(driver, ref)
    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    names = {entry.split(b"=")[0] for entry in environ if entry}
    assert names - {b"PWD"} == {b"PATH", b"HOME", b"USER", b"LANG", b"WORKSPACED_WORKSPACE"}
    inode = f"pipe:[{os.fstat(leaking).st_ino}]"
    assert inode not in [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    os.close(leaking)
    os.close(other)
    assert os.getsid(pid) != os.getsid(0)
    if os.getpid() != 1:  # orphans of a name space become children of its first process
        assert f"PPid:\t{os.getpid()}\n" not in Path(f"/proc/{pid}/status").read_text()


async def test_suspend_ends_what_was_left_behind(driver: LocalDriver) -> None:
    ref = await driver.provision(spec(), report)
    await run(driver, ref, "setsid sleep 300 >/dev/null 2>&1 & echo $! >pid")
    left = int((Path(ref.workdir) / "pid").read_text())
    assert Path(f"/proc/{left}").exists()
    await driver.suspend(ref)
    assert not Path(f"/proc/{left}/exe").exists()


async def test_a_directory_of_the_caller(driver: LocalDriver, tmp_path: Path) -> None:
    named = tmp_path / "allowed" / "new" / "project"
    ref = await driver.provision(spec(options={"directory": str(named)}), report)
    assert ref.workdir == str(named)
    await run(driver, ref, "echo mine >file")
    await driver.destroy(ref)
    assert (named / "file").read_text() == "mine\n"


@pytest.mark.parametrize(
    "directory",
    ["/etc", "{tmp}/allowed/../root/x", "{tmp}/allowed/link/x", "{tmp}/root", "{tmp}", "{tmp}/allowed2"],
)
async def test_other_directories_are_refused(driver: LocalDriver, tmp_path: Path, directory: str) -> None:
    (tmp_path / "allowed" / "link").symlink_to("/etc")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DriverError) as caught:
        await driver.provision(spec(options={"directory": directory.format(tmp=tmp_path)}), report)
    assert caught.value.reason == "OPTION_NOT_ALLOWED"
    assert caught.value.metadata["field"] == "spec.local.directory"
    assert sorted(path for path in tmp_path.rglob("*") if path != tmp_path / "root") == before


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"disk_bytes": 1}, "spec.resources.disk_bytes"),
        ({"gpus": 1}, "spec.resources.gpus"),
        ({"network": "none"}, "spec.network"),
        ({"workdir": "/w"}, "spec.workdir"),
        ({"user": "somebody-else"}, "spec.user"),
    ],
)
async def test_what_it_cannot_do_is_refused(driver: LocalDriver, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(DriverError) as caught:
        await driver.provision(spec(**fields), report)
    assert (caught.value.reason, caught.value.metadata["field"]) == ("UNSUPPORTED_BY_BACKEND", field)
    assert [found async for found in driver.list()] == []


async def test_limits_without_groups_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cgroups, "detect", classmethod(lambda cls: Cgroups(2, {})))
    driver = LocalDriver(LocalConfig(tmp_path))
    assert not (await driver.probe()).capabilities.limits_memory
    for name in ("cpu_millis", "memory_bytes", "pids"):
        with pytest.raises(DriverError, match=f"spec.resources.{name}"):
            await driver.provision(spec(**{name: 1000}), report)


@pytest.mark.skipif("memory" not in Cgroups.detect().controllers, reason="the groups of this machine are read-only")
async def test_memory_limit_kills_the_process_not_the_guest(driver: LocalDriver) -> None:
    ref = await driver.provision(spec(memory_bytes=96 << 20), report)
    ended = await run(driver, ref, "exec python3 -c 'bytearray(300 << 20)'")
    assert ended["exit"]["reason"] == "OOM_KILLED"
    assert (await run(driver, ref, "true"))["exit"]["code"] == 0


async def test_an_ephemeral_workspace_is_gone_after_suspend(driver: LocalDriver) -> None:
    ref = await driver.provision(spec(persistent=False), report)
    await driver.suspend(ref)
    assert (await driver.status(ref)).state is SandboxState.GONE
    assert not Path(ref.workdir).exists()


async def test_destroy_removes_what_resists(driver: LocalDriver, tmp_path: Path) -> None:
    ref = await driver.provision(spec(), report)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("stays")
    inside = Path(ref.workdir) / "a" / "b"
    inside.mkdir(parents=True)
    (inside / "file").write_text("")
    (inside / "link").symlink_to(outside)
    deep = inside
    for _ in range(200):
        deep = deep / "deep"
    deep.mkdir(parents=True)
    inside.chmod(0o500)
    inside.parent.chmod(0)
    await driver.destroy(ref)
    assert not Path(ref.workdir).exists()
    assert (outside / "file").read_text() == "stays"


async def test_long_paths(tmp_path: Path) -> None:
    driver = LocalDriver(LocalConfig(tmp_path / ("x" * 200)))
    ref = await driver.provision(spec(), report)
    assert (await run(driver, ref, "true"))["exit"]["code"] == 0
    await driver.destroy(ref)


async def test_cancelled_provisioning_leaves_nothing(driver: LocalDriver, tmp_path: Path) -> None:
    for turns in range(12):
        wanted = spec()
        provisioning = asyncio.create_task(driver.provision(wanted, report))
        for _ in range(turns):
            await asyncio.sleep(0)
        provisioning.cancel()
        done = await asyncio.gather(provisioning, return_exceptions=True)
        if isinstance(done[0], asyncio.CancelledError):
            assert not (tmp_path / "root" / wanted.key).exists()
