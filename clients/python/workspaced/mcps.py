"""The MCP servers of a workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from .connection import Connection
from .content import Message, message_from_proto
from .info import when
from .spec import duration
from .v1 import discovery_pb2, management_pb2, mcp_pb2

McpState = Literal["idle", "connecting", "ready", "failed"]
_STATES: dict[int, McpState] = {
    mcp_pb2.MCP_STATE_IDLE: "idle",
    mcp_pb2.MCP_STATE_CONNECTING: "connecting",
    mcp_pb2.MCP_STATE_READY: "ready",
    mcp_pb2.MCP_STATE_FAILED: "failed",
}
_KINDS = {"streamable": mcp_pb2.MCP_HTTP_KIND_STREAMABLE, "sse": mcp_pb2.MCP_HTTP_KIND_SSE}
_PAGE = 1000


@dataclass(frozen=True)
class McpError:
    """Why an MCP server cannot be used; ``stderr_tail`` is the end of what a program wrote to standard error."""

    mcp: str
    reason: str
    message: str
    stderr_tail: str = ""
    attempts: int = 0
    time: datetime | None = None

    @classmethod
    def from_proto(cls, error: mcp_pb2.McpError) -> McpError:
        """From the API."""
        at = when(error.time)
        return cls(error.mcp, error.reason, error.message, error.stderr_tail, error.attempts, at)


@dataclass(frozen=True)
class McpInfo:
    """A declared MCP server and its instance. ``spec`` is the declaration as the API has it, secrets redacted."""

    name: str
    state: McpState
    error: McpError | None
    inherited: bool
    server_name: str
    server_version: str
    instructions: str
    tool_count: int
    has_resources: bool
    has_prompts: bool
    process_id: str
    last_used_time: datetime | None
    next_retry_time: datetime | None
    spec: mcp_pb2.Mcp

    @classmethod
    def from_proto(cls, status: mcp_pb2.McpStatus) -> McpInfo:
        """From the API."""
        return cls(
            name=status.mcp.name,
            state=_STATES.get(status.state, "idle"),
            error=McpError.from_proto(status.error) if status.HasField("error") else None,
            inherited=status.inherited,
            server_name=status.server_name,
            server_version=status.server_version,
            instructions=status.instructions,
            tool_count=status.tool_count,
            has_resources=status.has_resources,
            has_prompts=status.has_prompts,
            process_id=status.process_id,
            last_used_time=when(status.last_used_time),
            next_retry_time=when(status.next_retry_time),
            spec=status.mcp,
        )


@dataclass(frozen=True)
class McpResource:
    """A resource of an MCP server, or with ``uri_template`` a family of them."""

    mcp: str
    uri: str
    uri_template: str
    name: str
    title: str = ""
    description: str = ""
    media_type: str = ""
    size: int | None = None


@dataclass(frozen=True)
class ResourceContent:
    """A part of a resource: ``text`` or ``data``, or ``path`` when it was stored in the workspace."""

    uri: str
    media_type: str
    text: str | None = None
    data: bytes | None = None
    path: str = ""


@dataclass(frozen=True)
class McpPrompt:
    """A prompt of an MCP server; ``arguments`` maps each argument's name to whether it is required."""

    mcp: str
    name: str
    title: str
    description: str
    arguments: Mapping[str, bool]


class Mcps:
    """Declares, lists and asks MCP servers. They belong to an (``agent_id``, ``session_id``) pair; without ids to a
    pair of its own that no id can name.

    Nothing runs before it is needed. One that fails does not hide the others.
    """

    def __init__(self, connection: Connection, workspace_id: str) -> None:
        self._connection = connection
        self._workspace_id = workspace_id

    async def add(
        self,
        name: str,
        *,
        stdio: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        http: str | None = None,
        headers: Mapping[str, str] | None = None,
        kind: Literal["streamable", "sse"] = "streamable",
        enabled_tools: Sequence[str] = (),
        disabled_tools: Sequence[str] = (),
        call_timeout: float | None = None,
        stateless: bool = False,
        agent_id: str | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> McpInfo:
        """Declare a server and connect to it: ``stdio`` is a program with its arguments that runs in the workspace,
        ``http`` a URL that is dialled from there. ``timeout`` in seconds is how long it may take to start.

        Idempotent for the same declaration; a name that is taken by another is :class:`McpExists`. Raises
        :class:`McpStartFailed`, :class:`McpUnavailable`, :class:`QuotaExceeded`; the name is free then.
        """
        if (stdio is None) == (http is None):
            raise ValueError("an MCP server is reached either by stdio= or by http=")
        mcp = mcp_pb2.Mcp(
            name=name, enabled_tools=enabled_tools, disabled_tools=disabled_tools, stateless=stateless,
            call_timeout=None if call_timeout is None else duration(call_timeout),
        )  # fmt: skip
        if stdio is not None:
            if isinstance(stdio, str) or not stdio:
                raise TypeError("stdio is a list: the program and its arguments")
            if headers:
                raise ValueError("headers belong to http=")
            mcp.stdio.CopyFrom(mcp_pb2.McpStdio(command=stdio[0], args=stdio[1:], env=dict(env or {}), cwd=cwd))
        else:
            if env or cwd:
                raise ValueError("env and cwd belong to stdio=")
            mcp.http.CopyFrom(mcp_pb2.McpHttp(url=http or "", headers=dict(headers or {}), kind=_KINDS[kind]))
        request = management_pb2.AddMcpRequest(
            workspace_id=self._workspace_id, agent_id=agent_id, session_id=session_id, mcp=mcp
        )
        response = await self._connection.unary(
            self._connection.management.AddMcp, request, timeout=timeout or self._connection.long_timeout
        )
        return McpInfo.from_proto(response.mcp)

    async def remove(
        self,
        name: str,
        *,
        allow_missing: bool = False,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> bool:
        """Forget a server and end it; whether there was one. :class:`McpNotFound` without ``allow_missing``."""
        request = management_pb2.RemoveMcpRequest(
            workspace_id=self._workspace_id, agent_id=agent_id, session_id=session_id, name=name,
            allow_missing=allow_missing,
        )  # fmt: skip
        method = self._connection.management.RemoveMcp
        if allow_missing:
            return (await self._connection.unary(method, request)).removed
        return (await self._connection.once(method, request, timeout=self._connection.timeout)).removed

    async def resources(
        self,
        mcp: str = "",
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> list[McpResource]:
        """The resources of one server, or of all that can be used."""
        found: list[McpResource] = []
        token = ""
        while True:
            request = discovery_pb2.ListMcpResourcesRequest(
                workspace_id=self._workspace_id, agent_id=agent_id, session_id=session_id, mcp=mcp, page_size=_PAGE,
                page_token=token,
            )  # fmt: skip
            response = await self._connection.unary(
                self._connection.discovery.ListMcpResources, request, timeout=timeout
            )
            found += [
                McpResource(
                    item.mcp, item.uri, item.uri_template, item.name, item.title, item.description, item.media_type,
                    item.size_bytes if item.HasField("size_bytes") else None,
                )
                for item in response.resources
            ]  # fmt: skip
            token = response.next_page_token
            if not token:
                return found

    async def read_resource(
        self,
        mcp: str,
        uri: str,
        *,
        offload_over_bytes: int = 0,
        agent_id: str | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> list[ResourceContent]:
        """The parts of a resource; those larger than ``offload_over_bytes`` are stored in the workspace (0: never)."""
        request = discovery_pb2.ReadMcpResourceRequest(
            workspace_id=self._workspace_id, agent_id=agent_id, session_id=session_id, mcp=mcp, uri=uri,
            offload_over_bytes=offload_over_bytes,
        )  # fmt: skip
        response = await self._connection.unary(self._connection.discovery.ReadMcpResource, request, timeout=timeout)
        return [_content(part) for part in response.contents]

    async def prompts(
        self,
        mcp: str = "",
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> list[McpPrompt]:
        """The prompts of one server, or of all that can be used."""
        found: list[McpPrompt] = []
        token = ""
        while True:
            request = discovery_pb2.ListMcpPromptsRequest(
                workspace_id=self._workspace_id, agent_id=agent_id, session_id=session_id, mcp=mcp, page_size=_PAGE,
                page_token=token,
            )  # fmt: skip
            response = await self._connection.unary(self._connection.discovery.ListMcpPrompts, request, timeout=timeout)
            for item in response.prompts:
                required = {argument.name: argument.required for argument in item.arguments}
                found.append(McpPrompt(item.mcp, item.name, item.title, item.description, required))
            token = response.next_page_token
            if not token:
                return found

    async def get_prompt(
        self,
        mcp: str,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> list[Message]:
        """The messages of a prompt, with its arguments filled in."""
        request = discovery_pb2.GetMcpPromptRequest(
            workspace_id=self._workspace_id, agent_id=agent_id, session_id=session_id, mcp=mcp, name=name,
            arguments=dict(arguments or {}),
        )  # fmt: skip
        response = await self._connection.unary(self._connection.discovery.GetMcpPrompt, request, timeout=timeout)
        return [message_from_proto(message) for message in response.messages]

    async def list(
        self,
        *,
        start: bool = True,
        agent_id: str | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> list[McpInfo]:
        """The servers in the order of their declaration, started when they never were, unless ``start=False``."""
        found: list[McpInfo] = []
        token = ""
        while True:
            request = discovery_pb2.ListMcpsRequest(
                workspace_id=self._workspace_id, agent_id=agent_id, session_id=session_id, no_start=not start,
                page_size=_PAGE, page_token=token,
            )  # fmt: skip
            response = await self._connection.unary(self._connection.discovery.ListMcps, request, timeout=timeout)
            found += map(McpInfo.from_proto, response.mcps)
            token = response.next_page_token
            if not token:
                return found


def _content(part: mcp_pb2.McpResourceContent) -> ResourceContent:
    kind = part.WhichOneof("content")
    return ResourceContent(
        part.uri,
        part.media_type,
        text=part.text if kind == "text" else None,
        data=part.data if kind == "data" else None,
        path=part.offloaded.path if kind == "offloaded" else "",
    )
