"""Leases, allocation by policy, pools and quotas."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.support.fake_driver import refused
from tests.unit.server.conftest import Harness, slow_writes
from tests.unit.server.test_calls import Served, fails, serving
from tests.unit.server.test_housekeeping import let_idle, state
from workspaced.v1 import lifecycle_pb2 as pb
from workspaced.v1 import workspace_pb2 as wpb
from workspaced_server import principal
from workspaced_server.api.auth import new_token
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.workspaces.expiry import Housekeeping
from workspaced_server.workspaces.pools import POOL, wanted
from workspaced_server.workspaces.record import State, now_us
from workspaced_server.workspaces.registry import Query
from workspaced_server.workspaces.settings import PoolSettings
from workspaced_server.workspaces.sweep import Sweep

pytestmark = pytest.mark.anyio

PER_USER, PER_AGENT, PER_SESSION = (
    pb.ALLOCATION_POLICY_PER_USER,
    pb.ALLOCATION_POLICY_PER_AGENT,
    pb.ALLOCATION_POLICY_PER_SESSION,
)
FAST_IMAGE = wpb.WorkspaceSpec(image="fast")
DEFAULT = wanted("default", {})


def request(policy: Any = PER_SESSION, user: str = "u", agent: str = "a", session: str = "s", **more: Any) -> Any:
    return pb.AcquireWorkspaceRequest(policy=policy, user_id=user, agent_id=agent, session_id=session, **more)


async def acquired(served: Served, *args: Any, **kwargs: Any) -> str:
    return str((await served.stub.AcquireWorkspace(request(*args, **kwargs))).workspace.workspace_id)


async def test_a_policy_says_who_shares_a_workspace(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        by_session = {await acquired(served, PER_SESSION, u, a, s) for u in "xy" for a in "ab" for s in "12"}
        by_agent = {await acquired(served, PER_AGENT, u, a, s) for u in "xy" for a in "ab" for s in "12"}
        by_user = {await acquired(served, PER_USER, u, a, s) for u in "xy" for a in "ab" for s in "12"}
        assert [len(by_session), len(by_agent), len(by_user)] == [8, 4, 2]
        assert len(by_session | by_agent | by_user) == 14
        # Ids that would run together when they are joined.
        odd = {
            await acquired(served, PER_SESSION, *ids) for ids in (("a,b", "c", "d"), ("a", "b,c", "d"), ("A", "b", "c"))
        }
        assert len(odd) == 3


async def test_acquiring_again_is_the_same_workspace_with_another_lease(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        first = await served.stub.AcquireWorkspace(request())
        assert (first.created, first.workspace.state) == (True, wpb.WORKSPACE_STATE_READY)
        assert dict(first.workspace.labels) == {"user": "u", "agent": "a", "session": "s", "template": "default"}
        again, other = await asyncio.gather(*(served.stub.AcquireWorkspace(request()) for _ in range(2)))
        assert not again.created
        assert again.workspace.workspace_id == other.workspace.workspace_id == first.workspace.workspace_id
        assert len({first.lease.lease_id, again.lease.lease_id, other.lease.lease_id}) == 3
        code, reason, found = await fails(served.stub.AcquireWorkspace(request(spec=FAST_IMAGE)))
        assert (code, reason) == (grpc.StatusCode.ALREADY_EXISTS, "WORKSPACE_SPEC_MISMATCH")
        assert found["ErrorInfo"].metadata["fields"] == "image"


async def test_an_acquired_workspace_keeps_its_files_unless_told_otherwise(tmp_path: Path) -> None:
    async with serving(tmp_path, flags={"workspaces.templates": {"short": {"persistence": "ephemeral"}}}) as served:
        kept = await served.stub.AcquireWorkspace(request())
        assert kept.workspace.spec.persistence == wpb.PERSISTENCE_PERSISTENT
        short = await served.stub.AcquireWorkspace(request(user="v", template="short"))
        assert short.workspace.spec.persistence == wpb.PERSISTENCE_EPHEMERAL
        told = wpb.WorkspaceSpec(persistence=wpb.PERSISTENCE_EPHEMERAL)
        own = await served.stub.AcquireWorkspace(request(user="w", spec=told))
        assert own.workspace.spec.persistence == wpb.PERSISTENCE_EPHEMERAL


async def test_many_at_once_are_one_provisioning(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        answers = await asyncio.gather(*(served.stub.AcquireWorkspace(request()) for _ in range(20)))
        assert len({answer.workspace.workspace_id for answer in answers}) == 1
        assert sum(answer.created for answer in answers) == 1
        assert served.driver.calls.count("provision") == 1


@pytest.mark.parametrize(
    ("bad", "fields"),
    [
        (pb.AcquireWorkspaceRequest(), ["policy"]),
        (pb.AcquireWorkspaceRequest(policy=PER_USER), ["user_id"]),
        (pb.AcquireWorkspaceRequest(policy=PER_AGENT, user_id="u"), ["agent_id"]),
        (pb.AcquireWorkspaceRequest(policy=PER_SESSION, user_id="u"), ["agent_id", "session_id"]),
        (pb.AcquireWorkspaceRequest(policy=PER_USER, user_id="../u"), ["user_id"]),
        (request(lease_duration=Duration(seconds=3601)), ["lease_duration"]),
        (request(lease_duration=Duration()), ["lease_duration"]),
        (request(template="no such"), ["template"]),
        (request(spec=wpb.WorkspaceSpec(template="no such")), ["spec.template"]),
        (request(template="one", spec=wpb.WorkspaceSpec(template="other")), ["spec.template"]),
    ],
)
async def test_what_cannot_be_acquired(tmp_path: Path, bad: pb.AcquireWorkspaceRequest, fields: list[str]) -> None:
    async with serving(tmp_path) as served:
        code, reason, found = await fails(served.stub.AcquireWorkspace(bad))
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "ARGUMENT_INVALID")
        assert [violation.field for violation in found["BadRequest"].field_violations] == fields
        assert (await served.stub.ListWorkspaces(pb.ListWorkspacesRequest())).workspaces == []


async def test_a_lease_is_renewed_released_and_expires(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        answer = await served.stub.AcquireWorkspace(request(lease_duration=Duration(seconds=5)))
        lease = answer.lease
        assert 3 < lease.expire_time.seconds - now_us() / 1e6 <= 5
        renewed = await served.stub.RenewLease(
            pb.RenewLeaseRequest(lease_id=lease.lease_id, lease_duration=Duration(seconds=100))
        )
        assert 95 < renewed.lease.expire_time.seconds - now_us() / 1e6 <= 100
        # As it was renewed last.
        renewed = await served.stub.RenewLease(pb.RenewLeaseRequest(lease_id=lease.lease_id))
        assert 95 < renewed.lease.expire_time.seconds - now_us() / 1e6 <= 100
        for _ in range(2):
            await served.stub.ReleaseWorkspace(pb.ReleaseWorkspaceRequest(lease_id=lease.lease_id))
        short = await served.stub.AcquireWorkspace(request(lease_duration=Duration(nanos=1000)))
        for gone in (lease.lease_id, short.lease.lease_id):
            code, reason, _ = await fails(served.stub.RenewLease(pb.RenewLeaseRequest(lease_id=gone)))
            assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "LEASE_NOT_FOUND")
        held = await served.stub.AcquireWorkspace(request())
        await served.stub.DeleteWorkspace(pb.DeleteWorkspaceRequest(workspace_id=held.workspace.workspace_id))
        code, reason, _ = await fails(served.stub.RenewLease(pb.RenewLeaseRequest(lease_id=held.lease.lease_id)))
        assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "LEASE_NOT_FOUND")


async def test_a_lease_is_its_owners(tmp_path: Path) -> None:
    ada, bob = new_token("ada", ["read", "manage"]), new_token("bob", ["read", "manage"])
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{ada.line}\n{bob.line}\n")
    async with serving(tmp_path, flags={"auth.token_file": tokens}) as served:
        mine, other = ((("authorization", f"Bearer {token.token}"),) for token in (ada, bob))
        answer = await served.stub.AcquireWorkspace(request(), metadata=mine)
        theirs = await served.stub.AcquireWorkspace(request(), metadata=other)
        # The same ids of another principal are another workspace.
        assert theirs.created
        lease_id = answer.lease.lease_id
        code, reason, _ = await fails(served.stub.RenewLease(pb.RenewLeaseRequest(lease_id=lease_id), metadata=other))
        assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "LEASE_NOT_FOUND")
        await served.stub.ReleaseWorkspace(pb.ReleaseWorkspaceRequest(lease_id=lease_id), metadata=other)
        await served.stub.RenewLease(pb.RenewLeaseRequest(lease_id=lease_id), metadata=mine)


async def test_a_lease_keeps_a_workspace_open_also_over_a_restart(harness: Harness) -> None:
    spec = wpb.WorkspaceSpec(idle_timeout=Duration(seconds=60))
    made = await harness.workspaces.initialize(spec, workspace_id="a")
    lease = await harness.workspaces.leases.grant("local", made.snapshot.record.key, "a", 3600 * 1_000_000)
    workspaces = await harness.restart()
    await let_idle(harness, "a", 1000)
    keeping = Housekeeping(workspaces)
    await keeping.expire()
    assert await state(harness, "a") is State.READY
    assert (await workspaces.get("a")).expire_time == lease.expire_time + 60 * 1_000_000
    renewed = await workspaces.leases.renew("local", lease.lease_id, 1)
    await keeping.store()
    # The idle time begins where the lease ended.
    snapshot = await workspaces.get("a")
    assert snapshot.expire_time == renewed.expire_time + 60 * 1_000_000
    assert (await (await harness.restart()).get("a")).expire_time == snapshot.expire_time
    await let_idle(harness, "a", 1000)
    await Housekeeping(harness.workspaces).expire()
    assert await state(harness, "a") is State.CLOSED


async def pooled(harness: Harness, size: int) -> None:
    """Wait until so many spares are READY."""
    while True:
        spares = harness.workspaces.entries.owned_by(POOL.name)
        if len([spare for spare in spares if spare.record.state is State.READY and spare.flight is None]) == size:
            return
        await asyncio.sleep(0.005)


async def filled(harness: Harness, size: int, **changes: Any) -> asyncio.Task[None]:
    """Start a server with a pool, and wait until it is full."""
    await harness.restart(pools={"default": PoolSettings(size=size, max_creating=2)}, **changes)
    filling = asyncio.create_task(harness.workspaces.pools.run())
    async with asyncio.timeout(20):
        await pooled(harness, size)
    return filling


async def test_a_workspace_from_a_pool_is_ready_without_provisioning(harness: Harness) -> None:
    filling = await filled(harness, 2)
    provisioned = harness.driver.calls.count("provision")
    assert provisioned == 2
    harness.driver.hold["provision"] = asyncio.Event()
    made = await harness.workspaces.initialize(DEFAULT, workspace_id="mine")
    assert made.created
    assert made.snapshot.record.owner == "local"
    assert made.snapshot.record.state is State.READY
    # Its sandbox is one that was there before, and no other caller sees what waits.
    assert len(harness.driver.sandboxes) == 2
    principal.bind(principal.Principal("somebody", frozenset({principal.Scope.READ})))
    assert await harness.workspaces.list(Query(), 10) == []
    principal.bind(principal.LOCAL)
    filling.cancel()
    harness.driver.hold.clear()
    # It lives on as any other: closed, opened again, never swept, and deleted with its sandbox.
    await harness.workspaces.close("mine")
    await harness.workspaces.initialize(DEFAULT, workspace_id="mine")
    assert await Sweep(harness.workspaces).once() == []
    workspaces = await harness.restart(pools={})
    async with workspaces.use("mine") as handle:
        assert handle.key == made.snapshot.record.key
    before = set(harness.driver.sandboxes)
    await workspaces.delete("mine")
    assert len(before - set(harness.driver.sandboxes)) == 1


async def test_a_pool_is_filled_again_and_ages(harness: Harness) -> None:
    filling = await filled(harness, 2)
    for number in range(3):
        await harness.workspaces.initialize(DEFAULT, workspace_id=f"w{number}")
    async with asyncio.timeout(20):
        await pooled(harness, 2)
    for spare in harness.workspaces.entries.owned_by(POOL.name):
        spare.record = replace(spare.record, create_time=spare.record.create_time - 3601 * 1_000_000)
    old = {spare.record.key for spare in harness.workspaces.entries.owned_by(POOL.name)}
    harness.workspaces.pools._wake.set()
    async with asyncio.timeout(20):
        while old & {spare.record.key for spare in harness.workspaces.entries.owned_by(POOL.name)}:
            await asyncio.sleep(0.005)
        await pooled(harness, 2)
    filling.cancel()


async def test_a_dead_spare_is_not_handed_out(harness: Harness) -> None:
    filling = await filled(harness, 1)
    filling.cancel()
    (spare,) = harness.workspaces.entries.owned_by(POOL.name)
    harness.driver.sandboxes[spare.record.key].frozen = True
    made = await harness.workspaces.initialize(DEFAULT, workspace_id="mine")
    assert made.snapshot.record.state is State.READY
    assert not harness.driver.sandboxes[spare.record.key].frozen
    assert harness.driver.calls.count("provision") == 2


async def test_another_spec_takes_nothing_from_the_pool(harness: Harness) -> None:
    filling = await filled(harness, 1)
    filling.cancel()
    await harness.workspaces.initialize(FAST_IMAGE, workspace_id="other")
    assert len(harness.workspaces.entries.owned_by(POOL.name)) == 1
    assert len(harness.driver.sandboxes) == 2


async def test_a_pool_that_is_configured_no_more_is_emptied(harness: Harness) -> None:
    filling = await filled(harness, 2)
    filling.cancel()
    workspaces = await harness.restart(pools={})
    emptying = asyncio.create_task(workspaces.pools.run())
    async with asyncio.timeout(20):
        while harness.driver.sandboxes:
            await asyncio.sleep(0.005)
    emptying.cancel()


async def test_a_pool_that_cannot_be_filled_waits_longer_each_time(harness: Harness) -> None:
    await harness.restart(pools={"default": PoolSettings(size=3, max_creating=2)})
    harness.driver.fail["provision"] = refused()
    filling = asyncio.create_task(harness.workspaces.pools.run())
    async with asyncio.timeout(20):
        while not harness.workspaces.pools._failures:
            await asyncio.sleep(0.005)
    assert harness.driver.calls.count("provision") <= 2
    filling.cancel()


async def test_a_crash_while_a_spare_is_handed_out_loses_nothing(harness: Harness) -> None:
    filling = await filled(harness, 1)
    filling.cancel()
    held = harness.driver.hold["open_channel"] = asyncio.Event()
    reached = harness.driver.reached["open_channel"] = asyncio.Event()
    (spare,) = harness.workspaces.entries.owned_by(POOL.name)
    assert spare.channel is not None
    await spare.channel.drop()
    making = asyncio.create_task(harness.workspaces.initialize(DEFAULT, workspace_id="mine"))
    async with asyncio.timeout(10):
        await reached.wait()
    harness.driver.hold.clear()
    workspaces = await harness.restart(pools={})
    held.set()
    making.cancel()
    await harness.settle()
    assert (await workspaces.get("mine")).record.state is State.READY
    assert len(harness.driver.sandboxes) == 1


async def test_the_disks_of_an_owner_add_up(harness: Harness) -> None:
    workspaces = await harness.restart(max_disk_bytes_per_owner=100)

    def sized(size: int) -> wpb.WorkspaceSpec:
        return wpb.WorkspaceSpec(resources=wpb.Resources(disk_bytes=size))

    await workspaces.initialize(sized(60), workspace_id="a")
    for spec in (sized(41), wpb.WorkspaceSpec()):
        with pytest.raises(WorkspacedError) as caught:
            await workspaces.initialize(spec, workspace_id="b")
        assert (caught.value.code, caught.value.reason) == (Code.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
        assert caught.value.quota is not None
    await workspaces.initialize(sized(40), workspace_id="b")


async def test_the_processes_of_an_owner_add_up(harness: Harness) -> None:
    workspaces = await harness.restart(max_processes_per_owner=5)
    for name in ("a", "b"):
        await workspaces.initialize(wpb.WorkspaceSpec(), workspace_id=name)
    async with workspaces.use("a") as handle:
        assert await handle.process_room() == 5
        other = (await workspaces.entries.resolve("b")).record.key
        harness.driver.sandboxes[other].processes |= {"p1", "p2"}
        assert await handle.process_room() == 3
        # Nobody else's count, and none that cannot be asked.
        principal.bind(principal.Principal("somebody", principal.ALL_SCOPES))
        await workspaces.initialize(wpb.WorkspaceSpec(), workspace_id="c")
        async with workspaces.use("c") as theirs:
            assert await theirs.process_room() == 5
        principal.bind(principal.LOCAL)
    workspaces = await harness.restart(max_processes_per_owner=0)
    async with workspaces.use("a") as handle:
        assert await handle.process_room() is None


async def test_a_lease_that_is_released_while_it_is_renewed_is_not_given(harness: Harness) -> None:
    made = await harness.workspaces.initialize(wpb.WorkspaceSpec(), workspace_id="a")
    lease = await harness.workspaces.leases.grant("local", made.snapshot.record.key, "a", 3600 * 1_000_000)
    with slow_writes(harness.registry) as (begun, write):
        renewing = asyncio.create_task(harness.workspaces.leases.renew("local", lease.lease_id, None))
        await begun.wait()
        releasing = asyncio.create_task(harness.workspaces.leases.release("local", lease.lease_id))
        harness.workspaces.leases._leases.pop(lease.lease_id)
        write.set()
        with pytest.raises(WorkspacedError) as caught:
            await renewing
        assert caught.value.reason == "LEASE_NOT_FOUND"
        await releasing


async def test_a_slow_start_delays_nobody_else(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await acquired(served, user="warm")
        held = served.driver.hold["provision"] = asyncio.Event()
        reached = served.driver.reached["provision"] = asyncio.Event()
        slow = asyncio.ensure_future(acquired(served, user="slow"))
        await reached.wait()
        served.driver.hold.clear()
        async with asyncio.timeout(10):
            await acquired(served, user="warm")
            await acquired(served, user="new")
        assert not slow.done()
        held.set()
        await slow
