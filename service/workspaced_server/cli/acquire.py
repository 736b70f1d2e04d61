"""`acquire`: the workspace of a user, an agent or a session."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from .arguments import Command, parse_time, parse_variable
from .initialize import BACKENDS
from .session import Session


@click.command(cls=Command)
@click.option("--user", "user_id", required=True, metavar="USER", help="Whose workspace.")
@click.option("--agent", "agent_id", metavar="AGENT", help="Of this agent of the user.")
@click.option("--session", "session_id", metavar="SESSION", help="Of this session of the agent.")
@click.option(
    "--template", default="", metavar="NAME", help="Template of the server's configuration; `default` if not given."
)
@click.option("--backend", type=click.Choice(BACKENDS), help="Where it runs, unless the template says it.")
@click.option("--image", default="", metavar="IMAGE", help="Container image, unless the template names it.")
@click.option(
    "-e", "--env", multiple=True, type=parse_variable, metavar="NAME[=VALUE]", help="Environment of every process."
)
@click.option(
    "--lease", type=parse_time, default="60s", metavar="TIME", help="How long the lease lasts; a minute if not given."
)
@click.option("--hold", is_flag=True, help="Keep it, renewing the lease, until Ctrl-C or the end of standard input.")
@click.pass_obj
def acquire(session: Session, /, **given: Any) -> None:
    """Find or make the workspace that belongs to a user (PER_USER), to their agent (--agent, PER_AGENT) or to a session
    of it (--session, PER_SESSION), and print its id.

    Its lease keeps it from being closed for idleness for as long as it lasts.
    """
    if given["session_id"] is not None and given["agent_id"] is None:
        raise click.UsageError("--session belongs to an --agent")
    policy = (
        "per_session"
        if given["session_id"] is not None
        else "per_agent"
        if given["agent_id"] is not None
        else "per_user"
    )

    async def call() -> None:
        async with session.connect() as client:
            workspace = await client.acquire(
                policy=policy,  # type: ignore[arg-type]  # one of the three words
                user_id=given["user_id"],
                agent_id=given["agent_id"],
                session_id=given["session_id"],
                template=given["template"],
                backend=given["backend"],
                image=given["image"],
                env=dict(given["env"]) or None,
                lease_duration=given["lease"],
            )
            if session.json:
                session.printer.line(
                    {
                        "workspace_id": workspace.id,
                        "created": workspace.created,
                        "lease_id": workspace.lease_id,
                        "lease_expire_time": workspace.lease_expire_time,
                    }
                )
            else:
                session.printer.text(workspace.id)
            if given["hold"]:
                try:
                    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
                finally:
                    await workspace.release()

    session.run(call)
