"""`ls`, `inspect`, `close`, `reset`, `rm`: workspaces as they are, and their end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from .arguments import Command, parse_pair, parse_time
from .failure import Failure, describe, report
from .initialize import BACKENDS
from .names import process_names, workspace_names
from .output import age, plain
from .session import Session

if TYPE_CHECKING:
    import workspaced

STATES = ("initializing", "ready", "closing", "closed", "degraded", "deleting", "failed")


@click.command(cls=Command)
@click.option("-l", "--label", multiple=True, type=parse_pair, metavar="NAME=VALUE", help="Only those with this label.")
@click.option("--state", multiple=True, type=click.Choice(STATES), help="Only those in this state.")
@click.option("--backend", multiple=True, type=click.Choice(BACKENDS), help="Only those on this backend.")
@click.option("-q", "--quiet", is_flag=True, help="Print ids only.")
@click.pass_obj
def ls(
    session: Session, label: tuple[tuple[str, str], ...], state: tuple[str, ...], backend: tuple[str, ...], quiet: bool
) -> None:
    """List workspaces, by time of creation."""

    async def call() -> list[workspaced.WorkspaceInfo]:
        async with session.connect() as client:
            return await client.list(labels=dict(label), states=state, backends=backend)

    found = session.run(call)
    if session.json:
        session.printer.document(found)
    elif quiet:
        for info in found:
            session.printer.text(info.workspace_id)
    else:
        rows = [
            (
                info.workspace_id,
                str(info.state),
                str(info.backend),
                info.image or "-",
                age(info.create_time),
                age(info.last_used_time),
                ",".join(f"{name}={value}" for name, value in sorted(info.labels.items())) or "-",
            )
            for info in found
        ]
        session.printer.table(("ID", "STATE", "BACKEND", "IMAGE", "AGE", "USED", "LABELS"), rows)


@click.command(cls=Command)
@click.argument("workspace_id", metavar="ID", shell_complete=workspace_names)
@click.argument("process_id", metavar="[PROCESS]", required=False, shell_complete=process_names)
@click.pass_obj
def inspect(session: Session, workspace_id: str, process_id: str | None) -> None:
    """Show all that is known of a workspace, or of a process in it."""

    async def call() -> workspaced.WorkspaceInfo | workspaced.ProcessInfo:
        async with session.connect() as client:
            workspace = client.workspace(workspace_id)
            return await (workspace.info() if process_id is None else workspace.process(process_id).info())

    found = session.run(call)
    if session.json:
        session.printer.document(found)
    else:
        session.printer.fields(plain(found))


ids_argument = click.argument("workspace_ids", metavar="ID...", nargs=-1, required=True, shell_complete=workspace_names)


def _each(
    session: Session,
    workspace_ids: tuple[str, ...],
    act: Callable[[workspaced.Workspace], Awaitable[workspaced.WorkspaceInfo | None]],
) -> None:
    """Do it to each, whatever becomes of the others; print the ids that it was done to."""

    async def call() -> Failure | None:
        last: Failure | None = None
        async with session.connect() as client:
            for workspace_id in workspace_ids:
                try:
                    info = await act(client.workspace(workspace_id))
                except Exception as error:
                    failure = describe(error)
                    if failure is None or len(workspace_ids) == 1:
                        raise
                    report(failure, as_json=session.json)
                    last = failure
                    continue
                if session.json:
                    session.printer.line({"workspace_id": workspace_id} if info is None else info)
                else:
                    session.printer.text(workspace_id)
        return last

    failure = session.run(call)
    if failure is not None:
        raise click.exceptions.Exit(failure.exit_code)


@click.command(cls=Command)
@ids_argument
@click.option(
    "--grace", type=parse_time, metavar="TIME", help="Time that processes have to end by themselves; 5s if not given."
)
@click.pass_obj
def close(session: Session, workspace_ids: tuple[str, ...], grace: float | None) -> None:
    """End the processes of workspaces and suspend them. `workspaced init --id ID` brings one back.

    What its files do meanwhile is the backend's matter: on Docker they are gone unless it was made with --persistent
    or --host-workdir.
    """
    _each(session, workspace_ids, lambda workspace: workspace.close(grace=grace))


@click.command(cls=Command)
@ids_argument
@click.option("--wipe-files", is_flag=True, help="Remove all files too.")
@click.option("--kill-processes", is_flag=True, help="End all processes too.")
@click.pass_obj
def reset(session: Session, workspace_ids: tuple[str, ...], wipe_files: bool, kill_processes: bool) -> None:
    """Remove what agents put beside the project: MCP declarations, skills, sessions, offloaded data."""
    _each(
        session,
        workspace_ids,
        lambda workspace: workspace.reset(wipe_files=wipe_files, kill_processes=kill_processes),
    )


@click.command(cls=Command)
@ids_argument
@click.option("-f", "--force", is_flag=True, help="A workspace that does not exist is no error.")
@click.pass_obj
def rm(session: Session, workspace_ids: tuple[str, ...], force: bool) -> None:
    """Delete workspaces with their files and processes. Directories that you brought yourself stay."""
    _each(session, workspace_ids, lambda workspace: workspace.delete(allow_missing=force))
