"""`mcp`: the MCP servers of a workspace, and the workspace as an MCP server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .agents import agent_option, session_option
from .arguments import Command, ProgramCommand, parse_pair, parse_time, parse_variable
from .failure import Failure
from .names import workspace_names
from .output import age, visible
from .session import Session
from .tools import call as call_tool

if TYPE_CHECKING:
    import workspaced

workspace_argument = click.argument("workspace_id", metavar="ID", shell_complete=workspace_names)


@click.group(invoke_without_command=True)
@click.option(
    "--workspace", "workspace_id", metavar="ID", shell_complete=workspace_names, help="Serve this workspace over stdio."
)
@agent_option
@session_option
@click.pass_context
def mcp(context: click.Context, workspace_id: str | None, agent_id: str | None, session_id: str | None) -> None:
    """Declare, list, remove and call the MCP servers of a workspace; or be one.

    `workspaced mcp --workspace ID` is an MCP server on standard input and output that offers the tools, skills and MCP
    servers of the workspace to any MCP client.
    """
    if context.invoked_subcommand is not None:
        if workspace_id is not None:
            raise click.UsageError(
                f"--workspace serves a workspace; {context.invoked_subcommand} takes it as an argument"
            )
        return
    if workspace_id is None:
        raise click.UsageError("give --workspace ID to serve a workspace over stdio, or one of add, ls, rm, call")
    from .mcp_server import serve

    session: Session = context.ensure_object(Session)
    session.run(lambda: serve(session, workspace_id, agent_id, session_id))


class AddCommand(ProgramCommand):
    """What follows the program's name is the program's."""

    own_arguments = 2


@mcp.command(cls=AddCommand, name="add")
@workspace_argument
@click.argument("name")
@click.argument("program", nargs=-1, metavar="[PROGRAM ARG...]", type=click.UNPROCESSED)
@click.option(
    "--http", metavar="URL", help="A server over HTTP instead of a program, dialled from inside the workspace."
)
@click.option("--sse", is_flag=True, help="With --http: the older transport, server-sent events.")
@click.option(
    "-e", "--env", multiple=True, type=parse_variable, metavar="NAME[=VALUE]", help="Environment of the program."
)
@click.option(
    "-H", "--header", multiple=True, type=parse_pair, metavar="NAME=VALUE", help="With --http: header to send."
)
@click.option("--cwd", default="", metavar="DIR", help="Directory of the program.")
@click.option("--timeout", type=parse_time, metavar="TIME", help="How long it may take to start.")
@click.option("--call-timeout", type=parse_time, metavar="TIME", help="How long one call may take.")
@click.option("--stateless", is_flag=True, help="It keeps nothing between calls.")
@agent_option
@session_option
@click.pass_obj
def add(session: Session, /, workspace_id: str, name: str, program: tuple[str, ...], **given: Any) -> None:
    """Declare an MCP server and connect to it: a PROGRAM that runs in the workspace, or --http URL."""
    if bool(program) == bool(given["http"]):
        raise click.UsageError("give a program with its arguments, or --http URL")
    arguments: dict[str, Any] = {"stdio": list(program)} if program else {"http": given["http"]}

    async def call() -> workspaced.McpInfo:
        async with session.connect() as client:
            return await client.workspace(workspace_id).mcps.add(
                name,
                env=dict(given["env"]) or None,
                headers=dict(given["header"]) or None,
                cwd=given["cwd"],
                kind="sse" if given["sse"] else "streamable",
                timeout=given["timeout"],
                call_timeout=given["call_timeout"],
                stateless=given["stateless"],
                agent_id=given["agent_id"],
                session_id=given["session_id"],
                **arguments,
            )

    try:
        info = session.run(call)
    except (ValueError, TypeError) as error:
        raise Failure(str(error)) from error
    if session.json:
        session.printer.document(info)
    else:
        session.printer.text(
            visible(f"{info.name}: {info.tool_count} tools of {info.server_name} {info.server_version}".rstrip())
        )


@mcp.command(cls=Command, name="ls")
@workspace_argument
@click.option("--no-start", is_flag=True, help="Start nothing: show the states as they are.")
@agent_option
@session_option
@click.pass_obj
def ls(session: Session, workspace_id: str, no_start: bool, agent_id: str | None, session_id: str | None) -> None:
    """List MCP servers in the order of their declaration."""

    async def call() -> list[workspaced.McpInfo]:
        async with session.connect() as client:
            mcps = client.workspace(workspace_id).mcps
            return await mcps.list(start=not no_start, agent_id=agent_id, session_id=session_id)

    found = session.run(call)
    if session.json:
        session.printer.document(found)
        return
    rows = [
        (
            info.name,
            info.state.upper(),
            f"{info.server_name} {info.server_version}".strip() or "-",
            str(info.tool_count),
            info.process_id or "-",
            age(info.last_used_time),
            f"{info.error.reason}: {info.error.message}" if info.error is not None else "-",
        )
        for info in found
    ]
    session.printer.table(("NAME", "STATE", "SERVER", "TOOLS", "PROCESS", "USED", "ERROR"), rows)


@mcp.command(cls=Command, name="rm")
@workspace_argument
@click.argument("name")
@click.option("-f", "--force", is_flag=True, help="A server that is not declared is no error.")
@agent_option
@session_option
@click.pass_obj
def rm(
    session: Session, workspace_id: str, name: str, force: bool, agent_id: str | None, session_id: str | None
) -> None:
    """Forget an MCP server and end it."""

    async def call() -> bool:
        async with session.connect() as client:
            mcps = client.workspace(workspace_id).mcps
            return await mcps.remove(name, allow_missing=force, agent_id=agent_id, session_id=session_id)

    removed = session.run(call)
    if session.json:
        session.printer.document({"removed": removed})


@mcp.command(cls=Command, name="call")
@workspace_argument
@click.argument("name")
@click.argument("tool")
@click.argument("values", metavar="[JSON | NAME=TEXT | NAME:=JSON ...]", nargs=-1)
@click.option("--timeout", type=parse_time, metavar="TIME", help="Stop the tool after this time.")
@agent_option
@session_option
@click.pass_context
def call_mcp(
    context: click.Context,
    workspace_id: str,
    name: str,
    tool: str,
    values: tuple[str, ...],
    timeout: float | None,
    agent_id: str | None,
    session_id: str | None,
) -> int:
    """Call a tool of an MCP server by the name that the server gives it."""
    session: Session = context.ensure_object(Session)

    async def find() -> str:
        async with session.connect() as client:
            tools = client.workspace(workspace_id).tools
            found = await tools.list(mcp=name, agent_id=agent_id, session_id=session_id)
        for error in found.mcp_errors:
            raise Failure(f"{error.mcp}: {error.message}", details={"reason": error.reason})
        for item in found:
            if item.original_name == tool:
                return item.name
        names = ", ".join(item.original_name for item in found)
        raise Failure(f"{name} has no tool {tool!r}", hint=f"it has {names}", exit_code=4)

    exposed = session.run(find)
    result: int = context.invoke(
        call_tool, workspace_id=workspace_id, name=exposed, values=values, timeout=timeout, offload_over=0,
        agent_id=agent_id, session_id=session_id,
    )  # fmt: skip
    return result
