"""An MCP server with one tool that gives back what it is sent, over stdin and stdout."""

from mcp.server import MCPServer

server = MCPServer("echo")


@server.tool()
def echo(text: str) -> str:
    """Give back the text."""
    return text


if __name__ == "__main__":
    server.run("stdio")
