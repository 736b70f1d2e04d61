"""A lease that cannot be renewed at once: tried again by the back-off, long before it ends."""

# ruff: noqa: N802 (methods are named as in the contract)

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import grpc
import pytest

import workspaced
from tests.unit.client.fake_server import running
from workspaced.v1 import lifecycle_pb2 as pb
from workspaced.v1.lifecycle_pb2_grpc import LifecycleServiceServicer, add_LifecycleServiceServicer_to_server

pytestmark = pytest.mark.anyio
LEASE_SECONDS = 6.0
FAILURES = 3


class Refusing(LifecycleServiceServicer):
    """Renews a lease at the fourth try."""

    def __init__(self) -> None:
        self.tried: list[float] = []
        self.renewed = asyncio.Event()

    async def AcquireWorkspace(self, request: Any, context: Any) -> pb.AcquireWorkspaceResponse:
        response = pb.AcquireWorkspaceResponse(lease=pb.Lease(lease_id="lease"))
        response.workspace.workspace_id = "w"
        return response

    async def RenewLease(self, request: Any, context: Any) -> pb.RenewLeaseResponse:
        self.tried.append(asyncio.get_running_loop().time())
        if len(self.tried) <= FAILURES:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "not now")
        self.renewed.set()
        return pb.RenewLeaseResponse(lease=pb.Lease(lease_id="lease"))

    async def ReleaseWorkspace(self, request: Any, context: Any) -> pb.ReleaseWorkspaceResponse:
        return pb.ReleaseWorkspaceResponse()


async def test_a_failed_renewal_does_not_wait_for_the_next_third() -> None:
    lifecycle = Refusing()  # type: ignore[abstract]  # its other calls answer UNIMPLEMENTED
    async with (
        running(lambda server: add_LifecycleServiceServicer_to_server(lifecycle, server)) as target,
        workspaced.connect(target) as client,
    ):
        began = asyncio.get_running_loop().time()
        async with client.acquire(policy="per_user", user_id="u", lease_duration=LEASE_SECONDS):
            with anyio.fail_after(60):
                await lifecycle.renewed.wait()
    third = LEASE_SECONDS / 3
    first, *_, last = lifecycle.tried
    assert first - began >= third - 0.1
    assert len(lifecycle.tried) == FAILURES + 1
    assert last - first < FAILURES * third
