"""`ps`, `attach`, `logs`, `kill`: the processes of a workspace."""

from __future__ import annotations

import shlex
import sys
from collections import deque
from typing import TYPE_CHECKING

import click

from .arguments import Command
from .conversation import Conversation, converse
from .execute import local_terminal
from .names import process_names, workspace_names
from .output import age, size
from .session import Session

if TYPE_CHECKING:
    import workspaced

workspace_argument = click.argument("workspace_id", metavar="ID", shell_complete=workspace_names)
process_argument = click.argument("process_id", metavar="PROCESS", shell_complete=process_names)


COMMAND_CHARACTERS = 100  # of a table's row; `inspect` shows all of a program that was given as an argument


def command_line(info: workspaced.ProcessInfo) -> str:
    """What runs, as one would type it, cut short."""
    text = info.command if isinstance(info.command, str) else shlex.join(info.command)
    return text if len(text) <= COMMAND_CHARACTERS else text[:COMMAND_CHARACTERS] + "…"


def status(info: workspaced.ProcessInfo) -> str:
    """RUNNING, or how it ended."""
    return str(info.state) if info.exit is None else info.exit.describe()


@click.command(cls=Command)
@workspace_argument
@click.option("-r", "--running", is_flag=True, help="Only those that run.")
@click.option("-q", "--quiet", is_flag=True, help="Print ids only.")
@click.pass_obj
def ps(session: Session, workspace_id: str, running: bool, quiet: bool) -> None:
    """List the processes of a workspace. One that has ended is kept for 10 minutes."""

    async def call() -> list[workspaced.ProcessInfo]:
        async with session.connect() as client:
            return await client.workspace(workspace_id).processes(state="running" if running else None)

    found = session.run(call)
    if session.json:
        session.printer.document(found)
    elif quiet:
        for info in found:
            session.printer.text(info.process_id)
    else:
        rows = [
            (
                info.process_id,
                str(info.pid),
                status(info),
                age(info.start_time),
                size(info.next_offset),
                command_line(info),
            )
            for info in found
        ]
        session.printer.table(("ID", "PID", "STATE", "AGE", "OUTPUT", "COMMAND"), rows)


@click.command(cls=Command)
@workspace_argument
@process_argument
@click.option("--offset", type=click.IntRange(0), default=0, metavar="BYTE", help="Begin at this byte of the output.")
@click.option("--no-follow", is_flag=True, help="End with the output there is.")
@click.option("-i", "--interactive", is_flag=True, help="Send standard input.")
@click.option("-t", "--tty", is_flag=True, help="With -i: make this terminal the process's again.")
@click.pass_obj
def attach(
    session: Session, workspace_id: str, process_id: str, offset: int, no_follow: bool, interactive: bool, tty: bool
) -> int:
    """Show the output of a process from its beginning, follow it, and end with its exit code.

    Any number may attach, as often as they like. Ctrl-C detaches; the process goes on.
    """
    terminal = local_terminal() if tty and interactive else None

    async def call() -> int:
        async with session.connect() as client:
            workspace = client.workspace(workspace_id)
            until = (await workspace.process(process_id).info()).next_offset if no_follow else None
            async with await workspace.attach(process_id, offset, gaps="yield", read_only=not interactive) as process:
                if terminal is not None:
                    await process.resize(*terminal.size())
                conversation = Conversation(
                    process,
                    session.printer,
                    forward_input=interactive,
                    terminal=terminal,
                    interrupt=False,
                    until=until,
                )
                return await converse(conversation, process, session.printer, came_from="attach")

    return session.run(call)


@click.command(cls=Command)
@workspace_argument
@process_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes.")
@click.option("--tail", type=click.IntRange(0), metavar="LINES", help="Begin with the last lines.")
@click.pass_obj
def logs(session: Session, workspace_id: str, process_id: str, follow: bool, tail: int | None) -> None:
    """Show the output of a process so far. Ends with 0, however the process ended; attach passes its exit code on."""

    async def call() -> None:
        async with session.connect() as client:
            workspace = client.workspace(workspace_id)
            info = await workspace.process(process_id).info()
            start = info.first_offset
            if tail is not None:
                start = await _tail_offset(workspace, info, tail)
            if start >= info.next_offset and not follow:
                return
            async with await workspace.attach(process_id, start, gaps="yield", read_only=True) as process:
                until = None if follow else info.next_offset
                conversation = Conversation(process, session.printer, interrupt=False, until=until)
                await converse(conversation, process, session.printer, came_from="attach")

    session.run(call)


async def _tail_offset(workspace: workspaced.Workspace, info: workspaced.ProcessInfo, lines: int) -> int:
    """Offset of the first of the last lines of the output so far."""
    import workspaced

    end = info.next_offset
    if lines == 0 or info.first_offset >= end:
        return end
    # Offsets just behind each of the last newlines; the one that ends the output begins no line.
    starts: deque[int] = deque([info.first_offset], maxlen=lines)
    async with await workspace.attach(info.process_id, info.first_offset, gaps="yield", read_only=True) as process:
        async for event in process:
            if isinstance(event, workspaced.Output):
                position = event.data.find(b"\n")
                while position >= 0 and event.offset + position + 1 < end:
                    starts.append(event.offset + position + 1)
                    position = event.data.find(b"\n", position + 1)
            if process.offset >= end:
                break
    return starts[0]


@click.command(cls=Command)
@workspace_argument
@process_argument
@click.option("-s", "--signal", "name", default="TERM", show_default=True, metavar="NAME", help="Signal to send.")
@click.option("--leader", is_flag=True, help="To the process alone, not to its descendants.")
@click.pass_obj
def kill(session: Session, workspace_id: str, process_id: str, name: str, leader: bool) -> None:
    """Send a signal to a process and all its descendants."""

    async def call() -> int:
        async with session.connect() as client:
            return await client.workspace(workspace_id).process(process_id).signal(name, leader_only=leader)

    count = session.run(call)
    if session.json:
        session.printer.document({"signaled": count})
    elif sys.stdout.isatty():
        session.printer.text(f"{name} went to {count} {'process' if count == 1 else 'processes'}.")
