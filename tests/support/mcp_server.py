"""A real MCP server, by the official SDK: every kind of result, over stdio, Streamable HTTP or SSE, with TLS or not.

Run as ``python mcp_server.py [--transport stdio|streamable-http|sse] [--port N] [--certificate PEM] [--slow SECONDS]``.
Over HTTP it prints the port that it listens on. It imports nothing of this repository, so that it runs in any image.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import socket
import sys
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import Message, UserMessage
from mcp_types import AudioContent, CallToolResult, ImageContent, TextContent
from pydantic import BaseModel, Field

warnings.simplefilter("ignore")
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(64))).decode()

server = MCPServer("support", version="1.2", instructions="For tests.")
_counter = 0


class Weather(BaseModel):
    """Structured output."""

    degrees: float
    wind: Annotated[int, Field(ge=0)]


@server.tool()
async def echo(text: str) -> str:
    """Say it back."""
    return text


@server.tool()
async def counter() -> str:
    """Count the calls of this process."""
    global _counter  # noqa: PLW0603 - the state that a session must not share
    _counter += 1
    return str(_counter)


@server.tool()
async def environment(name: str) -> str:
    """A variable of this process."""
    return os.environ.get(name, "")


@server.tool()
async def where() -> str:
    """The working directory and the process."""
    return json.dumps({"cwd": str(Path.cwd()), "pid": os.getpid(), "argv": sys.argv[1:]})


@server.tool()
async def slow(seconds: float, ctx: Context, steps: int = 5, mark: str = "") -> str:
    """Report progress, and note in the file ``mark`` how it ended."""
    try:
        for step in range(steps):
            await ctx.report_progress(step + 1, steps, f"step {step + 1}")
            await asyncio.sleep(seconds / steps)
    except BaseException:
        if mark:
            Path(mark).write_text("cancelled")
        raise
    if mark:
        Path(mark).write_text("finished")
    return "done"


@server.tool()
async def crash(code: int = 3) -> str:
    """End the process without an answer."""
    print("about to crash", file=sys.stderr, flush=True)
    os._exit(code)


@server.tool()
async def image() -> ImageContent:
    """An image."""
    return ImageContent(type="image", data=PNG, mime_type="image/png")


@server.tool()
async def sound() -> CallToolResult:
    """Sound and text."""
    content: list[Any] = [
        TextContent(type="text", text="listen"),
        AudioContent(type="audio", data=base64.b64encode(b"RIFF").decode(), mime_type="audio/wav"),
    ]
    return CallToolResult(content=content)


@server.tool()
async def structured() -> Weather:
    """Structured output."""
    return Weather(degrees=21.5, wind=3)


@server.tool()
async def big(size: int) -> str:
    """So many characters."""
    return "x" * size


@server.tool()
async def fail() -> str:
    """A tool that fails."""
    raise ToolError("it did not work")


@server.tool()
async def log(text: str, ctx: Context) -> str:
    """Log a line at two levels."""
    await ctx.info(text, logger_name="support")
    await ctx.error(f"{text}!")
    return "logged"


@server.tool()
async def add_tool(name: str, ctx: Context) -> str:
    """Offer one more tool, and tell the client."""

    async def more() -> str:
        return f"I am {name}"

    server.add_tool(more, name=name, description="Added later.")
    await ctx.session.send_tool_list_changed()
    return "added"


@server.tool()
async def ask_user(ctx: Context) -> str:
    """Ask the client's user, and tell what came of it."""

    class Answer(BaseModel):
        name: str

    try:
        result = await ctx.elicit("Your name?", Answer)
    except Exception as error:  # noqa: BLE001 - what the client says is the result
        return f"refused: {error}"
    return f"answered: {result}"


@server.tool()
async def ask_model(ctx: Context) -> str:
    """Ask the client's model, and tell what came of it."""
    from mcp_types import SamplingMessage

    message = SamplingMessage(role="user", content=TextContent(type="text", text="hello"))
    try:
        result = await ctx.session.create_message([message], max_tokens=5)
    except Exception as error:  # noqa: BLE001 - what the client says is the result
        return f"refused: {error}"
    return f"answered: {result}"


@server.tool(name="t.dot/slash")
async def odd_name() -> str:
    """A tool whose name models cannot use."""
    return "dotted"


@server.resource("memo://one", name="one", description="A text.", mime_type="text/plain")
def text_resource() -> str:
    return "the memo"


@server.resource("memo://picture", name="picture", mime_type="image/png")
def bytes_resource() -> bytes:
    return base64.b64decode(PNG)


@server.resource("note://{name}", name="note", description="A note by name.")
def template_resource(name: str) -> str:
    return f"note {name}"


@server.prompt(name="greet", description="A greeting.")
def greet(name: str, tone: str = "friendly") -> list[Message]:
    return [UserMessage(f"Greet {name} in a {tone} way.")]


def _serve_http(transport: str, port: int, certificate: str) -> None:
    import uvicorn

    listener = socket.create_server(("127.0.0.1", port))
    app: Any = server.streamable_http_app() if transport == "streamable-http" else server.sse_app()
    config = uvicorn.Config(app, log_level="warning", ssl_certfile=certificate or None, timeout_graceful_shutdown=1)
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[listener])


def main() -> None:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", default="stdio", choices=["stdio", "streamable-http", "sse"])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--certificate", default="")
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--started", default="", help="a file that gets a line at each start")
    arguments = parser.parse_args()
    if arguments.started:
        with Path(arguments.started).open("a") as file:
            file.write(f"{os.getpid()}\n")
    time.sleep(arguments.slow)
    if arguments.transport == "stdio":
        server.run("stdio")
    else:
        _serve_http(arguments.transport, arguments.port, arguments.certificate)


if __name__ == "__main__":
    main()
