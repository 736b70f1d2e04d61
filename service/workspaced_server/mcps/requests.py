"""Single requests to an MCP server, and what its refusals mean."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.mcps import failures
from workspaced_server.mcps.connection import Connection
from workspaced_server.mcps.failures import McpFailure
from workspaced_server.mcps.listings import Listing
from workspaced_server.mcps.mcps import OnProgress, prompt_argument_missing

T = TypeVar("T")
_RESOURCE_NOT_FOUND = -32002
_CALL_RESULT: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


async def load(listing: Listing[T]) -> list[T]:
    """The list. Raises McpFailure."""
    try:
        return await listing.load()
    except MCPError as error:
        raise McpFailure("MCP_PROTOCOL_ERROR", f"it refused to list: {error.message[:300]}") from error
    except ValidationError as error:
        raise McpFailure("MCP_PROTOCOL_ERROR", "its list makes no sense") from error


async def call_tool(
    connection: Connection, tool: str, arguments: dict[str, Any], on_progress: OnProgress | None
) -> types.CallToolResult:
    """Call a tool. Raises WorkspacedError MCP_REQUEST_FAILED, and as `Connection.request`."""
    name = connection.declaration.name

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        assert on_progress is not None
        on_progress(progress, total, message)

    assert connection.session is not None
    # Not `call_tool`, which checks the output by a schema that an untrusted server may have written against us.
    request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
    sent = connection.session.send_request(
        request, _CALL_RESULT, progress_callback=None if on_progress is None else tell
    )
    try:
        result = await connection.request(sent)
        # What came before the answer was handed to tasks, which may not have had their turn yet.
        for _ in range(2):
            await asyncio.sleep(0)
    except MCPError as error:
        raise failures.request_failed(name, error.message, error.code) from error
    except ValidationError as error:
        raise failures.request_failed(name, "its answer makes no sense") from error
    if isinstance(result, types.InputRequiredResult):
        raise failures.request_failed(name, "it asks for input, which nobody can give here")
    return result


async def read_resource(connection: Connection, uri: str) -> types.ReadResourceResult:
    """Read a resource. Raises WorkspacedError."""
    name = connection.declaration.name
    if connection.listings.capabilities.resources is None:
        raise failures.unsupported(name, "resources")
    assert connection.session is not None
    try:
        return await connection.request(connection.session.read_resource(uri))
    except MCPError as error:
        text = error.message.lower()
        if error.code == _RESOURCE_NOT_FOUND or "not found" in text or "unknown resource" in text:
            raise WorkspacedError(
                Code.NOT_FOUND,
                "MCP_RESOURCE_NOT_FOUND",
                f"MCP server {name!r} has no resource {uri[:300]!r}",
                {"mcp": name, "uri": uri[:500]},
                resource=("mcp_resource", uri[:500]),
            ) from error
        raise failures.request_failed(name, error.message, error.code) from error
    except (ValidationError, RuntimeError) as error:
        raise failures.request_failed(name, "its answer makes no sense") from error


async def get_prompt(connection: Connection, prompt: str, arguments: dict[str, str]) -> types.GetPromptResult:
    """Fill in a prompt. Raises WorkspacedError."""
    name = connection.declaration.name
    if connection.listings.capabilities.prompts is None:
        raise failures.unsupported(name, "prompts")
    known = next((item for item in await load(connection.listings.prompts) if item.name == prompt), None)
    if known is None:
        raise WorkspacedError(
            Code.NOT_FOUND,
            "MCP_PROMPT_NOT_FOUND",
            f"MCP server {name!r} has no prompt {prompt[:300]!r}",
            {"mcp": name, "prompt": prompt[:256]},
            resource=("mcp_prompt", prompt[:256]),
        )
    for argument in known.arguments or ():
        if argument.required and argument.name not in arguments:
            raise prompt_argument_missing(argument.name)
    assert connection.session is not None
    try:
        return await connection.request(connection.session.get_prompt(prompt, arguments))
    except MCPError as error:
        raise failures.request_failed(name, error.message, error.code) from error
    except (ValidationError, RuntimeError) as error:
        raise failures.request_failed(name, "its answer makes no sense") from error
