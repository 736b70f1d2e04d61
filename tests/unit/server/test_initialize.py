"""InitializeWorkspace: one provisioning, nothing left after a failure, and what a cancelled call leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from tests.support.fake_driver import refused
from tests.unit.server.conftest import Harness, slow_writes
from workspaced.v1 import workspace_pb2 as pb
from workspaced_server import principal
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.principal import Principal, Scope
from workspaced_server.workspaces.record import State
from workspaced_server.workspaces.registry import Query

pytestmark = pytest.mark.anyio

ANY = pb.WorkspaceSpec()


async def test_concurrent_calls_are_one_provisioning(harness: Harness) -> None:
    done = await asyncio.gather(*(harness.workspaces.initialize(ANY, workspace_id="a") for _ in range(20)))
    assert [item.created for item in done].count(True) == 1
    assert {item.snapshot.record.state for item in done} == {State.READY}
    assert harness.driver.calls.count("provision") == 1
    assert harness.driver.calls.count("open_channel") == 1


async def test_a_second_call_reattaches_and_ignores_labels(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a", labels={"x": "1"})
    again = await harness.workspaces.initialize(ANY, workspace_id="a", labels={"x": "2"})
    assert not again.created
    assert again.snapshot.record.labels == {"x": "1"}
    assert harness.driver.calls.count("provision") == 1


async def test_another_spec_is_refused_and_names_the_fields(harness: Harness) -> None:
    spec = pb.WorkspaceSpec(image="one", resources=pb.Resources(pids=5, gpus=1), env={"K": "secret"})
    await harness.workspaces.initialize(spec, workspace_id="a")
    other = pb.WorkspaceSpec(image="two", resources=pb.Resources(pids=6, gpus=1), env={"K": "hidden"})
    with pytest.raises(WorkspacedError) as caught:
        await harness.workspaces.initialize(other, workspace_id="a")
    assert (caught.value.code, caught.value.reason) == (Code.ALREADY_EXISTS, "WORKSPACE_SPEC_MISMATCH")
    assert caught.value.metadata["fields"] == "image,env,resources.pids"
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)
    same = await harness.workspaces.initialize(spec, workspace_id="a")
    whatever = await harness.workspaces.initialize(ANY, workspace_id="a")
    assert not same.created
    assert not whatever.created


async def test_another_spec_does_not_resume_a_closed_workspace(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    await harness.workspaces.close("a")
    with pytest.raises(WorkspacedError):
        await harness.workspaces.initialize(pb.WorkspaceSpec(image="x"), workspace_id="a")
    assert (await harness.workspaces.get("a")).record.state is State.CLOSED


async def test_a_failure_leaves_nothing(harness: Harness) -> None:
    for step in ("provision", "open_channel"):
        harness.driver.fail = {step: refused()}
        with pytest.raises(WorkspacedError) as caught:
            await harness.workspaces.initialize(ANY, workspace_id="a")
        assert (caught.value.code, caught.value.reason) == (Code.FAILED_PRECONDITION, "IMAGE_NOT_FOUND")
        assert harness.driver.sandboxes == {}
        assert await harness.workspaces.list(Query(), 10) == []
    harness.driver.fail = {}
    assert (await harness.workspaces.initialize(ANY, workspace_id="a")).created


async def test_a_failure_that_cannot_be_undone_is_not_forgotten(harness: Harness) -> None:
    harness.driver.fail = {"open_channel": refused(), "destroy": refused("PROVIDER_UNAVAILABLE", retryable=True)}
    with pytest.raises(WorkspacedError):
        await harness.workspaces.initialize(ANY, workspace_id="a")
    assert len(harness.driver.sandboxes) == 1
    assert (await harness.workspaces.get("a")).record.state is State.DELETING
    harness.driver.fail = {}
    await harness.workspaces.resume_stuck()
    await harness.settle()
    assert harness.driver.sandboxes == {}
    assert await harness.workspaces.list(Query(), 10) == []


async def test_without_waiting_a_failure_stays_visible(harness: Harness) -> None:
    harness.driver.hold["provision"] = held = asyncio.Event()
    harness.driver.fail["provision"] = refused()
    answer = await harness.workspaces.initialize(ANY, workspace_id="a", no_wait=True)
    assert answer.created
    assert answer.snapshot.record.state is State.INITIALIZING
    held.set()
    await harness.settle()
    failed = (await harness.workspaces.get("a")).record
    assert (failed.state, failed.state_reason) == (State.FAILED, "the fake backend refuses")
    harness.driver.fail = {}
    assert (await harness.workspaces.initialize(ANY, workspace_id="a")).snapshot.record.state is State.READY


async def test_cancelling_the_only_caller_undoes_the_creation(harness: Harness) -> None:
    for step in ("provision", "open_channel"):
        harness.driver.hold = {step: asyncio.Event()}
        harness.driver.reached = {step: asyncio.Event()}
        task = asyncio.create_task(harness.workspaces.initialize(ANY, workspace_id="a"))
        await harness.driver.reached[step].wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await harness.settle()
        assert harness.driver.sandboxes == {}
        assert await harness.workspaces.list(Query(), 10) == []


async def test_cancelling_at_every_step_leaves_all_or_nothing(harness: Harness) -> None:
    for steps in range(40):
        task = asyncio.create_task(harness.workspaces.initialize(ANY, workspace_id="a"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await harness.settle()
        rows = await harness.registry.page(Query(), 10)
        assert len(rows) == len(harness.driver.sandboxes)
        await harness.workspaces.delete("a", allow_missing=True)
        assert harness.driver.sandboxes == {}


async def test_a_cancelled_caller_does_not_disturb_others(harness: Harness) -> None:
    harness.driver.hold["provision"] = held = asyncio.Event()
    harness.driver.reached["provision"] = reached = asyncio.Event()
    first = asyncio.create_task(harness.workspaces.initialize(ANY, workspace_id="a"))
    await reached.wait()
    second = asyncio.create_task(harness.workspaces.initialize(ANY, workspace_id="a"))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    held.set()
    assert (await second).snapshot.record.state is State.READY
    assert harness.driver.calls.count("provision") == 1


async def test_cancelling_the_resumption_of_an_existing_one_lets_it_go_on(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    await harness.workspaces.close("a")
    harness.driver.hold["provision"] = held = asyncio.Event()
    harness.driver.reached["provision"] = reached = asyncio.Event()
    task = asyncio.create_task(harness.workspaces.initialize(ANY, workspace_id="a"))
    await reached.wait()
    task.cancel()
    await asyncio.wait([task])
    held.set()
    await harness.settle()
    assert (await harness.workspaces.get("a")).record.state is State.READY


async def test_a_failed_resumption_goes_back_to_closed(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    await harness.workspaces.close("a")
    for step in ("provision", "open_channel"):
        harness.driver.fail = {step: refused()}
        with pytest.raises(WorkspacedError):
            await harness.workspaces.initialize(ANY, workspace_id="a")
        record = (await harness.workspaces.get("a")).record
        assert (record.state, record.state_reason) == (State.CLOSED, "the fake backend refuses")
        assert [sandbox.running for sandbox in harness.driver.sandboxes.values()] == [False]
    harness.driver.fail = {}
    await harness.workspaces.initialize(ANY, workspace_id="a")


async def test_a_request_id_creates_once(harness: Harness) -> None:
    done = await asyncio.gather(*(harness.workspaces.initialize(ANY, request_id="r") for _ in range(5)))
    assert len({item.snapshot.record.workspace_id for item in done}) == 1
    assert [item.created for item in done].count(True) == 1
    other = await harness.workspaces.initialize(ANY, request_id="other")
    assert other.created
    workspaces = await harness.restart()
    again = await workspaces.initialize(ANY, request_id="r")
    assert again.snapshot.record.workspace_id == done[0].snapshot.record.workspace_id
    with pytest.raises(WorkspacedError):
        await workspaces.initialize(pb.WorkspaceSpec(image="x"), request_id="r")


@pytest.mark.parametrize("no_wait", [False, True])
async def test_cancelled_before_its_row_is_written_a_request_creates_nothing(harness: Harness, no_wait: bool) -> None:
    asked: list[dict[str, Any]] = [{"request_id": "r"}, {"workspace_id": "a"}, {}]
    for options in asked:
        with slow_writes(harness.registry) as (begun, write):
            task = asyncio.create_task(harness.workspaces.initialize(ANY, no_wait=no_wait, **options))
            await begun.wait()
            task.cancel()
            await asyncio.sleep(0)
            write.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        await harness.settle()
        assert await harness.registry.page(Query(), 10) == []
        assert harness.driver.sandboxes == {}


async def test_a_request_that_is_cancelled_does_not_disturb_the_same_again(harness: Harness) -> None:
    with slow_writes(harness.registry) as (begun, write):
        first = asyncio.create_task(harness.workspaces.initialize(ANY, request_id="r"))
        await begun.wait()
        second = asyncio.create_task(harness.workspaces.initialize(ANY, request_id="r"))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        write.set()
        done = await second
    assert done.created
    assert done.snapshot.record.state is State.READY
    assert len(await harness.registry.page(Query(), 10)) == 1
    assert len(harness.driver.sandboxes) == 1


async def test_a_row_that_another_server_wrote_is_left_alone(harness: Harness) -> None:
    await harness.workspaces.initialize(ANY, workspace_id="a")
    entry = await harness.workspaces.entries.resolve("a")
    harness.workspaces.entries.forget(entry)
    stored = await harness.registry.get(entry.record.key)

    async def nothing(key: str) -> None:
        """What this server saw before the other one wrote."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness.registry, "get", nothing)
        with pytest.raises(WorkspacedError) as caught:
            await harness.workspaces.initialize(ANY, workspace_id="a")
    assert (caught.value.code, caught.value.retry_after) == (Code.UNAVAILABLE, 1.0)
    assert await harness.registry.get(entry.record.key) == stored
    assert not (await harness.workspaces.initialize(ANY, workspace_id="a")).created
    assert harness.driver.calls.count("provision") == 1


async def test_workspaces_of_others_do_not_exist(harness: Harness) -> None:
    everything = frozenset({Scope.READ, Scope.EXECUTE, Scope.MANAGE})
    ada, bob = Principal("ada", everything), Principal("bob", everything)
    principal.bind(ada)
    await harness.workspaces.initialize(ANY, workspace_id="main")
    principal.bind(bob)
    for attempt in (
        harness.workspaces.get,
        harness.workspaces.close,
        harness.workspaces.reset,
        harness.workspaces.delete,
    ):
        with pytest.raises(WorkspacedError) as caught:
            await attempt("main")
        assert caught.value.reason == "WORKSPACE_NOT_FOUND"
    assert await harness.workspaces.list(Query(), 10) == []
    assert (await harness.workspaces.initialize(ANY, workspace_id="main")).created
    assert len(harness.driver.sandboxes) == 2
    principal.bind(principal.LOCAL)
    assert len(await harness.workspaces.list(Query(), 10)) == 2
    with pytest.raises(WorkspacedError) as caught:
        await harness.workspaces.get("main")
    assert caught.value.reason == "WORKSPACE_AMBIGUOUS"
    principal.bind(ada)
    await harness.workspaces.delete("main")
    principal.bind(principal.LOCAL)
    assert (await harness.workspaces.get("main")).record.owner == "bob"
    await harness.workspaces.delete("main", allow_missing=True)
    assert (await harness.workspaces.get("main")).record.owner == "bob"
    principal.bind_call(principal.CallRecord("request", owner="bob"))
    await harness.workspaces.delete("main")
    assert harness.driver.sandboxes == {}


async def test_the_quota_of_a_principal(harness: Harness) -> None:
    workspaces = await harness.restart(max_per_owner=1)
    await workspaces.initialize(ANY, workspace_id="a")
    with pytest.raises(WorkspacedError) as caught:
        await workspaces.initialize(ANY, workspace_id="b")
    assert (caught.value.code, caught.value.reason) == (Code.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
    await workspaces.initialize(ANY, workspace_id="a")


async def test_the_quota_holds_for_calls_at_once(harness: Harness) -> None:
    workspaces = await harness.restart(max_per_owner=3)
    calls = [workspaces.initialize(ANY, workspace_id=f"w{number}", no_wait=number % 2 == 0) for number in range(10)]
    done = await asyncio.gather(*calls, return_exceptions=True)
    refused = [item for item in done if isinstance(item, WorkspacedError)]
    assert {item.reason for item in refused} == {"QUOTA_EXCEEDED"}
    assert len(refused) == 7
    assert len(await harness.registry.page(Query(), 20)) == 3
    assert len(workspaces.entries) == 3
    await harness.settle()
    await workspaces.delete(next(iter(workspaces.entries.all())).record.workspace_id)
    await workspaces.initialize(ANY, workspace_id="new")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (pb.WorkspaceSpec(env={"A=B": ""}), "spec.env['A=B']"),
        (pb.WorkspaceSpec(workdir="relative"), "spec.workdir"),
        (pb.WorkspaceSpec(workdir="/a/../b"), "spec.workdir"),
        (pb.WorkspaceSpec(backend=pb.BACKEND_DOCKER, local=pb.LocalOptions()), "spec.local"),
        (pb.WorkspaceSpec(idle_timeout=Duration(seconds=-1)), "spec.idle_timeout"),
        (pb.WorkspaceSpec(network=pb.Network(allow=["x"])), "spec.network.allow"),
        (pb.WorkspaceSpec(template="none"), "spec.template"),
    ],
)
async def test_a_bad_spec_changes_nothing(harness: Harness, spec: pb.WorkspaceSpec, field: str) -> None:
    with pytest.raises(WorkspacedError) as caught:
        await harness.workspaces.initialize(spec, workspace_id="a")
    assert [violation.field for violation in caught.value.violations] == [field]
    assert harness.driver.calls == []
    assert await harness.workspaces.list(Query(), 10) == []


async def test_a_backend_that_is_not_configured(harness: Harness) -> None:
    with pytest.raises(WorkspacedError) as caught:
        await harness.workspaces.initialize(pb.WorkspaceSpec(backend=pb.BACKEND_E2B), workspace_id="a")
    assert (caught.value.code, caught.value.reason) == (Code.FAILED_PRECONDITION, "BACKEND_UNAVAILABLE")
    assert await harness.workspaces.list(Query(), 10) == []


async def test_a_template_is_filled_in_and_may_change_later(harness: Harness) -> None:
    template = pb.WorkspaceSpec(image="base", env={"A": "1", "B": "2"}, seed_skills=["one"])
    workspaces = await harness.restart(templates={"t": template})
    asked = pb.WorkspaceSpec(template="t", env={"B": "3"}, seed_skills=["two"])
    made = await workspaces.initialize(asked, workspace_id="a")
    spec = pb.WorkspaceSpec.FromString(made.snapshot.record.spec)
    assert (spec.image, dict(spec.env), list(spec.seed_skills)) == ("base", {"A": "1", "B": "3"}, ["two"])
    workspaces = await harness.restart(templates={"t": pb.WorkspaceSpec(image="newer")})
    assert not (await workspaces.initialize(asked, workspace_id="a")).created


async def test_progress_is_seen_while_it_is_made(harness: Harness) -> None:
    harness.driver.hold["provision"] = held = asyncio.Event()
    harness.driver.reached["provision"] = reached = asyncio.Event()
    task = asyncio.create_task(harness.workspaces.initialize(ANY, workspace_id="a"))
    await reached.wait()
    progress = (await harness.workspaces.get("a")).progress
    assert progress is not None
    assert (progress.phase.name, progress.fraction) == ("CREATING", 0.5)
    held.set()
    assert (await task).snapshot.progress is None
