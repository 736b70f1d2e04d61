"""Speaks with every installed MCP server once: what is missing or does not run fails here, and not in some test."""

from __future__ import annotations

import asyncio
from pathlib import Path

import mcp
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

# In an image `mcp` is also imported by the system's own python.
BIN = Path(mcp.__file__).parents[4] / "bin"
COMMANDS = [
    ["mcp-server-everything"],
    ["mcp-server-filesystem", str(BIN)],
    ["npx", "-y", "@modelcontextprotocol/server-everything"],
    ["npx", "-y", "@modelcontextprotocol/server-filesystem", str(BIN)],
]


async def speak(command: list[str]) -> None:
    """Start a server and list its tools."""
    # All of these are scripts of `env node`; npm runs a shell.
    parameters = StdioServerParameters(command=command[0], args=command[1:], env={"PATH": f"{BIN}:/usr/bin:/bin"})
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        if not (await session.list_tools()).tools:
            raise SystemExit(f"{' '.join(command)}: no tools")


async def main() -> None:
    async with asyncio.timeout(90), asyncio.TaskGroup() as group:
        for command in COMMANDS:
            group.create_task(speak(command))


if __name__ == "__main__":
    asyncio.run(main())
