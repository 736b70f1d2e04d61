"""The RPCs about skills over any channel, with what a test asks of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

import grpc

from tests.support.real_guest import WORKSPACE
from workspaced import errors
from workspaced.first_status import FirstStatus
from workspaced.v1 import (
    discovery_pb2,
    discovery_pb2_grpc,
    management_pb2,
    management_pb2_grpc,
    skill_pb2,
)

_CHUNK = 256 * 1024

T = TypeVar("T")


async def answer(call: Awaitable[T]) -> T:
    """The answer of a call. Raises workspaced.WorkspacedError."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise errors.from_rpc(error) from None


@dataclass
class SkillClient:
    """Skills of one agent of one workspace."""

    channel: grpc.aio.Channel
    workspace_id: str = WORKSPACE
    agent_id: str | None = None

    def of(self, agent_id: str | None) -> SkillClient:
        """Another agent's."""
        return SkillClient(self.channel, self.workspace_id, agent_id)

    async def add(
        self,
        archive: bytes,
        *,
        archive_format: skill_pb2.SkillArchiveFormat.ValueType = skill_pb2.SKILL_ARCHIVE_FORMAT_UNSPECIFIED,
        replace: bool = False,
        sha256: str = "",
        max_expanded_bytes: int = 0,
        chunk: int = _CHUNK,
    ) -> management_pb2.AddSkillResponse:
        """Install an archive."""
        start = management_pb2.AddSkillStart(
            workspace_id=self.workspace_id, agent_id=self.agent_id, format=archive_format, replace=replace,
            sha256=sha256, max_expanded_bytes=max_expanded_bytes,
        )  # fmt: skip
        call = management_pb2_grpc.ManagementServiceStub(self.channel).AddSkill()
        status = FirstStatus(call)
        try:
            try:
                await call.write(management_pb2.AddSkillRequest(start=start))
                for at in range(0, len(archive), chunk):
                    await call.write(management_pb2.AddSkillRequest(chunk=archive[at : at + chunk]))
                await call.done_writing()
            except asyncio.InvalidStateError:
                pass  # answered already
            return await call
        except grpc.aio.AioRpcError as error:
            raise await status.error(error) from None
        finally:
            call.cancel()

    async def page(self, page_size: int = 0, page_token: str = "") -> discovery_pb2.ListSkillsResponse:
        """One page."""
        request = discovery_pb2.ListSkillsRequest(
            workspace_id=self.workspace_id, agent_id=self.agent_id, page_size=page_size, page_token=page_token
        )
        return await answer(discovery_pb2_grpc.DiscoveryServiceStub(self.channel).ListSkills(request))

    async def names(self) -> list[str]:
        """Names of the first page, which has no problems."""
        found = await self.page(page_size=1000)
        assert not found.problems, found.problems
        return [skill.name for skill in found.skills]

    async def problems(self) -> dict[str, str]:
        """Reasons by the last component of the path."""
        return {problem.path.rpartition("/")[2]: problem.reason for problem in (await self.page()).problems}

    async def get(self, name: str) -> discovery_pb2.GetSkillResponse:
        """One skill."""
        request = discovery_pb2.GetSkillRequest(workspace_id=self.workspace_id, agent_id=self.agent_id, name=name)
        return await answer(discovery_pb2_grpc.DiscoveryServiceStub(self.channel).GetSkill(request))

    async def remove(self, name: str, *, allow_missing: bool = False) -> bool:
        """Remove one; whether there was one."""
        request = management_pb2.RemoveSkillRequest(
            workspace_id=self.workspace_id, agent_id=self.agent_id, name=name, allow_missing=allow_missing
        )
        return (await answer(management_pb2_grpc.ManagementServiceStub(self.channel).RemoveSkill(request))).removed

    async def instructions(self, session_id: str | None = None) -> str:
        """The text."""
        request = discovery_pb2.GetInstructionsRequest(
            workspace_id=self.workspace_id, agent_id=self.agent_id, session_id=session_id
        )
        return (
            await answer(discovery_pb2_grpc.DiscoveryServiceStub(self.channel).GetInstructions(request))
        ).instructions
