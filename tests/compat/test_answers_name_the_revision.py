"""Every answer of a real server names its revision, where clients look for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

import workspaced
from tests.support.server import ServerProcess
from workspaced.v1 import lifecycle_pb2, offload_pb2, server_pb2, workspace_pb2
from workspaced.v1.lifecycle_pb2_grpc import LifecycleServiceStub
from workspaced.v1.offload_pb2_grpc import OffloadServiceStub
from workspaced.v1.server_pb2_grpc import ServerServiceStub

KEY = "x-workspaced-api-revision"
REVISION = str(workspaced.API_REVISION)


@pytest.fixture
async def channel(tmp_path: Path) -> AsyncIterator[grpc.aio.Channel]:
    server = ServerProcess(tmp_path / "state")
    server.start()
    async with grpc.aio.insecure_channel(server.address) as connected:
        yield connected
    assert server.stop() == 0


def named(metadata: object) -> str | bytes | None:
    return dict(metadata or ()).get(KEY)  # type: ignore[call-overload, no-any-return]


async def test_in_every_kind_of_answer(channel: grpc.aio.Channel) -> None:
    info = ServerServiceStub(channel).GetServerInfo(server_pb2.GetServerInfoRequest())
    assert str((await info).api_revision) == REVISION
    assert named(await info.trailing_metadata()) == REVISION

    lifecycle = LifecycleServiceStub(channel)
    missing = lifecycle.GetWorkspace(lifecycle_pb2.GetWorkspaceRequest(workspace_id="missing"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await missing
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert named(caught.value.trailing_metadata()) == REVISION

    watch = lifecycle.WatchWorkspaces(lifecycle_pb2.WatchWorkspacesRequest())
    assert named(await watch.initial_metadata()) == REVISION
    watch.cancel()

    spec = workspace_pb2.WorkspaceSpec(backend=workspace_pb2.BACKEND_LOCAL)
    await lifecycle.InitializeWorkspace(lifecycle_pb2.InitializeWorkspaceRequest(workspace_id="w", spec=spec))
    start = offload_pb2.OffloadDataStart(workspace_id="w", media_type="text/plain")
    parts = [offload_pb2.OffloadDataRequest(start=start), offload_pb2.OffloadDataRequest(chunk=b"data")]
    stored = OffloadServiceStub(channel).OffloadData(iter(parts))
    assert (await stored).offload.path
    assert named(await stored.initial_metadata()) == REVISION
    assert named(await stored.trailing_metadata()) == REVISION
    await lifecycle.DeleteWorkspace(lifecycle_pb2.DeleteWorkspaceRequest(workspace_id="w"))
