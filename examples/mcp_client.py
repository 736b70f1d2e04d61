#!/usr/bin/env python3
"""A workspace as an MCP server, used by a client of the official MCP SDK; any other MCP client is set up the same way.

python examples/mcp_client.py [--target 127.0.0.1:7420] [--backend local] [--image IMAGE]

Needs ``mcp`` and the ``workspaced`` command. An MCP client of an editor or a chat program takes the same as
configuration: ``{"command": "workspaced", "args": ["mcp", "--workspace", "ID"]}``.
"""

from __future__ import annotations

import argparse
import asyncio
import os

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client

import workspaced


async def use(session: ClientSession) -> None:
    """What a model would choose, from the tools that it is told of."""
    tools = (await session.list_tools()).tools
    print("tools:", *sorted(tool.name for tool in tools))
    await call(session, "Write", {"file_path": "sum.py", "content": "print(sum(range(101)))\n"})
    await call(session, "Bash", {"command": "python3 sum.py"})
    await call(session, "Read", {"file_path": "missing.py"})


async def call(session: ClientSession, tool: str, arguments: dict[str, object]) -> None:
    """Call a tool and print its text. An error of the tool is an answer, not an exception."""
    result = await session.call_tool(tool, arguments)
    text = "".join(block.text for block in result.content if isinstance(block, types.TextContent))
    print(f"--- {tool}: {'error' if result.is_error else 'success'}\n{text.rstrip()}")


async def main() -> None:
    """Make a workspace for the time of the session."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="127.0.0.1:7420")
    parser.add_argument("--backend", default="local")
    parser.add_argument("--image", default="")
    arguments = parser.parse_args()
    async with workspaced.connect(arguments.target) as client:
        workspace = await client.initialize(backend=arguments.backend, image=arguments.image)
        try:
            program = StdioServerParameters(
                command="workspaced",
                args=["mcp", "--workspace", workspace.id],
                env={**os.environ, "WORKSPACED_SERVER": arguments.target},
            )
            async with stdio_client(program) as (reading, writing), ClientSession(reading, writing) as session:
                await session.initialize()
                await use(session)
        finally:
            await workspace.delete()


if __name__ == "__main__":
    asyncio.run(main())
