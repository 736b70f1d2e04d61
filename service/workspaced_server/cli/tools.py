"""`tools` and `call`: what an agent can call, and calling it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from .agents import agent_option, session_option
from .arguments import Command, parse_size, parse_time
from .failure import Failure
from .names import workspace_names
from .output import data_fields, plain, visible
from .session import Session

if TYPE_CHECKING:
    import workspaced

workspace_argument = click.argument("workspace_id", metavar="ID", shell_complete=workspace_names)
DESCRIPTION_CHARACTERS = 80


@click.command(cls=Command)
@workspace_argument
@click.option(
    "--kind", type=click.Choice(("builtin", "mcp")), help="Only workspaced's own, or only those of MCP servers."
)
@click.option("--mcp", default="", metavar="NAME", help="Only those of this MCP server.")
@agent_option
@session_option
@click.pass_obj
def tools(
    session: Session,
    workspace_id: str,
    kind: workspaced.tools.ToolKind | None,
    mcp: str,
    agent_id: str | None,
    session_id: str | None,
) -> None:
    """List the tools that an agent can call. MCP servers that cannot be used are told on standard error."""

    async def call() -> workspaced.ToolList:
        async with session.connect() as client:
            found = client.workspace(workspace_id).tools
            return await found.list(kind=kind, mcp=mcp, agent_id=agent_id, session_id=session_id)

    found = session.run(call)
    if session.json:
        session.printer.document({"tools": list(found), "mcp_errors": found.mcp_errors})
        return
    rows = [(tool.name, tool.source, "yes" if tool.read_only else "-", _first_line(tool.description)) for tool in found]
    session.printer.table(("NAME", "SOURCE", "READ-ONLY", "DESCRIPTION"), rows)
    for error in found.mcp_errors:
        session.printer.note(f"{error.mcp}: {error.message} ({error.reason})")


@click.command(cls=Command)
@workspace_argument
@click.argument("name")
@click.argument("values", metavar="[JSON | NAME=TEXT | NAME:=JSON ...]", nargs=-1)
@click.option("--timeout", type=parse_time, metavar="TIME", help="Stop the tool after this time.")
@click.option(
    "--offload-over", type=parse_size, default="0", metavar="SIZE", help="Store text beyond this in the workspace."
)
@agent_option
@session_option
@click.pass_obj
def call(
    session: Session,
    workspace_id: str,
    name: str,
    values: tuple[str, ...],
    timeout: float | None,
    offload_over: int,
    agent_id: str | None,
    session_id: str | None,
) -> int:
    """Call a tool and show its result. Its input is one JSON object, or a NAME=TEXT or NAME:=JSON for each field.

    Exits with 1 when the tool reports an error. With --json each event is a line. Ctrl-C stops the tool.
    """
    given = _input(values)

    async def run() -> workspaced.ToolResult:
        import workspaced

        async with session.connect() as client:
            stream = client.workspace(workspace_id).tools.stream(
                name, given, timeout=timeout, offload_over_bytes=offload_over, agent_id=agent_id, session_id=session_id
            )
            async with stream as events:
                async for event in events:
                    if isinstance(event, workspaced.ToolResult):
                        return event
                    _show(session, event)
        raise Failure("the server ended the call without a result")

    result = session.run(run)
    if session.json:
        session.printer.line({"event": "result", **_plain(result)})
    else:
        _print_result(session, result)
    return 1 if result.is_error else 0


def _input(values: tuple[str, ...]) -> dict[str, Any]:
    """Raises `click.BadParameter`."""
    if len(values) == 1 and values[0].lstrip().startswith("{"):
        try:
            given = json.loads(values[0])
        except ValueError as error:
            raise click.BadParameter(f"the input is no JSON object: {error}") from error
        return dict(given)
    made: dict[str, Any] = {}
    for value in values:
        field, equals, text = value.partition("=")
        name = field.removesuffix(":")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not NAME=TEXT or NAME:=JSON; or write one JSON object")
        try:
            made[name] = text if name == field else json.loads(text)
        except ValueError as error:
            raise click.BadParameter(f"{name} is no JSON: {error}") from error
    return made


def _show(session: Session, event: workspaced.ToolEvent) -> None:
    import workspaced

    if session.json:
        session.printer.line({"event": type(event).__name__.removeprefix("Tool").lower(), **_plain(event)})
    elif isinstance(event, workspaced.ToolProgress):
        part = f"/{event.total:g}" if event.total is not None else ""
        session.printer.note(f"{event.progress:g}{part} {visible(event.message)}".rstrip())
    elif isinstance(event, workspaced.ToolLog):
        text = event.data if isinstance(event.data, str) else json.dumps(event.data, ensure_ascii=False)
        session.printer.note(f"{event.level}: {visible(text)}")


def _print_result(session: Session, result: workspaced.ToolResult) -> None:
    import workspaced

    for block in result.blocks:
        if isinstance(block, workspaced.TextBlock):
            sys.stdout.write(block.text if block.text.endswith("\n") else block.text + "\n")
        elif isinstance(block, workspaced.DataBlock):
            where = block.url or f"{len(block.data or b'')} bytes; --json shows them"
            session.printer.text(f"[{visible(block.media_type)}: {visible(where)}]")
    sys.stdout.flush()
    if result.offloaded:
        session.printer.note(f"the whole text is in {visible(result.offloaded)}")
    if result.background_process_id:
        session.printer.note(f"goes on as process {result.background_process_id}")


def _plain(value: object) -> dict[str, Any]:
    """An event as JSON, bytes as `data` or `data_base64`."""
    found = plain(_without_bytes(value))
    assert isinstance(found, dict)
    return found


def _without_bytes(value: object) -> Any:
    import dataclasses

    if isinstance(value, bytes):
        return data_fields(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _without_bytes(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [_without_bytes(item) for item in value]
    return value


def _first_line(text: str) -> str:
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= DESCRIPTION_CHARACTERS else line[: DESCRIPTION_CHARACTERS - 1] + "…"
