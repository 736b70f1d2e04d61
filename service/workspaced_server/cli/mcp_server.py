"""A workspace as an MCP server over stdio: its tools and those of its MCP servers, its skills, resources, prompts."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

import workspaced

from .arguments import version_text
from .session import Session

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    Context = ServerRequestContext[Any, Any]

_SKILL = "skill://"
_OFFLOAD_OVER_BYTES = 100_000


async def serve(session: Session, workspace_id: str, agent_id: str | None, session_id: str | None) -> None:
    """Serve until standard input ends. Raises what the first calls raise, so that a wrong id is told at once."""
    async with session.connect() as client:
        workspace = client.workspace(workspace_id)
        instructions = await workspace.instructions(agent_id=agent_id, session_id=session_id)
        server = _Bridge(workspace, agent_id, session_id).server(instructions)
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())


class _Bridge:
    """Answers each MCP request by a call to the server."""

    def __init__(self, workspace: workspaced.Workspace, agent_id: str | None, session_id: str | None) -> None:
        self._workspace = workspace
        self._agent_id = agent_id
        self._pair: dict[str, Any] = {"agent_id": agent_id, "session_id": session_id}

    def server(self, instructions: str) -> Server[Any]:
        """The MCP server."""
        return Server(
            f"workspaced {self._workspace.id}",
            version=version_text().removeprefix("workspaced "),
            instructions=instructions,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )

    async def _list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        with _errors():
            found = await self._workspace.tools.list(**self._pair)
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    title=tool.title or None,
                    description=tool.description,
                    input_schema=dict(tool.input_schema),
                    output_schema=dict(tool.output_schema) if tool.output_schema is not None else None,
                    annotations=types.ToolAnnotations(
                        read_only_hint=tool.read_only,
                        destructive_hint=tool.destructive,
                        idempotent_hint=tool.idempotent,
                        open_world_hint=tool.open_world,
                    ),
                )
                for tool in found
            ]
        )

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        result: workspaced.ToolResult | None = None
        with _errors():
            stream = self._workspace.tools.stream(
                params.name, params.arguments or {}, offload_over_bytes=_OFFLOAD_OVER_BYTES, **self._pair
            )
            async with stream as events:
                async for event in events:
                    if isinstance(event, workspaced.ToolProgress):
                        await context.session.report_progress(event.progress, event.total, event.message or None)
                    elif isinstance(event, workspaced.ToolResult):
                        result = event
        assert result is not None
        return types.CallToolResult(
            content=[_content(block) for block in result.blocks],
            structured_content=dict(result.structured) if result.structured is not None else None,
            is_error=result.is_error,
        )

    async def _list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        with _errors():
            skills, offered = await asyncio.gather(
                self._workspace.skills.list(agent_id=self._agent_id), self._workspace.mcps.resources(**self._pair)
            )
        listed = [
            types.Resource(
                uri=_SKILL + quote(skill.name, safe=""),
                name=skill.name,
                description=skill.description,
                mime_type="text/markdown",
            )
            for skill in skills
        ]
        listed += [
            types.Resource(
                uri=item.uri,
                name=item.name,
                title=item.title or None,
                description=item.description or None,
                mime_type=item.media_type or None,
                size=item.size,
            )
            for item in offered
            if item.uri
        ]
        return types.ListResourcesResult(resources=listed)

    async def _list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        with _errors():
            offered = await self._workspace.mcps.resources(**self._pair)
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=item.uri_template,
                    name=item.name,
                    title=item.title or None,
                    description=item.description or None,
                    mime_type=item.media_type or None,
                )
                for item in offered
                if item.uri_template
            ]
        )

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        with _errors():
            if uri.startswith(_SKILL):
                name = unquote(uri.removeprefix(_SKILL))
                detail = await self._workspace.skills.get(name, agent_id=self._agent_id)
                text = types.TextResourceContents(uri=uri, mime_type="text/markdown", text=detail.markdown)
                return types.ReadResourceResult(contents=[text])
            parts = await self._workspace.mcps.read_resource(await self._server_of(uri), uri, **self._pair)
        return types.ReadResourceResult(contents=[_resource(part) for part in parts])

    async def _server_of(self, uri: str) -> str:
        """The MCP server that offers a resource; the first with templates when none lists it."""
        offered = await self._workspace.mcps.resources(**self._pair)
        for item in offered:
            if item.uri == uri:
                return item.mcp
        for item in offered:
            if item.uri_template and uri.startswith(item.uri_template.partition("{")[0]):
                return item.mcp
        raise workspaced.NotFound(f"no MCP server of this workspace offers {uri}", reason="MCP_RESOURCE_NOT_FOUND")

    async def _list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        with _errors():
            offered = await self._workspace.mcps.prompts(**self._pair)
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(
                    name=f"{item.mcp}/{item.name}",
                    title=item.title or None,
                    description=item.description or None,
                    arguments=[
                        types.PromptArgument(name=name, required=required) for name, required in item.arguments.items()
                    ],
                )
                for item in offered
            ]
        )

    async def _get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        mcp, _, name = params.name.partition("/")
        with _errors():
            messages = await self._workspace.mcps.get_prompt(mcp, name, params.arguments or {}, **self._pair)
        return types.GetPromptResult(
            messages=[
                types.PromptMessage(
                    role="assistant" if message.role == "assistant" else "user", content=_content(block)
                )
                for message in messages
                for block in message.content
            ]
        )


def _content(block: workspaced.Block) -> Any:
    if isinstance(block, workspaced.TextBlock):
        return types.TextContent(type="text", text=block.text)
    if isinstance(block, workspaced.DataBlock) and block.data is not None:
        data = base64.b64encode(block.data).decode()
        kind = block.media_type.partition("/")[0]
        if kind == "image":
            return types.ImageContent(type="image", data=data, mime_type=block.media_type)
        if kind == "audio":
            return types.AudioContent(type="audio", data=data, mime_type=block.media_type)
        name = block.name or "data"
        contents = types.BlobResourceContents(uri=f"data:/{quote(name)}", mime_type=block.media_type, blob=data)
        return types.EmbeddedResource(type="resource", resource=contents)
    if isinstance(block, workspaced.DataBlock):
        return types.ResourceLink(
            type="resource_link", uri=block.url, name=block.name or block.url, mime_type=block.media_type
        )
    return types.TextContent(type="text", text=str(block))


def _resource(part: workspaced.ResourceContent) -> Any:
    media_type = part.media_type or None
    if part.text is not None:
        return types.TextResourceContents(uri=part.uri, mime_type=media_type, text=part.text)
    data = base64.b64encode(part.data or b"").decode()
    return types.BlobResourceContents(uri=part.uri, mime_type=media_type, blob=data)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Errors of the server as errors of MCP, in the same words."""
    try:
        yield
    except workspaced.WorkspacedError as error:
        code = types.INVALID_PARAMS if error.code in ("INVALID_ARGUMENT", "NOT_FOUND") else types.INTERNAL_ERROR
        raise MCPError(code, error.message, {"reason": error.reason, **error.metadata}) from error
