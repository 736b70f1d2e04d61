"""Images: pulled with progress from a real registry, and given python3 once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.image_registry import ImageRegistry, image_registry
from tests.unit.drivers.docker_harness import IMAGE, Reports, container, docker, docker_driver, run, spec
from workspaced_server.drivers.base import DriverError, Phase
from workspaced_server.drivers.docker.driver import DockerDriver
from workspaced_server.drivers.docker.images import Layers


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[DockerDriver]:
    async with docker_driver(tmp_path) as driver:
        yield driver


@pytest.fixture
def registry() -> Iterator[ImageRegistry]:
    with image_registry() as registry:
        yield registry


async def test_a_missing_image_is_pulled_with_progress(driver: DockerDriver, registry: ImageRegistry) -> None:
    reports = Reports()
    try:
        ref = await driver.provision(spec(image=registry.reference), reports)
        with pytest.raises(DriverError, match="/bin/sh") as caught:
            await driver.open_channel(ref)
        assert caught.value.reason == "UNSUPPORTED_BY_BACKEND"
        assert docker("image", "inspect", "--format", "{{len .RootFS.Layers}}", registry.reference) == "2"
        await driver.destroy(ref)
    finally:
        docker("rmi", registry.reference)
    assert reports.phases == [Phase.PULLING_IMAGE, Phase.CREATING, Phase.STARTING]
    fractions = [fraction for phase, fraction, _ in reports if phase is Phase.PULLING_IMAGE and fraction is not None]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    assert any("of 2 layers" in message for _, _, message in reports)
    assert [found async for found in driver.list()] == []


async def test_a_stalled_pull_can_be_cancelled(driver: DockerDriver, registry: ImageRegistry, tmp_path: Path) -> None:
    registry.gate.clear()
    provisioning = asyncio.create_task(driver.provision(spec(image=registry.reference), Reports()))
    assert await asyncio.to_thread(registry.stalled.wait, 30)
    provisioning.cancel()
    done, _ = await asyncio.wait({provisioning}, timeout=5)
    assert done
    assert provisioning.cancelled()
    assert list((tmp_path / "docker").iterdir()) == []
    assert docker("images", "-q", registry.reference) == ""


async def test_an_image_that_the_registry_does_not_have(driver: DockerDriver, registry: ImageRegistry) -> None:
    with pytest.raises(DriverError) as caught:
        await driver.provision(spec(image=registry.reference.replace(":pull", ":none")), Reports())
    assert caught.value.reason == "IMAGE_NOT_FOUND"
    assert caught.value.metadata["image"].endswith(":none")


async def test_python_is_installed_once_per_image(driver: DockerDriver, tmp_path: Path) -> None:
    """The package manager is a script that puts the image's own python3 back: the tests have no archive of packages."""
    image = f"workspaced-test:install-{os.getpid()}"
    scratch = docker("run", "-d", IMAGE, "sleep", "600")
    install = '#!/bin/sh\n[ "$1" != install ] || { echo unpacking; mv /opt/hidden/* /usr/bin/; }\n'
    docker("exec", scratch, "sh", "-c", "mkdir /opt/hidden && mv /usr/bin/python3* /opt/hidden/")
    docker(
        "exec",
        scratch,
        "sh",
        "-c",
        f"rm /usr/bin/apt-get; printf '%s' '{install}' >/usr/bin/apt-get; chmod 755 /usr/bin/apt-get",
    )
    docker("commit", "--change", "ENV KEPT=yes", "--change", "USER 1000", scratch, image)
    docker("rm", "-f", scratch)
    identity = docker("image", "inspect", "--format", "{{.Id}}", image)
    made = f"workspaced-python:{identity.removeprefix('sha256:')[:12]}"
    try:
        without = await driver.provision(spec(image=image), Reports())
        with pytest.raises(DriverError, match="install_python"):
            await driver.open_channel(without)
        first, second = Reports(), Reports()
        wanted = [spec(image=image, install_python=True, env={"SECRET": "s3cret"}) for _ in range(2)]
        refs = await asyncio.gather(driver.provision(wanted[0], first), driver.provision(wanted[1], second))
        installed = [reports for reports in (first, second) if Phase.INSTALLING_PYTHON in reports.phases]
        assert len(installed) == 1
        assert any(message == "unpacking" for _, _, message in installed[0])
        for ref in refs:
            assert docker("inspect", "--format", "{{.Config.Image}}", container(ref)) == made
            assert (await run(driver, ref, 'echo "$KEPT $(id -u) $SECRET"'))[1] == "yes 1000 s3cret\n"
            await driver.destroy(ref)
        settings = docker("image", "inspect", "--format", "{{json .Config}}", made)
        assert "s3cret" not in settings
        assert driver._installation not in settings
    finally:
        async for ref in driver.list():
            await driver.destroy(ref)
        docker("rmi", "-f", image, made)


async def test_an_installation_that_fails_tells_why(driver: DockerDriver) -> None:
    image = f"workspaced-test:broken-{os.getpid()}"
    scratch = docker("run", "-d", IMAGE, "sleep", "600")
    docker(
        "exec",
        scratch,
        "sh",
        "-c",
        "rm /usr/bin/python3 && printf '#!/bin/sh\\necho no network; exit 100' >/usr/bin/apt-get",
    )
    docker("commit", scratch, image)
    docker("rm", "-f", scratch)
    try:
        with pytest.raises(DriverError, match="no network") as caught:
            await driver.provision(spec(image=image, install_python=True), Reports())
        assert caught.value.reason == "GUEST_PYTHON_MISSING"
        assert docker("ps", "-aq", "--filter", f"label=workspaced.installation={driver._installation}") == ""
    finally:
        docker("rmi", "-f", image)


def test_layers_never_go_back() -> None:
    layers = Layers()
    assert layers.fraction is None
    seen: list[float | None] = []
    for event in (
        {"status": "Pulling from library/x", "id": "latest"},
        {"status": "Pulling fs layer", "id": "a"},
        {"status": "Already exists", "id": "b"},
        {"status": "Downloading", "id": "a", "progressDetail": {"current": 50, "total": 100}},
        {"status": "Verifying Checksum", "id": "a"},
        {"status": "Download complete", "id": "a"},
        {"status": "Extracting", "id": "a", "progressDetail": {"current": 1, "total": 2}},
        {"status": "Extracting", "id": "a", "progressDetail": {"current": 1, "units": "s"}},
        {"status": "Pull complete", "id": "a"},
        {"status": "Digest: sha256:0"},
    ):
        layers.add(event)
        seen.append(layers.fraction)
    assert seen == [None, 0.0, 0.5, 0.625, 0.625, 0.75, 0.875, 0.875, 1.0, 1.0]
    assert str(layers) == "2 of 2 layers"
