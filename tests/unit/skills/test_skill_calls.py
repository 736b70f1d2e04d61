"""The RPCs about skills over a real guest: streams that break, locks, round trips."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support import skill_archives as archives
from tests.support.real_guest import WORKSPACE, RealGuest, RunningServer, real_guest, reason, serve, violations
from tests.support.skill_client import SkillClient
from workspaced import WorkspacedError
from workspaced.v1 import discovery_pb2, discovery_pb2_grpc, management_pb2, management_pb2_grpc

pytestmark = pytest.mark.anyio

START = management_pb2.AddSkillRequest(start=management_pb2.AddSkillStart(workspace_id=WORKSPACE))


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[RealGuest]:
    async with real_guest(tmp_path) as running:
        yield running


@pytest.fixture
async def server(guest: RealGuest) -> AsyncIterator[RunningServer]:
    channel = await guest.connect()
    async with serve(channel) as running:
        yield running
    await channel.aclose()


@pytest.fixture
def skills(server: RunningServer) -> SkillClient:
    return SkillClient(server.channel)


async def until_gone(guest: RealGuest) -> None:
    async with asyncio.timeout(20):
        while any(name.name.startswith(".staging") for name in (guest.workdir / "skills").glob(".*")):
            await asyncio.sleep(0.01)


def chunk(data: bytes) -> management_pb2.AddSkillRequest:
    return management_pb2.AddSkillRequest(chunk=data)


@pytest.mark.parametrize(
    ("requests", "field"),
    [
        ([], "start"),
        ([chunk(b"x")], "start"),
        ([START, START], "start"),
        ([START, chunk(b"x" * ((1 << 20) + 1))], "chunk"),
        ([START, management_pb2.AddSkillRequest()], "start"),
    ],
)
async def test_streams_that_break_the_rules(
    server: RunningServer, guest: RealGuest, requests: list[management_pb2.AddSkillRequest], field: str
) -> None:
    stub = management_pb2_grpc.ManagementServiceStub(server.channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.AddSkill(iter(requests))
    assert (reason(caught.value), violations(caught.value)) == ("ARGUMENT_INVALID", {field})
    await until_gone(guest)


@pytest.mark.parametrize(
    ("start", "field"),
    [
        ({"sha256": "x"}, "start.sha256"),
        ({"format": 9}, "start.format"),
        ({"max_expanded_bytes": (512 << 20) + 1}, "start.max_expanded_bytes"),
        ({"agent_id": "a/b"}, "agent_id"),
    ],
)
async def test_heads_are_checked(server: RunningServer, start: dict[str, Any], field: str) -> None:
    request = management_pb2.AddSkillRequest(start=management_pb2.AddSkillStart(workspace_id=WORKSPACE, **start))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await management_pb2_grpc.ManagementServiceStub(server.channel).AddSkill(iter([request]))
    assert violations(caught.value) == {field}


async def test_other_requests_are_checked(server: RunningServer) -> None:
    discovery = discovery_pb2_grpc.DiscoveryServiceStub(server.channel)
    management = management_pb2_grpc.ManagementServiceStub(server.channel)
    calls: list[tuple[str, Awaitable[object]]] = [
        ("page_size", discovery.ListSkills(discovery_pb2.ListSkillsRequest(workspace_id=WORKSPACE, page_size=-1))),
        ("page_token", discovery.ListSkills(discovery_pb2.ListSkillsRequest(workspace_id=WORKSPACE, page_token="?"))),
        ("name", discovery.GetSkill(discovery_pb2.GetSkillRequest(workspace_id=WORKSPACE))),
        ("agent_id", discovery.GetSkill(discovery_pb2.GetSkillRequest(workspace_id=WORKSPACE, agent_id="", name="n"))),
        (
            "session_id",
            discovery.GetInstructions(discovery_pb2.GetInstructionsRequest(workspace_id=WORKSPACE, session_id="..")),
        ),
        ("name", management.RemoveSkill(management_pb2.RemoveSkillRequest(workspace_id=WORKSPACE, name="n" * 1025))),
    ]
    for field, call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert violations(caught.value) == {field}


async def test_a_client_that_dies_installs_no_half(
    guest: RealGuest, server: RunningServer, skills: SkillClient
) -> None:
    """The end of a broken call's requests must not pass for the end of the archive: here it would be a whole one."""
    archive = archives.tar({"SKILL.md": archives.skill_md()})
    for _ in range(10):
        call = management_pb2_grpc.ManagementServiceStub(server.channel).AddSkill()
        await call.write(START)
        await call.write(chunk(archive))
        call.cancel()
    async with asyncio.timeout(20):
        while server.workspaces.uses:
            await server.workspaces.idle.wait()
    await until_gone(guest)
    assert await skills.names() == []


async def test_a_stalled_upload_holds_up_nobody(server: RunningServer, skills: SkillClient) -> None:
    archive = archives.tar({"SKILL.md": archives.skill_md("stalled")})
    call = management_pb2_grpc.ManagementServiceStub(server.channel).AddSkill()
    await call.write(START)
    await call.write(chunk(archive[:600]))
    async with asyncio.timeout(20):
        await skills.add(archives.tar({"SKILL.md": archives.skill_md("quick")}))
        assert await skills.names() == ["quick"]
        assert await skills.remove("quick")
    await call.write(chunk(archive[600:]))
    await call.done_writing()
    assert (await call).skill.name == "stalled"


async def test_listing_is_one_round_trip(server: RunningServer, skills: SkillClient, guest: RealGuest) -> None:
    for number in range(30):
        directory = guest.workdir / "skills" / "default" / f"s{number}"
        directory.mkdir(parents=True)
        (directory / "SKILL.md").write_bytes(archives.skill_md(f"s{number}"))
    opened: list[str] = []
    channel = server.workspaces.channel
    original = channel.open

    def counting(op: str, params: dict[str, object], **options: Any) -> Any:
        opened.append(op)
        return original(op, params, **options)

    channel.open = counting  # type: ignore[method-assign, assignment]
    try:
        assert len(await skills.names()) == 30
        assert len(await skills.of("new").names()) == 0
    finally:
        channel.open = original  # type: ignore[method-assign]
    assert opened == ["skill.list", "skill.list"]


async def test_pages_are_bounded_by_bytes(skills: SkillClient, guest: RealGuest) -> None:
    for number in range(300):
        directory = guest.workdir / "skills" / "default" / f"s{number:03}"
        directory.mkdir(parents=True)
        front = f"---\nname: s{number:03}\ndescription: d\nx: [{'1,' * 900}]\n---\n"
        (directory / "SKILL.md").write_text(front)
    names, token = [], ""
    pages = 0
    while True:
        page = await skills.page(1000, token)
        assert page.ByteSize() < 3 << 20
        assert not page.problems
        names += [skill.name for skill in page.skills]
        token = page.next_page_token
        pages += 1
        if not token:
            break
    assert names == [f"s{number:03}" for number in range(300)]
    assert pages == 2


async def test_a_workspace_whose_skills_are_no_directory(skills: SkillClient, guest: RealGuest) -> None:
    (guest.workdir / "skills").write_text("x")
    for call in (skills.page(), skills.get("x"), skills.remove("x"), skills.add(archives.tar({"SKILL.md": b""}))):
        with pytest.raises(WorkspacedError) as caught:
            await call
        assert (caught.value.code, caught.value.reason) == ("FAILED_PRECONDITION", "NOT_A_DIRECTORY")
