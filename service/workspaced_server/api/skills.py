"""The RPCs about skills, and the text for the system prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import grpc

from workspaced.v1 import discovery_pb2, management_pb2, skill_pb2
from workspaced_server.api import answers
from workspaced_server.api.access import Access, use
from workspaced_server.api.half_close import confirm_half_close
from workspaced_server.api.limits import MAX_CHUNK_BYTES, MAX_PAGE_SIZE
from workspaced_server.api.mcps import waits
from workspaced_server.api.pairs import agent_of, pair_of
from workspaced_server.api.validation import SHA256, Violations, page_size
from workspaced_server.companion import companion
from workspaced_server.errors import FieldViolation, invalid
from workspaced_server.guest.stream import GuestStream
from workspaced_server.instructions import Instructions
from workspaced_server.skills.listing import Listing, Problem, Skill
from workspaced_server.skills.skills import MAX_EXPANDED_BYTES, Skills, not_found

Context = grpc.aio.ServicerContext[Any, Any]

_FORMATS: Final = {
    skill_pb2.SKILL_ARCHIVE_FORMAT_UNSPECIFIED: "",
    skill_pb2.SKILL_ARCHIVE_FORMAT_ZIP: "zip",
    skill_pb2.SKILL_ARCHIVE_FORMAT_TAR: "tar",
    skill_pb2.SKILL_ARCHIVE_FORMAT_TAR_GZ: "tar.gz",
}
# Below what a client accepts as one message.
_MAX_PAGE_BYTES: Final = 2 << 20
_MAX_PROBLEMS: Final = 1000
_MAX_NAME_BYTES: Final = 1024


class SkillServicer:
    """Skills of agents; what each RPC does and its errors are in the proto's comments."""

    def __init__(self, workspaces: Access, skills: Skills, instructions: Instructions) -> None:
        self._workspaces = workspaces
        self._skills = skills
        self._instructions = instructions

    async def ListSkills(  # noqa: N802
        self, request: discovery_pb2.ListSkillsRequest, context: Context
    ) -> discovery_pb2.ListSkillsResponse:
        agent = agent_of(request)
        _page(request)
        after = answers.guest_page_token(request.page_token)
        async with use(self._workspaces, request.workspace_id) as handle:
            listing = await self._skills.list(handle, agent)
        return _page_of(listing, after, page_size(request.page_size, MAX_PAGE_SIZE))

    async def GetSkill(  # noqa: N802
        self, request: discovery_pb2.GetSkillRequest, context: Context
    ) -> discovery_pb2.GetSkillResponse:
        agent = agent_of(request)
        _name(request.name)
        async with use(self._workspaces, request.workspace_id) as handle:
            found = await self._skills.get(handle, agent, request.name)
        return discovery_pb2.GetSkillResponse(
            skill=skill_message(found.skill),
            markdown=found.markdown,
            files=[
                skill_pb2.SkillFile(path=file.path, size_bytes=file.size, executable=file.executable)
                for file in found.files
            ],
            files_truncated=found.files_truncated,
        )

    async def AddSkill(  # noqa: N802
        self, requests: AsyncIterator[management_pb2.AddSkillRequest], context: Context
    ) -> management_pb2.AddSkillResponse:
        iterator = aiter(requests)
        first = await anext(iterator, None)
        if first is None or first.WhichOneof("part") != "start":
            raise invalid(FieldViolation("start", "must be the first message of the stream"))
        start = first.start
        agent = agent_of(start)
        _start(start)

        def send(stream: GuestStream) -> AbstractAsyncContextManager[None]:
            return companion(_send(stream, iterator, context), stream.fail)

        async with use(self._workspaces, start.workspace_id) as handle:
            added = await self._skills.add(
                handle,
                agent,
                send,
                archive_format=_FORMATS[start.format],
                replace=start.replace,
                sha256=start.sha256.lower(),
                max_expanded_bytes=start.max_expanded_bytes or MAX_EXPANDED_BYTES,
            )
        return management_pb2.AddSkillResponse(
            skill=skill_message(added.skill), existing=added.existing, replaced=added.replaced
        )

    async def RemoveSkill(  # noqa: N802
        self, request: management_pb2.RemoveSkillRequest, context: Context
    ) -> management_pb2.RemoveSkillResponse:
        agent = agent_of(request)
        _name(request.name)
        async with use(self._workspaces, request.workspace_id) as handle:
            removed = await self._skills.remove(handle, agent, request.name)
        if not removed and not request.allow_missing:
            raise not_found(request.name)
        return management_pb2.RemoveSkillResponse(removed=removed)

    async def GetInstructions(  # noqa: N802
        self, request: discovery_pb2.GetInstructionsRequest, context: Context
    ) -> discovery_pb2.GetInstructionsResponse:
        pair = pair_of(request)
        async with use(self._workspaces, request.workspace_id) as handle:
            text, errors = await self._instructions.text(handle, pair, wait=waits(context))
        return discovery_pb2.GetInstructionsResponse(instructions=text, mcp_errors=errors)


def skill_message(skill: Skill) -> skill_pb2.Skill:
    """The API's Skill."""
    message = skill_pb2.Skill(
        name=skill.name,
        description=skill.description,
        path=skill.path,
        update_time=answers.nanoseconds(skill.update_ns),
        sha256=skill.sha256,
    )
    if skill.metadata:
        message.metadata.update(skill.metadata)
    return message


def _page_of(listing: Listing, after: str, size: int) -> discovery_pb2.ListSkillsResponse:
    response = discovery_pb2.ListSkillsResponse()
    if not after:
        response.problems.extend(_problem(problem) for problem in listing.problems[:_MAX_PROBLEMS])
    count = 0
    for skill in listing.skills:
        if skill.name <= after:
            continue
        message = skill_message(skill)
        count += message.ByteSize()
        if response.skills and (len(response.skills) >= size or count > _MAX_PAGE_BYTES):
            response.next_page_token = answers.page_token({"next_page_token": response.skills[-1].name})
            break
        response.skills.append(message)
    return response


def _problem(problem: Problem) -> skill_pb2.SkillProblem:
    return skill_pb2.SkillProblem(path=problem.path, reason=problem.reason, message=problem.message)


async def _send(stream: GuestStream, requests: AsyncIterator[management_pb2.AddSkillRequest], context: Context) -> None:
    async for request in requests:
        if request.WhichOneof("part") != "chunk":
            raise invalid(FieldViolation("start", "may only be the first message of the stream"))
        if len(request.chunk) > MAX_CHUNK_BYTES:
            raise invalid(FieldViolation("chunk", "must have at most 1 MiB: send it in several messages"))
        await stream.send(request.chunk)
    await confirm_half_close(context)
    await stream.message({"end": True})


def _start(start: management_pb2.AddSkillStart) -> None:
    found = Violations()
    found.require(start.format in _FORMATS, "start.format", "is no value of SkillArchiveFormat that this server knows")
    if start.sha256:
        found.require(bool(SHA256.fullmatch(start.sha256)), "start.sha256", "must be 64 hexadecimal digits")
    found.require(
        start.max_expanded_bytes <= MAX_EXPANDED_BYTES,
        "start.max_expanded_bytes",
        f"must be at most {MAX_EXPANDED_BYTES}, or 0 for that",
    )
    found.check()


def _name(name: str) -> None:
    if not name or len(name.encode()) > _MAX_NAME_BYTES:
        raise invalid(FieldViolation("name", f"must have 1 to {_MAX_NAME_BYTES} bytes"))


def _page(request: discovery_pb2.ListSkillsRequest) -> None:
    found = Violations()
    found.require(request.page_size >= 0, "page_size", "must not be negative: 0 is the default")
    found.require(len(request.page_token) <= 8192, "page_token", "must be the next_page_token of the previous page")
    found.check()
