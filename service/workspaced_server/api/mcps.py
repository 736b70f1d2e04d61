"""The RPCs about MCP servers, of DiscoveryService and ManagementService."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import grpc

from workspaced.v1 import content_pb2, discovery_pb2, management_pb2, mcp_pb2, offload_pb2
from workspaced_server.api import answers
from workspaced_server.api.access import Access, Handle, use
from workspaced_server.api.pairs import pair_of
from workspaced_server.api.validation import Violations, page_size
from workspaced_server.errors import Code, FieldViolation, WorkspacedError, invalid
from workspaced_server.mcps import failures
from workspaced_server.mcps.failures import McpFailure
from workspaced_server.mcps.mcps import Mcps
from workspaced_server.principal import Scope, current
from workspaced_server.tools.values import struct_of
from workspaced_server.workspaces.mcp_rules import check_mcp

if TYPE_CHECKING:
    import mcp_types as types

Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")

# Clients receive 4 MiB at most unless they ask for more.
_MAX_ANSWER_BYTES = 4 * 1024 * 1024 - 64 * 1024
_MAX_URI = 8192
_MAX_NAME = 64


class Offloads(Protocol):
    """Stores data in a workspace."""

    async def data(
        self, handle: Handle, data: bytes, media_type: str, name: str = ""
    ) -> tuple[offload_pb2.Offload, content_pb2.DataBlock]: ...


class McpServicer:
    """What each RPC does and its errors are in the proto's comments."""

    def __init__(self, workspaces: Access, mcps: Mcps, offloads: Offloads | None = None) -> None:
        self._workspaces = workspaces
        self._mcps = mcps
        self._offloads = offloads

    async def AddMcp(  # noqa: N802
        self, request: management_pb2.AddMcpRequest, context: Context
    ) -> management_pb2.AddMcpResponse:
        pair = pair_of(request)
        found = Violations()
        check_mcp(request.mcp, "mcp", found.add)
        found.check()
        async with use(self._workspaces, request.workspace_id) as handle:
            status, existing = await self._mcps.add(handle, pair, request.mcp)
        return management_pb2.AddMcpResponse(mcp=status, existing=existing)

    async def RemoveMcp(  # noqa: N802
        self, request: management_pb2.RemoveMcpRequest, context: Context
    ) -> management_pb2.RemoveMcpResponse:
        pair = pair_of(request)
        _check_name(request.name, "name")
        async with use(self._workspaces, request.workspace_id) as handle:
            removed = await self._mcps.remove(handle, pair, request.name, allow_missing=request.allow_missing)
        return management_pb2.RemoveMcpResponse(removed=removed)

    async def ListMcps(  # noqa: N802
        self, request: discovery_pb2.ListMcpsRequest, context: Context
    ) -> discovery_pb2.ListMcpsResponse:
        pair = pair_of(request)
        page = _Page(request)
        async with use(self._workspaces, request.workspace_id) as handle:
            statuses = await self._mcps.statuses(handle, pair, start=not request.no_start, wait=waits(context))
        chosen, token = page.of(statuses)
        return discovery_pb2.ListMcpsResponse(mcps=chosen, next_page_token=token)

    async def ListMcpResources(  # noqa: N802
        self, request: discovery_pb2.ListMcpResourcesRequest, context: Context
    ) -> discovery_pb2.ListMcpResourcesResponse:
        pair = pair_of(request)
        page = _Page(request)
        async with use(self._workspaces, request.workspace_id) as handle:
            found, errors = await self._mcps.resources(handle, pair, request.mcp, wait=waits(context))
        chosen, token = page.of([_resource(mcp, item) for mcp, item in found])
        return discovery_pb2.ListMcpResourcesResponse(
            resources=chosen, next_page_token=token, mcp_errors=[] if page.start else errors
        )

    async def ReadMcpResource(  # noqa: N802
        self, request: discovery_pb2.ReadMcpResourceRequest, context: Context
    ) -> discovery_pb2.ReadMcpResourceResponse:
        pair = pair_of(request)
        found = Violations()
        found.require(bool(request.mcp), "mcp", "must not be empty: give the name of an MCP server")
        found.require(0 < len(request.uri) <= _MAX_URI, "uri", f"must have 1 to {_MAX_URI} characters")
        found.check()
        if request.offload_over_bytes and Scope.EXECUTE not in current().scopes:
            raise WorkspacedError(
                Code.PERMISSION_DENIED,
                "SCOPE_MISSING",
                "offload_over_bytes writes into the workspace and needs scope EXECUTE",
                {"scope": "EXECUTE"},
            )
        async with use(self._workspaces, request.workspace_id) as handle:
            result = await self._mcps.read_resource(handle, pair, request.mcp, request.uri)
            try:
                contents = [await self._content(handle, part, request.offload_over_bytes) for part in result.contents]
            except McpFailure as failure:
                raise failures.request_failed(request.mcp, failure.message) from failure
        return _bounded(request.mcp, discovery_pb2.ReadMcpResourceResponse(contents=contents))

    async def ListMcpPrompts(  # noqa: N802
        self, request: discovery_pb2.ListMcpPromptsRequest, context: Context
    ) -> discovery_pb2.ListMcpPromptsResponse:
        pair = pair_of(request)
        page = _Page(request)
        async with use(self._workspaces, request.workspace_id) as handle:
            found, errors = await self._mcps.prompts(handle, pair, request.mcp, wait=waits(context))
        chosen, token = page.of([_prompt(mcp, item) for mcp, item in found])
        return discovery_pb2.ListMcpPromptsResponse(
            prompts=chosen, next_page_token=token, mcp_errors=[] if page.start else errors
        )

    async def GetMcpPrompt(  # noqa: N802
        self, request: discovery_pb2.GetMcpPromptRequest, context: Context
    ) -> discovery_pb2.GetMcpPromptResponse:
        pair = pair_of(request)
        found = Violations()
        found.require(bool(request.mcp), "mcp", "must not be empty: give the name of an MCP server")
        found.require(bool(request.name), "name", "must not be empty: give the name of a prompt")
        found.check()
        async with use(self._workspaces, request.workspace_id) as handle:
            result = await self._mcps.get_prompt(handle, pair, request.mcp, request.name, dict(request.arguments))
        from workspaced_server.mcps.content import block, clean

        roles = {"user": content_pb2.ROLE_USER, "assistant": content_pb2.ROLE_ASSISTANT}
        try:
            messages = [
                content_pb2.Message(role=roles[message.role], content=[block(message.content)])
                for message in result.messages
            ]
        except McpFailure as failure:
            raise failures.request_failed(request.mcp, failure.message) from failure
        answer = discovery_pb2.GetMcpPromptResponse(description=clean(result.description or ""), messages=messages)
        return _bounded(request.mcp, answer)

    async def _content(
        self, handle: Handle, part: types.TextResourceContents | types.BlobResourceContents, over: int
    ) -> mcp_pb2.McpResourceContent:
        import mcp_types as types

        from workspaced_server.mcps.content import clean, decoded

        text = part.text if isinstance(part, types.TextResourceContents) else None
        data = clean(text).encode() if text is not None else decoded(part.blob)  # type: ignore[union-attr]  # the other
        content = mcp_pb2.McpResourceContent(uri=clean(str(part.uri)), media_type=clean(part.mime_type or ""))
        if over and len(data) > over and self._offloads is not None:
            media_type = content.media_type or ("text/plain" if text is not None else "application/octet-stream")
            stored, _ = await self._offloads.data(handle, data, media_type)
            content.offloaded.path, content.offloaded.url = stored.path, stored.url
            content.offloaded.size_bytes, content.offloaded.media_type = len(data), media_type
        elif text is not None:
            content.text = clean(text)
        else:
            content.data = data
        return content


def waits(context: Context) -> float | None:
    """For how many seconds the caller waits; None when it named no deadline."""
    remaining: float | None = context.time_remaining()
    return remaining


class _Listing(Protocol):
    @property
    def page_size(self) -> int: ...
    @property
    def page_token(self) -> str: ...


class _Page:
    """A page of a list that is made anew for each page: the token holds where to go on, and what came before."""

    def __init__(self, request: _Listing) -> None:
        self.size = page_size(request.page_size)
        self.start, self._before = _parse(request.page_token) if request.page_token else (0, "")

    def of(self, items: Sequence[T]) -> tuple[Sequence[T], str]:
        """The items of the page, and the token of the next one; empty on the last."""
        begin = min(self.start, len(items))
        if begin and _mark(items[begin - 1]) != self._before:
            # The list changed between two pages: go on after the last item that was given, where it is now.
            begin = next((at + 1 for at, item in enumerate(items) if _mark(item) == self._before), begin)
        end, size = begin, 0
        while end < min(len(items), begin + self.size):
            size += items[end].ByteSize()  # type: ignore[attr-defined]  # a message
            if size > _MAX_ANSWER_BYTES and end > begin:
                break
            end += 1
        if end >= len(items):
            return items[begin:], ""
        token = json.dumps([end, _mark(items[end - 1])]).encode()
        return items[begin:end], urlsafe_b64encode(token).decode().rstrip("=")


def _mark(item: Any) -> str:
    """Tells one item of a list from another, by what does not change while the list is read."""
    if isinstance(item, mcp_pb2.McpStatus):
        return item.mcp.name
    return hashlib.sha256(item.SerializeToString(deterministic=True)).hexdigest()[:16]


def _parse(token: str) -> tuple[int, str]:
    try:
        start, before = json.loads(b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_"))
    except (ValueError, TypeError):
        raise answers.bad_page_token() from None
    if not isinstance(start, int) or isinstance(start, bool) or start < 1 or not isinstance(before, str):
        raise answers.bad_page_token()
    return start, before


def _check_name(name: str, field: str) -> None:
    if not name or len(name) > _MAX_NAME:
        raise invalid(FieldViolation(field, f"must be the name of an MCP server, 1 to {_MAX_NAME} characters"))


def _resource(mcp: str, item: types.Resource | types.ResourceTemplate) -> mcp_pb2.McpResource:
    import mcp_types as types

    from workspaced_server.mcps.content import clean

    message = mcp_pb2.McpResource(
        mcp=mcp,
        name=clean(item.name),
        title=clean(item.title or ""),
        description=clean(item.description or ""),
        media_type=clean(item.mime_type or ""),
    )
    if isinstance(item, types.Resource):
        message.uri = clean(str(item.uri))
        if item.size is not None and 0 <= item.size < 1 << 63:
            message.size_bytes = item.size
    else:
        message.uri_template = clean(item.uri_template)
    return message


def _prompt(mcp: str, item: types.Prompt) -> mcp_pb2.McpPrompt:
    from workspaced_server.mcps.content import clean

    message = mcp_pb2.McpPrompt(
        mcp=mcp,
        name=clean(item.name),
        title=clean(item.title or ""),
        description=clean(item.description or ""),
        arguments=[
            mcp_pb2.McpPromptArgument(
                name=clean(argument.name),
                description=clean(argument.description or ""),
                required=bool(argument.required),
            )
            for argument in item.arguments or ()
        ],
    )
    if item.meta:
        message.metadata.CopyFrom(struct_of(dict(item.meta)))
    return message


M = TypeVar("M", discovery_pb2.ReadMcpResourceResponse, discovery_pb2.GetMcpPromptResponse)


def _bounded(mcp: str, answer: M) -> M:
    if answer.ByteSize() > _MAX_ANSWER_BYTES:
        raise WorkspacedError(
            Code.RESOURCE_EXHAUSTED,
            "MCP_RESULT_TOO_LARGE",
            f"the answer of MCP server {mcp!r} has {answer.ByteSize()} bytes, more than a message may have",
            {"mcp": mcp, "size": str(answer.ByteSize())},
            quota=("message", f"a message has at most {_MAX_ANSWER_BYTES} bytes"),
        )
    return answer
