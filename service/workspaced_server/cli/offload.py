"""`offload`: what agents stored because it did not fit into their context."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from .arguments import Command
from .names import workspace_names
from .output import age, plain, size
from .session import Session

if TYPE_CHECKING:
    import workspaced

workspace_argument = click.argument("workspace_id", metavar="ID", shell_complete=workspace_names)
KINDS = ("context", "tool_result", "data")


@click.group()
def offload() -> None:
    """List and show offloaded contexts, tool results and data."""


@offload.command(cls=Command)
@workspace_argument
@click.option("--session", "session_id", metavar="SESSION", help="Only what belongs to this session.")
@click.option("--kind", type=click.Choice(KINDS), help="Only this kind.")
@click.pass_obj
def ls(
    session: Session, workspace_id: str, session_id: str | None, kind: workspaced.offload.OffloadKind | None
) -> None:
    """List what is stored, by path."""

    async def call() -> list[workspaced.OffloadInfo]:
        async with session.connect() as client:
            return await client.workspace(workspace_id).offload.list(session_id, kind=kind)

    found = session.run(call)
    if session.json:
        session.printer.document(found)
    else:
        rows = [
            (info.path, info.kind, size(info.size), info.session_id or "-", age(info.update_time)) for info in found
        ]
        session.printer.table(("PATH", "KIND", "SIZE", "SESSION", "CHANGED"), rows)


@offload.command(cls=Command)
@workspace_argument
@click.argument("path")
@click.option("--messages", is_flag=True, help="A context as messages, one a line as JSON.")
@click.option("--skip", type=click.IntRange(0), default=0, metavar="N", help="With --messages: skip the first.")
@click.option("--limit", type=click.IntRange(0), default=0, metavar="N", help="With --messages: at most so many.")
@click.pass_obj
def show(session: Session, workspace_id: str, path: str, messages: bool, skip: int, limit: int) -> None:
    """Write something stored to standard output, as it is. PATH is its path or `workspace:///` URL."""

    async def call() -> None:
        async with session.connect() as client:
            stored = client.workspace(workspace_id).offload
            if messages or session.json:
                async with stored.messages(path, skip=skip, limit=limit) as found:
                    async for message in found:
                        session.printer.line(plain(message))
                return
            async with stored.read_stream(path) as chunks:
                async for chunk in chunks:
                    sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()

    session.run(call)
