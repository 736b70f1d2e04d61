"""One suite, every backend: each test gets a real server, the real client, and a workspace on its backend."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

import workspaced
from tests.conformance.backends import BACKENDS, BackendUnderTest
from tests.support.server import ServerProcess
from tests.support.skill_client import SkillClient

Make = Callable[..., Awaitable[workspaced.Workspace]]

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real sandboxes on a busy machine: slow is no failure here, and what hangs is still noticed."""
    for item in items:
        if item.path.is_relative_to(_HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session", params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> BackendUnderTest:
    """The backend under test."""
    return BACKENDS[request.param]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server for all tests that do not harm it."""
    running = ServerProcess(tmp_path_factory.mktemp("server") / "state")
    running.start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that a test may kill."""
    running = ServerProcess(tmp_path / "state")
    running.start()
    yield running
    if running.process is None:
        running.start()
    assert running.stop() == 0


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[workspaced.Client]:
    """A client of the shared server."""
    async with workspaced.connect(server.address) as connected:
        yield connected


@pytest.fixture
async def make(client: workspaced.Client, backend: BackendUnderTest) -> AsyncIterator[Make]:
    """Makes workspaces that are deleted at the end."""
    made: list[workspaced.Workspace] = []

    async def initialize(**arguments: Any) -> workspaced.Workspace:
        workspace = await client.initialize(
            **{**backend.arguments, "workspace_id": f"t-{uuid.uuid4().hex[:12]}", **arguments}
        )
        made.append(workspace)
        return workspace

    yield initialize
    for workspace in made:
        await workspace.delete(allow_missing=True)


@pytest.fixture
async def ws(make: Make) -> workspaced.Workspace:
    """A new workspace."""
    return await make()


@pytest.fixture
async def channel(server: ServerProcess) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address, [("grpc.max_receive_message_length", 8 << 20)]) as opened:
        yield opened


@pytest.fixture
def skills(ws: workspaced.Workspace, channel: grpc.aio.Channel) -> SkillClient:
    return SkillClient(channel, ws.id)
