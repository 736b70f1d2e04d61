"""The Docker backend against a real engine, with the real guest."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.engine_proxy import engine_proxy, engine_socket
from tests.unit.drivers.docker_harness import (
    IMAGE,
    IMAGE_WITHOUT_PYTHON,
    TOKEN,
    Reports,
    container,
    docker,
    docker_driver,
    run,
    spec,
)
from workspaced_server.drivers.base import DriverError, Phase, SandboxGone, SandboxState
from workspaced_server.drivers.config import DockerConfig
from workspaced_server.drivers.docker.driver import DockerDriver
from workspaced_server.drivers.docker.execstream import ExecStream
from workspaced_server.drivers.streams import SocketStream
from workspaced_server.guest.channel import GuestChannel


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[DockerDriver]:
    async with docker_driver(tmp_path) as driver:
        yield driver


async def test_probe(driver: DockerDriver) -> None:
    found = await driver.probe()
    assert found.available
    assert found.version == docker("version", "--format", "{{.Server.Version}}")
    capabilities = found.capabilities
    assert capabilities.isolation
    assert capabilities.images
    assert capabilities.network_none
    assert capabilities.limits_memory == json.loads(docker("info", "--format", "{{json .MemoryLimit}}"))


@pytest.mark.parametrize("host", ["unix:///nonexistent/docker.sock", "tcp://127.0.0.1:1", "nonsense://x"])
async def test_an_engine_that_is_not_there(tmp_path: Path, host: str) -> None:
    driver = DockerDriver(DockerConfig(tmp_path, host=host), "0" * 16)
    found = await driver.probe()
    assert not found.available
    assert found.reason
    with pytest.raises(DriverError) as caught:
        await driver.provision(spec(), Reports())
    assert caught.value.reason == "BACKEND_UNAVAILABLE"
    await driver.aclose()


async def test_life_of_an_ephemeral_sandbox(driver: DockerDriver) -> None:
    reports = Reports()
    wanted = spec(env={"GIVEN": "by the caller"}, labels={"team": "a", "workspaced.workspace_id": "w"})
    ref = await driver.provision(wanted, reports)
    assert reports.phases == [Phase.CREATING, Phase.STARTING]
    assert (ref.workdir, ref.persistent) == ("/workspace", False)
    _, text = await run(driver, ref, 'pwd; echo "$GIVEN"; id -u; echo kept >/tmp/file')
    assert text == "/workspace\nby the caller\n0\n"
    labels = json.loads(docker("inspect", "--format", "{{json .Config.Labels}}", container(ref)))
    assert labels["workspaced.label.team"] == "a"
    assert labels["workspaced.workspace_id"] == "w"
    assert (await driver.status(ref)).state is SandboxState.RUNNING
    assert [found.key async for found in driver.list()] == [ref.key]

    await driver.suspend(ref)
    await driver.suspend(ref)
    assert (await driver.status(ref)).state is SandboxState.GONE
    with pytest.raises(SandboxGone):
        await driver.open_channel(ref)
    ref = await driver.provision(wanted, Reports())
    assert (await run(driver, ref, "test -e /tmp/file"))[0]["code"] == 1
    await driver.destroy(ref)
    await driver.destroy(ref)


async def test_another_server_attaches_and_processes_go_on(driver: DockerDriver, tmp_path: Path) -> None:
    wanted = spec()
    ref = await driver.provision(wanted, Reports())
    channel = await GuestChannel.connect(await driver.open_channel(ref), TOKEN)
    await channel.call("process.start", {"process_id": "p", "spec": {"argv": ["sleep", "300"]}, "fingerprint": ""})
    await channel.aclose()
    identity = container(ref)

    second = DockerDriver(driver._config, driver._installation)
    again = await second.provision(wanted, Reports())
    assert again == ref
    assert container(again) == identity
    channel = await GuestChannel.connect(await second.open_channel(again), TOKEN)
    found = await channel.call("process.get", {"process_id": "p"})
    assert found["process"]["state"] == "running"
    await channel.aclose()
    await second.aclose()


async def test_a_stopped_or_paused_container_goes_on_with_its_files(driver: DockerDriver) -> None:
    wanted = spec()
    ref = await driver.provision(wanted, Reports())
    await run(driver, ref, "echo kept >/root/file")
    identity = container(ref)
    for act in ("stop", "kill", "pause"):
        docker(act, identity)
        assert (await driver.status(ref)).state is SandboxState.SUSPENDED
        if act != "pause":  # the guest of a paused container is there, and silent
            with pytest.raises(SandboxGone):
                await driver.open_channel(ref)
        again = await driver.provision(wanted, Reports())
        assert container(again) == identity
        assert (await run(driver, again, "cat /root/file"))[1] == "kept\n"


async def test_a_container_removed_behind_our_back(driver: DockerDriver) -> None:
    wanted = spec()
    ref = await driver.provision(wanted, Reports())
    await run(driver, ref, "true")
    docker("rm", "-f", container(ref))
    assert (await driver.status(ref)).state is SandboxState.GONE
    with pytest.raises(SandboxGone):
        await driver.open_channel(ref)
    ref = await driver.provision(wanted, Reports())
    assert (await run(driver, ref, "true"))[0]["code"] == 0


async def test_a_volume_keeps_files(driver: DockerDriver) -> None:
    wanted = spec(persistent=True, user="1000:1000")
    ref = await driver.provision(wanted, Reports())
    assert ref.persistent
    assert (await run(driver, ref, "id -u >file"))[0]["code"] == 0
    await driver.suspend(ref)
    assert (await driver.status(ref)).state is SandboxState.SUSPENDED
    assert [(found.key, found.persistent) async for found in driver.list()] == [(ref.key, True)]
    ref = await driver.provision(wanted, Reports())
    assert (await run(driver, ref, "cat file"))[1] == "1000\n"
    await driver.destroy(ref)
    assert [found async for found in driver.list()] == []


async def test_host_workdir_outlives_everything(tmp_path: Path) -> None:
    work = tmp_path / "allowed" / "project"
    work.mkdir(parents=True)
    (work / "given").write_text("by the host\n")
    async with docker_driver(tmp_path, allowed_mounts=(str(tmp_path / "allowed"),)) as driver:
        ref = await driver.provision(spec(options={"host_workdir": str(work)}), Reports())
        assert ref.persistent
        assert (await run(driver, ref, "cat given; echo made >made"))[1] == "by the host\n"
        await driver.suspend(ref)
        assert (await driver.status(ref)).state is SandboxState.SUSPENDED
        await driver.destroy(ref)
    assert (work / "made").read_text() == "made\n"


async def test_limits_hold(driver: DockerDriver) -> None:
    ref = await driver.provision(spec(memory_bytes=128 << 20, cpu_millis=500, pids=64), Reports())
    host = json.loads(docker("inspect", "--format", "{{json .HostConfig}}", container(ref)))
    assert (host["Memory"], host["MemorySwap"]) == (128 << 20, 128 << 20)
    assert (host["NanoCpus"], host["PidsLimit"]) == (500_000_000, 64)
    assert (await run(driver, ref, "cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>/dev/null"))[1] == "64\n"
    _, text = await run(driver, ref, "for n in $(seq 100); do sleep 60 & done 2>&1; echo started")
    assert "fork" in text
    ended, _ = await run(driver, ref, "exec python3 -c 'bytearray(400 << 20)'")
    assert ended["reason"] == "OOM_KILLED"
    assert (await run(driver, ref, "true"))[0]["code"] == 0


async def test_safe_by_default(driver: DockerDriver) -> None:
    ref = await driver.provision(spec(network="none"), Reports())
    _, text = await run(
        driver, ref, "grep -E '^(CapBnd|CapInh|CapAmb|NoNewPrivs)' /proc/self/status; ls /sys/class/net"
    )
    # CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, FSETID 4, KILL 5, SETGID 6, SETUID 7, NET_BIND_SERVICE 10
    bounding = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 10))
    assert f"CapBnd:\t{bounding:016x}" in text
    assert "NoNewPrivs:\t1" in text
    assert text.splitlines()[-1] == "lo"
    mounts = (await run(driver, ref, "cat /proc/self/mountinfo"))[1]
    assert "docker.sock" not in mounts


async def test_apt_works_as_root(driver: DockerDriver) -> None:
    """The capabilities that are left are those that package managers need: a package is unpacked and configured."""
    ref = await driver.provision(spec(network="none"), Reports())
    script = """set -e
    mkdir -p p/DEBIAN p/usr/share/probe && chmod 755 p/DEBIAN
    printf '%s: %s\\n' Package probe Version 1 Architecture all Maintainer 'x <x@example.org>' Description x \\
        >p/DEBIAN/control
    printf '#!/bin/sh\\nf=/usr/share/probe/file; chown nobody:mail $f && chmod 2755 $f\\n' >p/DEBIAN/postinst
    chmod 755 p/DEBIAN/postinst; echo x >p/usr/share/probe/file
    dpkg-deb --build p probe.deb >/dev/null && dpkg -i probe.deb >/dev/null
    stat -c '%U:%G %a' /usr/share/probe/file
    setpriv --reuid=65534 --regid=65534 --clear-groups id -u
    """
    ended, text = await run(driver, ref, script)
    assert (ended["code"], text.splitlines()[-2:]) == (0, ["nobody:mail 2755", "65534"])


@pytest.mark.parametrize("user", ["1000:1000", "nobody", "0"])
@pytest.mark.parametrize("read_only", [False, True])
async def test_users_own_their_workdir(driver: DockerDriver, user: str, read_only: bool) -> None:
    ref = await driver.provision(spec(user=user, options={"read_only_root": read_only}), Reports())
    ended, text = await run(driver, ref, "id -u; echo x >file && echo y >/tmp/file && cat file; touch /etc/probe")
    assert text.splitlines()[1] == "x"
    assert text.splitlines()[0] == {"1000:1000": "1000", "nobody": "65534", "0": "0"}[user]
    assert (ended["code"] == 0) is (user == "0" and not read_only)


async def test_the_user_of_the_image(driver: DockerDriver, tmp_path: Path) -> None:
    scratch = docker("create", "--label", "workspaced.test", IMAGE)
    image = f"workspaced-test:user-{os.getpid()}"
    docker("commit", "--change", "USER 1234", scratch, image)
    docker("rm", scratch)
    try:
        ref = await driver.provision(spec(image=image), Reports())
        assert (await run(driver, ref, "id -u; touch file && echo made"))[1] == "1234\nmade\n"
        await driver.destroy(ref)
    finally:
        docker("rmi", image)


async def test_mounts(tmp_path: Path) -> None:
    source = tmp_path / "allowed" / "data"
    source.mkdir(parents=True)
    (source / "file").write_text("data\n")
    async with docker_driver(tmp_path, allowed_mounts=(str(tmp_path / "allowed"),)) as driver:
        mounts = [{"source": str(source), "target": "/data", "read_only": True}]
        ref = await driver.provision(spec(options={"mounts": mounts}), Reports())
        ended, text = await run(driver, ref, "cat /data/file; touch /data/new 2>/dev/null")
        assert (text, ended["code"]) == ("data\n", 1)
        missing = [{"source": f"{tmp_path}/allowed/missing", "target": "/data"}]
        with pytest.raises(DriverError) as caught:
            await driver.provision(spec(options={"mounts": missing}), Reports())
        assert caught.value.reason == "ARGUMENT_INVALID"


async def test_disk_limit_is_enforced_or_refused(driver: DockerDriver) -> None:
    try:
        ref = await driver.provision(spec(disk_bytes=64 << 20), Reports())
    except DriverError as error:
        refusal = error
    else:
        assert (await run(driver, ref, "head -c 100M /dev/zero >file"))[0]["code"] != 0
        return
    assert (refusal.reason, refusal.metadata["field"]) == ("UNSUPPORTED_BY_BACKEND", "spec.resources.disk_bytes")
    assert [found async for found in driver.list()] == []


async def test_the_socket_carries_channels_where_files_are_shared(driver: DockerDriver, tmp_path: Path) -> None:
    """The engine of the tests is on this machine, so a first channel ends up on the socket."""
    ref = await driver.provision(spec(user="1000"), Reports())
    stream = await driver.open_channel(ref)
    assert isinstance(stream, SocketStream)
    await stream.aclose()
    directory = tmp_path / "docker" / ref.key
    assert directory.parent.stat().st_mode & 0o777 == 0o700
    assert sorted(entry.name for entry in directory.iterdir()) == ["guest.sock"]
    await driver.destroy(ref)
    assert not directory.exists()


async def test_a_container_cannot_lead_us_to_another_socket(driver: DockerDriver, tmp_path: Path) -> None:
    ref = await driver.provision(spec(), Reports())
    await run(driver, ref, "true")
    with socket.socket(socket.AF_UNIX) as trap:
        trap.bind(str(tmp_path / "trap"))
        trap.listen()
        trap.setblocking(False)
        channel = "/run/workspaced-channel"
        await run(driver, ref, f"mv {channel}/guest.sock {channel}/x && ln -s {tmp_path}/trap {channel}/guest.sock")
        with pytest.raises(DriverError):
            await driver.open_channel(ref)
        with pytest.raises(BlockingIOError):
            trap.accept()


async def test_without_the_socket(tmp_path: Path) -> None:
    async with docker_driver(tmp_path, socket_channel="never") as driver:
        ref = await driver.provision(spec(), Reports())
        stream = await driver.open_channel(ref)
        assert isinstance(stream, ExecStream)
        channel = await GuestChannel.connect(stream, TOKEN)
        second = await GuestChannel.connect(await driver.open_channel(ref), TOKEN)
        assert channel.hello.instance == second.hello.instance
        await channel.aclose()
        await second.aclose()
        assert not (tmp_path / "docker").exists()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_an_engine_at_a_tcp_address(tmp_path: Path, tls: bool) -> None:
    directory = tmp_path if tls else None
    async with (
        engine_proxy(directory) as proxy,
        docker_driver(tmp_path, host=proxy.address, tls_directory=directory) as driver,
    ):
        ref = await driver.provision(spec(), Reports())
        _, text = await run(driver, ref, "seq 100000 | sha256sum; exec head -c 20M /dev/zero")
        assert len(text) > 20 << 20
        channel = await GuestChannel.connect(await driver.open_channel(ref), TOKEN)
        proxy.cut()
        await asyncio.wait_for(channel.wait_closed(), 10)
        await channel.aclose()
        assert (await run(driver, ref, "true"))[0]["code"] == 0
        assert not (tmp_path / "docker").exists()


@pytest.mark.parametrize("present", ["another authority", "no certificate"])
async def test_an_engine_that_does_not_trust_or_is_not_trusted(tmp_path: Path, present: str) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    async with engine_proxy(theirs) as proxy, engine_proxy(ours):
        if present == "no certificate":
            shutil.copy(theirs / "ca.pem", ours)  # the engine is trusted, our certificate is of somebody else
        driver = DockerDriver(DockerConfig(tmp_path, host=proxy.address, tls_directory=ours), "0" * 16)
        found = await driver.probe()
        assert not found.available
        assert "certificate" in found.reason or "TLS" in found.reason
        with pytest.raises(DriverError) as caught:
            await driver.provision(spec(), Reports())
        assert caught.value.reason == "BACKEND_UNAVAILABLE"


async def test_an_engine_over_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in the place of ``ssh`` that runs the command here."""
    fake = tmp_path / "bin" / "ssh"
    fake.parent.mkdir()
    real = shutil.which("docker")
    fake.write_text(f"#!/bin/sh\nexec env -u DOCKER_HOST {real} -H unix://{engine_socket()} system dial-stdio\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    async with docker_driver(tmp_path, host="ssh://user@engine.example") as driver:
        ref = await driver.provision(spec(), Reports())
        stream = await driver.open_channel(ref)
        assert isinstance(stream, ExecStream)
        await stream.aclose()
        assert (await run(driver, ref, "echo far"))[1] == "far\n"


async def test_no_python(driver: DockerDriver) -> None:
    ref = await driver.provision(spec(image=IMAGE_WITHOUT_PYTHON), Reports())
    with pytest.raises(DriverError, match="install_python") as caught:
        await driver.open_channel(ref)
    assert caught.value.reason == "GUEST_PYTHON_MISSING"


async def test_python_is_there_already(driver: DockerDriver) -> None:
    reports = Reports()
    ref = await driver.provision(spec(install_python=True), reports)
    assert Phase.INSTALLING_PYTHON not in reports.phases
    assert docker("inspect", "--format", "{{.Config.Image}}", container(ref)) == IMAGE


async def test_an_image_that_does_not_exist(driver: DockerDriver) -> None:
    reports = Reports()
    with pytest.raises(DriverError) as caught:
        await driver.provision(spec(image="127.0.0.1:1/workspaced-none:1"), reports)
    assert caught.value.reason == "PROVIDER_UNAVAILABLE"  # nobody answers there, so nobody can say
    assert reports.phases == [Phase.PULLING_IMAGE]
    with pytest.raises(DriverError) as caught:
        await driver.provision(spec(image="UPPER:not valid"), reports)
    assert (caught.value.reason, caught.value.metadata["field"]) == ("ARGUMENT_INVALID", "spec.image")


async def test_cancelled_provisioning_leaves_nothing(driver: DockerDriver, tmp_path: Path) -> None:
    await driver.probe()
    for step in range(8):
        wanted = spec(persistent=True)
        reached = asyncio.Event()
        count = 0

        def report(
            phase: Phase, fraction: float | None = None, message: str = "", reached: asyncio.Event = reached
        ) -> None:
            if phase is Phase.STARTING:
                reached.set()

        provisioning = asyncio.create_task(driver.provision(wanted, report))
        if step < 6:
            while count < step * 3 and not provisioning.done():
                count += 1
                await asyncio.sleep(0.004)  # spreads the points over the calls to the engine
        else:
            await reached.wait()
        provisioning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await provisioning
        assert [found async for found in driver.list()] == []
        assert list(tmp_path.glob("docker/*")) == []


async def test_a_cancelled_channel_leaves_a_sandbox_that_works(driver: DockerDriver) -> None:
    ref = await driver.provision(spec(), Reports())
    for pause in (0.0, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2):
        opening = asyncio.create_task(driver.open_channel(ref))
        done, _ = await asyncio.wait({opening}, timeout=pause)
        opening.cancel()
        if done:
            await opening.result().aclose()
            break
        with pytest.raises(asyncio.CancelledError):
            await opening
    assert (await run(driver, ref, "echo works"))[1] == "works\n"
