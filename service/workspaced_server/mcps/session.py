"""The client's end of a session with an MCP server, as this server wants it."""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError, version

import mcp_types as types
from mcp.client.session import ClientRequestContext, ClientSession
from mcp_types import METHOD_NOT_FOUND

# The SDK writes down what servers send; here a server is untrusted and its owner is told by errors.
for _name in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class Session(ClientSession):
    """A session that says why it declines what a server asks of a client."""

    async def dispatch_input_request(
        self, ctx: ClientRequestContext, request: types.InputRequest
    ) -> types.InputResponse | types.ErrorData:
        """Decline."""
        match request:
            case types.CreateMessageRequest():
                text = "sampling is declined: workspaced has no model, the agent that calls the tool has"
            case types.ElicitRequest():
                text = "elicitation is declined: workspaced has no user to ask; take what is missing as an argument"
            case _:
                text = "roots are not offered: give the server its directories as arguments"
        return types.ErrorData(code=METHOD_NOT_FOUND, message=text)


def implementation() -> types.Implementation:
    """Who we are to servers."""
    try:
        own = version("workspaced-server")
    except PackageNotFoundError:
        own = "0"
    return types.Implementation(name="workspaced", version=own)
