"""What the tests of the Docker driver share: a driver of an installation of its own, removed whole at the end."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from workspaced_server.drivers.base import Phase, SandboxRef, SandboxSpec
from workspaced_server.drivers.config import DockerConfig
from workspaced_server.drivers.docker.driver import DockerDriver
from workspaced_server.guest.channel import GuestChannel

IMAGE = os.environ.get("WORKSPACED_TEST_IMAGE", "workspaced-test:bookworm")
IMAGE_WITHOUT_PYTHON = "workspaced-test:nopython"
TOKEN = secrets.token_hex(16)


def spec(**fields: Any) -> SandboxSpec:
    """A spec with a key of its own."""
    return SandboxSpec(**{"key": secrets.token_hex(16), "token": TOKEN, "image": IMAGE, **fields})


class Reports(list[tuple[Phase, float | None, str]]):
    """A `Progress` that remembers."""

    def __call__(self, phase: Phase, fraction: float | None = None, message: str = "") -> None:
        self.append((phase, fraction, message))

    @property
    def phases(self) -> list[Phase]:
        """In the order of their first report."""
        return list(dict.fromkeys(phase for phase, _, _ in self))


def docker(*arguments: str) -> str:
    """The engine's own command, for what the driver must not be asked about."""
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def container(ref: SandboxRef) -> str:
    """The id of the one container of a sandbox."""
    [found] = docker("ps", "-aq", "--filter", f"label=workspaced.key={ref.key}").split()
    return found


@asynccontextmanager
async def docker_driver(state: Path, **config: Any) -> AsyncIterator[DockerDriver]:
    """Leaves nothing on the engine."""
    installation = secrets.token_hex(8)
    driver = DockerDriver(DockerConfig(state / "docker", **config), installation)
    try:
        yield driver
        async for ref in driver.list():
            await driver.destroy(ref)
        assert docker("ps", "-aq", "--filter", f"label=workspaced.installation={installation}") == ""
        assert docker("volume", "ls", "-q", "--filter", f"label=workspaced.installation={installation}") == ""
    finally:
        await driver.aclose()


async def run(driver: DockerDriver, ref: SandboxRef, command: str, **process: Any) -> tuple[dict[str, Any], str]:
    """How a shell command ended, and what it wrote."""
    channel = await GuestChannel.connect(await driver.open_channel(ref), TOKEN)
    output = b""
    try:
        head = {"spec": {"shell": command, **process}, "fingerprint": "", "attach": {"offset": 0}}
        async with channel.open("process.start", head) as stream:
            while (item := await stream.receive()) is not None:
                if isinstance(item, bytes):
                    output += item[9:]
            assert stream.result is not None
            return stream.result["exit"], output.decode()
    finally:
        await channel.aclose()
