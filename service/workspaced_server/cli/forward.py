"""`forward`: ports of this machine that lead into a workspace."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack

import click

from .arguments import Command
from .names import workspace_names
from .session import Session


def parse_ports(text: str) -> tuple[int, int]:
    """Local and remote port: ``REMOTE``, ``LOCAL:REMOTE``, or ``:REMOTE`` for any free local one (0)."""
    local, colon, remote = text.rpartition(":")
    try:
        ports = int(local or 0) if colon else int(remote), int(remote)
    except ValueError:
        ports = -1, -1
    if not (0 <= ports[0] < 65536 and 0 < ports[1] < 65536):
        raise click.BadParameter(f"{text!r} is not REMOTE or LOCAL:REMOTE, with ports from 1 to 65535")
    return ports


@click.command(cls=Command)
@click.argument("workspace_id", metavar="ID", shell_complete=workspace_names)
@click.argument("ports", metavar="[LOCAL:]REMOTE...", nargs=-1, required=True, type=parse_ports)
@click.option("--address", default="127.0.0.1", show_default=True, metavar="IP", help="Local address to listen on.")
@click.option(
    "--host", default="", metavar="HOST", help="Host to connect to, as seen from inside; itself if not given."
)
@click.pass_obj
def forward(session: Session, workspace_id: str, ports: tuple[tuple[int, int], ...], address: str, host: str) -> None:
    """Lead ports of this machine to ports inside a workspace, until Ctrl-C. :REMOTE takes any free local port."""

    async def call() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        async with session.connect() as client, AsyncExitStack() as stack:
            workspace = client.workspace(workspace_id)
            await workspace.info()  # a wrong id is told now, not at the first connection
            for local, remote in ports:
                opened = workspace.forward(remote, local, host=host, local_host=address)
                local = (await stack.enter_async_context(opened)).local_port
                if session.json:
                    session.printer.line(
                        {"event": "listening", "address": address, "port": local, "remote_port": remote}
                    )
                else:
                    session.printer.text(f"{address}:{local} -> {workspace_id}:{remote}")
            await stop.wait()

    session.run(call)
