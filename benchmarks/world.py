"""What the measurements run against: a server, a client, a workspace of each kind, a peer of the same image."""

from __future__ import annotations

import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import workspaced
from tests.support.server import ServerProcess

IMAGE = "workspaced-test:bookworm"


@dataclass(frozen=True)
class World:
    """Everything that a measurement needs."""

    server: ServerProcess
    client: workspaced.Client
    local: workspaced.Workspace
    docker: workspaced.Workspace
    container: str
    scratch: Path


@contextmanager
def running_server(directory: Path, config: str = "") -> Iterator[ServerProcess]:
    """A server of its own, ended at exit."""
    server = ServerProcess(directory / f"state-{uuid.uuid4().hex[:6]}", config=config)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def peer_container() -> Iterator[str]:
    """The container that the peers use; gives its id."""
    run = ["docker", "run", "-d", "--init", "--network", "none", IMAGE, "sleep", "infinity"]
    container = subprocess.run(run, check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield container
    finally:
        subprocess.run(["docker", "rm", "-f", container], check=True, capture_output=True)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """Set everything up, and take it down."""
    with tempfile.TemporaryDirectory(prefix="workspaced-bench-") as name:
        directory = Path(name)
        with running_server(directory) as server, peer_container() as container:
            async with workspaced.connect(server.address) as client:
                local = await client.initialize(backend="local", workspace_id="local")
                docker = await client.initialize(backend="docker", image=IMAGE, workspace_id="docker")
                try:
                    yield World(server, client, local, docker, container, directory)
                finally:
                    await local.delete()
                    await docker.delete()
