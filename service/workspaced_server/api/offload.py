"""OffloadService, and what ManagementService purges."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, Protocol

import grpc

from workspaced.v1 import content_pb2, management_pb2, offload_pb2
from workspaced_server.api.access import Access, Handle, use
from workspaced_server.api.contents import MEDIA_TYPE_RULE, check_message, check_tool_result, is_media_type
from workspaced_server.api.encoding import offload_chunk
from workspaced_server.api.half_close import confirm_half_close
from workspaced_server.api.limits import MAX_CHUNK_BYTES, MAX_PATH_BYTES
from workspaced_server.api.pairs import agent_of, check_id, check_into
from workspaced_server.api.validation import Violations, check_page, check_sha256, page_size
from workspaced_server.errors import FieldViolation, invalid
from workspaced_server.offload.offloads import Offloads
from workspaced_server.offload.reading import reading
from workspaced_server.partitions import Pair

Context = grpc.aio.ServicerContext[Any, Any]

_MAX_REQUEST_ID: Final = 128
_MAX_NAME: Final = 1024


class PurgeMcps(Protocol):
    """What purging needs of the MCP role; each returns how many declarations were removed."""

    async def purge(self, handle: Handle, pair: Pair) -> int: ...
    async def purge_agent(self, handle: Handle, agent_id: str | None) -> int: ...


class PurgeSkills(Protocol):
    """What purging needs of the skills role; returns how many skills were removed."""

    async def purge(self, handle: Handle, agent_id: str | None) -> int: ...


class OffloadServicer:
    """The RPCs of ``workspaced.v1.OffloadService``, and PurgeSession and PurgeAgent of ``ManagementService``; what each
    does and its errors are in the protos' comments.
    """

    def __init__(
        self,
        workspaces: Access,
        offloads: Offloads,
        mcps: PurgeMcps | None = None,
        skills: PurgeSkills | None = None,
    ) -> None:
        self._workspaces = workspaces
        self._offloads = offloads
        self._mcps = mcps
        self._skills = skills

    async def OffloadContext(  # noqa: N802
        self, requests: AsyncIterator[offload_pb2.OffloadContextRequest], context: Context
    ) -> offload_pb2.OffloadContextResponse:
        iterator = aiter(requests)
        first = await anext(iterator, None)
        if first is None or first.WhichOneof("part") != "start":
            raise invalid(FieldViolation("start", "must be the first message of the stream"))
        start = first.start
        found = Violations()
        check_into(start.session_id, "session_id", found)
        _check_request_id(start.request_id, found)
        found.check()
        async with use(self._workspaces, start.workspace_id) as handle:
            return await self._offloads.context(
                handle,
                start.session_id,
                _messages(iterator),
                request_id=start.request_id,
                complete=lambda: confirm_half_close(context),
            )

    async def OffloadToolResult(  # noqa: N802
        self, request: offload_pb2.OffloadToolResultRequest, context: Context
    ) -> offload_pb2.OffloadToolResultResponse:
        found = Violations()
        check_into(request.session_id, "session_id", found)
        _check_request_id(request.request_id, found)
        check_tool_result(request.result, "result", found)
        if request.result.id:
            check_into(request.result.id, "result.id", found)
        found.check()
        async with use(self._workspaces, request.workspace_id) as handle:
            offload, existing = await self._offloads.store_tool_result(
                handle, request.session_id, request.result, request_id=request.request_id
            )
        return offload_pb2.OffloadToolResultResponse(offload=offload, existing=existing)

    async def OffloadData(  # noqa: N802
        self, requests: AsyncIterator[offload_pb2.OffloadDataRequest], context: Context
    ) -> offload_pb2.OffloadDataResponse:
        iterator = aiter(requests)
        first = await anext(iterator, None)
        if first is None or first.WhichOneof("part") != "start":
            raise invalid(FieldViolation("start", "must be the first message of the stream"))
        start = first.start
        found = Violations()
        check_sha256(start.sha256, "sha256", found)
        found.require(not start.media_type or is_media_type(start.media_type), "media_type", MEDIA_TYPE_RULE)
        found.require(len(start.name) <= _MAX_NAME, "name", f"must have at most {_MAX_NAME} characters")
        found.check()
        async with use(self._workspaces, start.workspace_id) as handle:
            offload, block, existing = await self._offloads.store_data(
                handle,
                _chunks(iterator),
                start.media_type,
                sha256=start.sha256.lower(),
                name=start.name,
                complete=lambda: confirm_half_close(context),
            )
        return offload_pb2.OffloadDataResponse(offload=offload, data=block, existing=existing)

    async def ListOffloads(  # noqa: N802
        self, request: offload_pb2.ListOffloadsRequest, context: Context
    ) -> offload_pb2.ListOffloadsResponse:
        found = Violations()
        session_id = request.session_id if request.HasField("session_id") else None
        if session_id is not None:
            check_into(session_id, "session_id", found)
        if request.kind not in offload_pb2.OffloadKind.values():
            found.add("kind", "is no value of OffloadKind that this server knows")
        check_page(request.page_size, request.page_token, found)
        found.check()
        async with use(self._workspaces, request.workspace_id) as handle:
            offloads, token = await self._offloads.list(
                handle,
                session_id=session_id,
                kind=request.kind,
                page_size=page_size(request.page_size),
                page_token=request.page_token,
            )
        return offload_pb2.ListOffloadsResponse(offloads=offloads, next_page_token=token)

    async def ReadOffload(  # noqa: N802
        self, request: offload_pb2.ReadOffloadRequest, context: Context
    ) -> None:
        if not request.path or len(request.path.encode()) > 3 * MAX_PATH_BYTES:
            raise invalid(FieldViolation("path", "must be the path or the URL of an offload"))
        params: dict[str, object] = {}
        match request.WhichOneof("range"):
            case "bytes":
                params["offset"] = _bounded(request.bytes.offset, "bytes.offset")
                if request.bytes.HasField("length"):
                    params["length"] = min(request.bytes.length, _MOST)
            case "messages":
                params["skip"] = min(request.messages.skip, _MOST)
        async with (
            use(self._workspaces, request.workspace_id) as handle,
            reading(handle, request.path, params) as opened,
        ):
            await context.write(offload_pb2.ReadOffloadResponse(header=opened.header))
            if "skip" in params:
                async for index, message in opened.messages(request.messages.skip, request.messages.limit):
                    entry = offload_pb2.OffloadedMessage(index=index, message=message)
                    await context.write(offload_pb2.ReadOffloadResponse(message=entry))
                return
            offset = request.bytes.offset
            async for data in opened.chunks():
                await context.write(offload_chunk(offset, data))
                offset += len(data)

    async def PurgeSession(  # noqa: N802
        self, request: management_pb2.PurgeSessionRequest, context: Context
    ) -> management_pb2.PurgeSessionResponse:
        check_id(request.session_id, "session_id")
        pair = Pair(agent_of(request), request.session_id)
        async with use(self._workspaces, request.workspace_id) as handle:
            self._offloads.calls.end(handle.key, pair)
            mcps = await self._mcps.purge(handle, pair) if self._mcps is not None else 0
            files = await self._offloads.purge(handle, request.session_id)
        return management_pb2.PurgeSessionResponse(mcps_removed=mcps, files_removed=files)

    async def PurgeAgent(  # noqa: N802
        self, request: management_pb2.PurgeAgentRequest, context: Context
    ) -> management_pb2.PurgeAgentResponse:
        agent_id = agent_of(request)
        async with use(self._workspaces, request.workspace_id) as handle:
            mcps = await self._mcps.purge_agent(handle, agent_id) if self._mcps is not None else 0
            skills = await self._skills.purge(handle, agent_id) if self._skills is not None else 0
        return management_pb2.PurgeAgentResponse(skills_removed=skills, mcps_removed=mcps)


_MOST: Final = (1 << 63) - 1


async def _messages(requests: AsyncIterator[offload_pb2.OffloadContextRequest]) -> AsyncIterator[content_pb2.Message]:
    number = 0
    async for request in requests:
        found = Violations()
        if request.WhichOneof("part") == "message":
            check_message(request.message, f"message[{number}]", found)
        else:
            found.add("start", "may only be the first message of the stream")
        found.check()
        yield request.message
        number += 1


async def _chunks(requests: AsyncIterator[offload_pb2.OffloadDataRequest]) -> AsyncIterator[bytes]:
    async for request in requests:
        if request.WhichOneof("part") != "chunk":
            raise invalid(FieldViolation("start", "may only be the first message of the stream"))
        if len(request.chunk) > MAX_CHUNK_BYTES:
            raise invalid(FieldViolation("chunk", "must have at most 1 MiB: send it in several messages"))
        yield request.chunk


def _check_request_id(value: str, found: Violations) -> None:
    if len(value) > _MAX_REQUEST_ID or "\0" in value:
        found.add("request_id", f"must have at most {_MAX_REQUEST_ID} characters, and no NUL")


def _bounded(value: int, field: str) -> int:
    if value > _MOST:
        raise invalid(FieldViolation(field, "is beyond the end of any file"))
    return value
