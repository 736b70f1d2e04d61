"""What an agent has: tools, MCP servers, skills, instructions."""

from __future__ import annotations

import base64
from typing import Any

from tests.clients.data import bytes_of
from tests.clients.python_operations.offload import block_of, message_of
from tests.clients.python_operations.registry import Args, DriverBug, Objects, chosen, operation, with_deadline
from workspaced import (
    ToolData,
    ToolLog,
    ToolProcess,
    ToolProgress,
    ToolResult,
    ToolText,
)
from workspaced.mcps import McpInfo

_WHO = ("agent_id", "session_id")
_EVENTS = {ToolProcess: "process", ToolText: "text", ToolData: "data", ToolProgress: "progress", ToolLog: "log"}


@with_deadline
async def list_tools(objects: Objects, args: Args) -> dict[str, Any]:
    tools = await objects.workspace(args).tools.list(**chosen(args, *_WHO, "kind", "mcp", "timeout"))
    return {
        "names": [tool.name for tool in tools],
        "failures": {error.mcp: error.reason for error in tools.mcp_errors},
    }


@operation
async def tool_schema(objects: Objects, args: Args) -> dict[str, Any]:
    for tool in await objects.workspace(args).tools.list(**chosen(args, *_WHO)):
        if tool.name == args["name"]:
            return {
                "description": tool.description,
                "input_schema": tool.input_schema,
                "kind": tool.kind,
                "read_only": tool.read_only,
            }
    raise DriverBug(f"no tool {args['name']!r}")


@operation
async def call_tool(objects: Objects, args: Args) -> dict[str, Any]:
    tools = objects.workspace(args).tools
    options = chosen(args, *_WHO, "offload_over_bytes", "call_id", timeout="tool_timeout")
    if not args.get("as_stream"):
        return tool_result(await tools.call(args["name"], args["input"], **options), set())
    kinds: set[str] = set()
    async with tools.stream(args["name"], args["input"], **options) as events:
        async for event in events:
            if isinstance(event, ToolResult):
                return tool_result(event, kinds)
            kinds.add(_EVENTS[type(event)])
    raise DriverBug("a tool's events ended without a result")


def tool_result(result: ToolResult, kinds: set[str]) -> dict[str, Any]:
    """The result of `call_tool`."""
    return {
        "text": result.text,
        "is_error": result.is_error,
        "state": result.state,
        "structured": result.structured,
        "blocks": [block_of(block)["type"] for block in result.blocks],
        "offloaded": result.offloaded,
        "events": sorted(kinds),
    }


def _mcp(info: McpInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "state": info.state,
        "server_name": info.server_name,
        "tool_count": info.tool_count,
    }


@with_deadline
async def add_mcp(objects: Objects, args: Args) -> dict[str, Any]:
    options = chosen(
        args, *_WHO, "stdio", "http", "env", "headers", "enabled_tools", "disabled_tools", "call_timeout", "timeout"
    )
    return _mcp(await objects.workspace(args).mcps.add(args["name"], **options))


@with_deadline
async def list_mcps(objects: Objects, args: Args) -> dict[str, Any]:
    found = await objects.workspace(args).mcps.list(**chosen(args, *_WHO, "start", "timeout"))
    return {
        "names": [info.name for info in found],
        "states": {info.name: info.state for info in found},
        "errors": {info.name: info.error.reason for info in found if info.error is not None},
    }


@operation
async def remove_mcp(objects: Objects, args: Args) -> dict[str, Any]:
    mcps = objects.workspace(args).mcps
    return {"removed": await mcps.remove(args["name"], **chosen(args, *_WHO, "allow_missing"))}


@with_deadline
async def mcp_resources(objects: Objects, args: Args) -> dict[str, Any]:
    found = await objects.workspace(args).mcps.resources(**chosen(args, *_WHO, "mcp", "timeout"))
    return {"uris": sorted(item.uri or item.uri_template for item in found)}


@with_deadline
async def read_resource(objects: Objects, args: Args) -> dict[str, Any]:
    options = chosen(args, *_WHO, "offload_over_bytes", "timeout")
    parts = await objects.workspace(args).mcps.read_resource(args["mcp"], args["uri"], **options)
    contents = []
    for part in parts:
        shown: dict[str, Any] = {"uri": part.uri}
        if part.text is not None:
            shown["text"] = part.text
        if part.data is not None:
            shown["data"] = base64.b64encode(part.data).decode()
        if part.path:
            shown["path"] = part.path
        contents.append(shown)
    return {"contents": contents}


@with_deadline
async def mcp_prompts(objects: Objects, args: Args) -> dict[str, Any]:
    found = await objects.workspace(args).mcps.prompts(**chosen(args, *_WHO, "mcp", "timeout"))
    return {"names": sorted(prompt.name for prompt in found)}


@with_deadline
async def get_prompt(objects: Objects, args: Args) -> dict[str, Any]:
    options = chosen(args, *_WHO, "arguments", "timeout")
    messages = await objects.workspace(args).mcps.get_prompt(args["mcp"], args["name"], **options)
    return {"messages": [message_of(message) for message in messages]}


@with_deadline
async def add_skill(objects: Objects, args: Args) -> dict[str, Any]:
    source = bytes_of(args["archive"]) if "archive" in args else args["local"]
    info = await objects.workspace(args).skills.add(source, **chosen(args, "agent_id", "replace", "timeout"))
    return {"name": info.name, "description": info.description, "path": info.path}


@operation
async def list_skills(objects: Objects, args: Args) -> dict[str, Any]:
    found = await objects.workspace(args).skills.list(**chosen(args, "agent_id"))
    return {"names": sorted(info.name for info in found)}


@operation
async def get_skill(objects: Objects, args: Args) -> dict[str, Any]:
    skill = await objects.workspace(args).skills.get(args["name"], **chosen(args, "agent_id"))
    return {
        "name": skill.info.name,
        "description": skill.info.description,
        "markdown": skill.markdown,
        "files": sorted(file.path for file in skill.files),
    }


@operation
async def remove_skill(objects: Objects, args: Args) -> dict[str, Any]:
    skills = objects.workspace(args).skills
    return {"removed": await skills.remove(args["name"], **chosen(args, "agent_id", "allow_missing"))}


@operation
async def skill_problems(objects: Objects, args: Args) -> dict[str, Any]:
    found = await objects.workspace(args).skills.problems(**chosen(args, "agent_id"))
    return {"reasons": sorted(problem.reason for problem in found)}


@operation
async def instructions(objects: Objects, args: Args) -> dict[str, Any]:
    return {"text": await objects.workspace(args).instructions(**chosen(args, *_WHO))}


@operation
async def purge_session(objects: Objects, args: Args) -> dict[str, Any]:
    await objects.workspace(args).purge_session(args["session_id"], **chosen(args, "agent_id"))
    return {}


@operation
async def purge_agent(objects: Objects, args: Args) -> dict[str, Any]:
    await objects.workspace(args).purge_agent(**chosen(args, "agent_id"))
    return {}
