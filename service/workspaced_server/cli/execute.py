"""`exec`: a program in a workspace, as if it ran here."""

from __future__ import annotations

import os
import secrets
import sys
from typing import TYPE_CHECKING

import click

from .arguments import ProgramCommand, parse_time, parse_variable
from .conversation import Conversation, converse
from .names import workspace_names
from .session import Session
from .terminal import Terminal, window_size

if TYPE_CHECKING:
    import workspaced

PASSED_ON = ("TERM", "COLORTERM")  # what a program in a terminal has to know of the terminal here


def local_terminal() -> Terminal | None:
    """The terminal of standard input, if it is one."""
    return Terminal(sys.stdin.fileno()) if sys.stdin is not None and sys.stdin.isatty() else None


@click.command("exec", cls=ProgramCommand)
@click.argument("workspace_id", metavar="ID", shell_complete=workspace_names)
@click.argument("command", metavar="[--] COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-i", "--interactive", is_flag=True, help="Send standard input.")
@click.option("-t", "--tty", is_flag=True, help="Run in a pseudo-terminal. With -i this terminal becomes it.")
@click.option("-d", "--detach", is_flag=True, help="Print the process's id and leave it running.")
@click.option("--id", "process_id", metavar="ID", help="Id of the process, for attach; made up if not given.")
@click.option("-e", "--env", multiple=True, type=parse_variable, metavar="NAME[=VALUE]", help="Environment.")
@click.option("-w", "--cwd", default="", metavar="DIR", help="Directory, relative to the workspace's.")
@click.option("-u", "--user", default="", metavar="USER", help="User to run as.")
@click.option("--timeout", type=parse_time, metavar="TIME", help="End the whole process tree after this time.")
@click.option("--shell", is_flag=True, help="COMMAND is one line for /bin/sh.")
@click.pass_obj
def execute(
    session: Session,
    workspace_id: str,
    command: tuple[str, ...],
    interactive: bool,
    tty: bool,
    detach: bool,
    process_id: str | None,
    env: tuple[tuple[str, str], ...],
    cwd: str,
    user: str,
    timeout: float | None,
    shell: bool,
) -> int:
    """Run a program in a workspace, and end with its exit code.

    Output streams as it is written. The program outlives this command: when it is cut off, `workspaced attach`
    goes on where it was. Ctrl-C goes to the program, a second one detaches from it. -it gives a real terminal, where
    every key goes to the program.

    With --id the same command again attaches to the process there is, instead of running it twice.
    """
    terminal = local_terminal() if tty and interactive else None
    environment = dict(env)
    if tty:
        inherited = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        environment = {**inherited, **environment}
    arguments: dict[str, object] = {
        "stdin": interactive,
        "pty": (terminal.size() if terminal else window_size(sys.stdout.fileno())) if tty else None,
        "cwd": cwd,
        "env": environment,
        "user": user,
        "timeout": timeout,
        "process_id": process_id or f"p-{secrets.token_hex(6)}",
        "gaps": "yield",
    }
    program: str | list[str] = " ".join(command) if shell else list(command)

    async def call() -> int:
        async with session.connect() as client:
            workspace = client.workspace(workspace_id)
            if detach:
                started = await workspace.start(program, **arguments)  # type: ignore[arg-type]
                _say_started(session, started)
                return 0
            async with workspace.exec(program, **arguments) as process:  # type: ignore[arg-type]
                if session.json:
                    session.printer.line(
                        {"event": "started", "process_id": process.process_id, "existing": process.existing}
                    )
                conversation = Conversation(process, session.printer, forward_input=interactive, terminal=terminal)
                return await converse(conversation, process, session.printer, came_from="exec")

    return session.run(call)


def _say_started(session: Session, process: workspaced.Process) -> None:
    if session.json:
        session.printer.document({"workspace_id": process.workspace_id, "process_id": process.process_id})
    else:
        session.printer.text(process.process_id)
