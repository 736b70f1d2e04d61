"""`init`: a workspace, made or brought back, with its phases shown while it takes time."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from .arguments import Command, parse_pair, parse_size, parse_time, parse_variable
from .names import workspace_names
from .output import plain, visible
from .session import Session

if TYPE_CHECKING:
    import workspaced

BACKENDS = ("local", "docker", "e2b", "daytona", "kubernetes", "opensandbox")
PHASES = {
    "QUEUED": "Waiting for a slot",
    "PULLING_IMAGE": "Pulling the image",
    "CREATING": "Creating the sandbox",
    "STARTING": "Starting the sandbox",
    "CONNECTING": "Starting the guest",
    "INSTALLING_PYTHON": "Installing python3",
}


@click.command(cls=Command)
@click.option(
    "--id", "workspace_id", metavar="ID", shell_complete=workspace_names, help="Its id; made up if not given."
)
@click.option("--backend", type=click.Choice(BACKENDS), help="Where it runs; the server's default if not given.")
@click.option("--image", default="", metavar="IMAGE", help="Container image; any with python3 3.9 or newer.")
@click.option("--template", default="", metavar="NAME", help="Template of the server's configuration to start from.")
@click.option(
    "-e", "--env", multiple=True, type=parse_variable, metavar="NAME[=VALUE]", help="Environment of every process."
)
@click.option("-l", "--label", multiple=True, type=parse_pair, metavar="NAME=VALUE", help="Label, to find it by.")
@click.option("--cpus", type=click.FloatRange(min=0, min_open=True), metavar="N", help="CPUs, for example 1.5.")
@click.option("--memory", type=parse_size, metavar="SIZE", help="Memory, for example 512m or 2g.")
@click.option("--disk", type=parse_size, metavar="SIZE", help="Disk.")
@click.option("--pids", type=click.IntRange(1), metavar="N", help="Processes and threads.")
@click.option("--network", metavar="POLICY", help="default, none, or the hosts to allow, separated by commas.")
@click.option("--user", default="", metavar="USER", help="User, or uid:gid, that processes run as.")
@click.option("--workdir", default="", metavar="DIR", help="Its directory inside the sandbox.")
@click.option("--persistent/--ephemeral", default=None, help="Whether files outlive close; else as the backend can.")
@click.option("--idle-timeout", type=parse_time, metavar="TIME", help="Close it when it was not used for so long.")
@click.option("--install-python", is_flag=True, help="Install python3 where the image has none.")
@click.option("--host-workdir", metavar="DIR", help="Docker: directory of the engine's host to mount as its directory.")
@click.option("--runtime", metavar="NAME", help="Docker: container runtime, for example runsc.")
@click.option("--read-only-root", is_flag=True, help="Docker: mount the root file system read-only.")
@click.option("--directory", metavar="DIR", help="Local: directory of the server's machine to use.")
@click.pass_obj
def init(session: Session, /, **given: Any) -> None:
    """Make a workspace, wait until it can be used, and print its id.

    With the --id of one that exists: come back to it, resumed when it was closed, recovered when its sandbox was lost.
    Options may then be left out; other options than it was made with are refused.
    """
    arguments = _arguments(given)
    # Phases are watched by id, so there has to be one before the server could make it up.
    workspace_id = given["workspace_id"] or f"w-{secrets.token_hex(4)}"

    async def call() -> workspaced.WorkspaceInfo:
        async with session.connect() as client:
            with _progress(session) as show:
                workspace = await client.initialize(workspace_id=workspace_id, on_progress=show, **arguments)
            return await workspace.info()

    info = session.run(call)
    if session.json:
        session.printer.line({"event": "ready", "workspace": plain(info)})
    else:
        session.printer.text(info.workspace_id)


def _arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of ``Client.initialize`` for the options that were given."""
    resources = {
        "cpu_millis": round(given["cpus"] * 1000) if given["cpus"] else 0,
        "memory_bytes": given["memory"] or 0,
        "disk_bytes": given["disk"] or 0,
        "pids": given["pids"] or 0,
    }
    docker = {
        name: given[name] for name in ("host_workdir", "runtime", "read_only_root") if given[name] not in (None, False)
    }
    network = given["network"]
    if network not in (None, "default", "none"):
        network = [host.strip() for host in network.split(",") if host.strip()]
    return {
        "backend": given["backend"],
        "image": given["image"],
        "template": given["template"],
        "env": dict(given["env"]),
        "labels": dict(given["label"]),
        "resources": resources if any(resources.values()) else None,
        "network": network,
        "user": given["user"],
        "workdir": given["workdir"],
        "persistent": given["persistent"],
        "idle_timeout": given["idle_timeout"],
        "install_python": given["install_python"],
        "docker": docker or None,
        "local": {"directory": given["directory"]} if given["directory"] else None,
    }


@contextmanager
def _progress(session: Session) -> Iterator[Callable[[workspaced.WorkspaceInfo], None]]:
    """Shows phases: in place on a terminal, else a line for each on standard error, with ``--json`` as events."""
    if session.json:
        yield lambda info: _event(session, info)
    elif not sys.stderr.isatty():
        yield _Lines().show
    else:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        bar = BarColumn(bar_width=24)
        with Progress(
            SpinnerColumn(), TextColumn("{task.description}"), bar, TimeElapsedColumn(),
            console=session.printer.notes, transient=True,
        ) as progress:  # fmt: skip
            task = progress.add_task("Asking the server", total=None)

            def show(info: workspaced.WorkspaceInfo) -> None:
                step = info.progress
                if step is None:
                    return
                from rich.markup import escape

                text = escape(_phase(step))
                progress.update(
                    task, description=text, total=None if step.fraction is None else 1.0, completed=step.fraction or 0
                )

            yield show


def _phase(step: workspaced.Progress) -> str:
    text = PHASES.get(step.phase.value, step.phase.value.lower().replace("_", " "))
    return f"{text}: {visible(step.message)}" if step.message else text


def _event(session: Session, info: workspaced.WorkspaceInfo) -> None:
    session.printer.line(
        {"event": "progress", "workspace_id": info.workspace_id, "state": info.state, "progress": info.progress}
    )


class _Lines:
    """A line when a phase begins, and at most one a second within it."""

    def __init__(self) -> None:
        self._last: tuple[str, float] = ("", 0.0)

    def show(self, info: workspaced.WorkspaceInfo) -> None:
        step = info.progress
        if step is None:
            return
        phase, at = self._last
        now = time.monotonic()
        if step.phase.value == phase and (now - at < 1.0 or not step.message):
            return
        self._last = (step.phase.value, now)
        print(_phase(step), file=sys.stderr, flush=True)
