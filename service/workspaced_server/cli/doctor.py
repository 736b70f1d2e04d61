"""`doctor`: what is installed, what answers, and why not."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .arguments import Command
from .failure import FAILED, Failure, describe
from .serve import load_config
from .session import Session

if TYPE_CHECKING:
    import workspaced
    from workspaced_server.config import Config

ENGINE_SECONDS = 5
CONFIGURED_BY_DEFAULT = ("local", "docker")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. ``status`` is ok, off, warning, or failed for what is needed and broken."""

    name: str
    status: str
    detail: str


@click.command(cls=Command)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="WORKSPACED_CONFIG",
    help="The server's configuration.",
)
@click.option("--state-dir", type=click.Path(path_type=Path, file_okay=False), help="The server's state directory.")
@click.pass_obj
def doctor(session: Session, config: Path | None, state_dir: Path | None) -> int:
    """Check the installation, the configuration, the Docker engine, the server and its backends.

    Ends with 1 when something that is needed is broken.
    """
    findings = [*_installed(), *_here(session, config, state_dir)]
    if session.json:
        session.printer.document({"ok": not _broken(findings), "findings": findings})
    else:
        session.printer.table(("", "CHECK", "FOUND"), [(item.status, item.name, item.detail) for item in findings])
    return FAILED if _broken(findings) else 0


def _broken(findings: list[Finding]) -> bool:
    return any(item.status == "failed" for item in findings)


def _installed() -> list[Finding]:
    found = [Finding("python", "ok", f"{platform.python_version()} ({sys.executable})")]
    for name in ("workspaced-server", "workspaced", "grpcio", "protobuf"):
        try:
            found.append(Finding(name, "ok", version(name)))
        except PackageNotFoundError:
            found.append(Finding(name, "warning", "runs from a source tree, without being installed"))
    return found


def _here(session: Session, path: Path | None, state_dir: Path | None) -> list[Finding]:
    """The server, and what a server needs on this machine when it is one of this machine."""
    from workspaced.connection import is_loopback

    async def call() -> workspaced.ServerInfo:
        async with session.connect(patient=False) as client:
            return await client.server_info(probe=True)

    server: list[Finding] = []
    answers = False
    try:
        info = session.run(call)
    except Exception as error:
        failure = describe(error)
        if failure is None:
            raise
        hint = f". {failure.hint[:1].upper()}{failure.hint[1:]}" if failure.hint else ""
        server = [Finding("server", "failed", f"{session.server}: {failure.message}{hint}")]
    else:
        answers = True
        who = f"you are {info.principal} ({', '.join(info.scopes)})"
        server = [Finding("server", "ok", f"{session.server}: version {info.version}, {who}"), *_backends(info)]
    if not is_loopback(session.server) and path is None and state_dir is None:
        return server
    # A server that answers has what it needs, whatever this user may see of it.
    needed = "warning" if answers else "failed"
    return [*_configuration(path, state_dir, needed), *server]


def _backends(info: workspaced.ServerInfo) -> list[Finding]:
    found = [
        Finding(
            f"backend {backend.backend}",
            "ok" if backend.available else "warning" if backend.backend in CONFIGURED_BY_DEFAULT else "off",
            (
                f"available {backend.version}".strip()
                if backend.available
                else backend.unavailable_reason or "not available"
            )
            + (" (default)" if backend.backend == info.default_backend else ""),
        )
        for backend in info.backends
    ]
    if not any(backend.available for backend in info.backends):
        found.append(Finding("backends", "failed", "none is available, so no workspace can be made"))
    return found


def _configuration(path: Path | None, state_dir: Path | None, needed: str) -> list[Finding]:
    try:
        config = load_config(path, {"state_dir": state_dir})
    except Failure as failure:
        return [Finding("configuration", needed, str(failure))]
    source = path or os.environ.get("WORKSPACED_CONFIG") or "no file, only defaults and the environment"
    return [Finding("configuration", "ok", str(source)), _state(config, needed), _engine(config)]


def _state(config: Config, needed: str) -> Finding:
    directory = config.state_dir
    existing = next(parent for parent in (directory, *directory.parents) if parent.exists())
    if not existing.is_dir():
        return Finding("state directory", needed, f"{directory}: {existing} is no directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        return Finding("state directory", needed, f"{directory}: not writable for you; --state-dir names another")
    return Finding("state directory", "ok", f"{directory}{'' if existing == directory else ' (will be made)'}")


def _engine(config: Config) -> Finding:
    """Whether the Docker engine answers. Local workspaces do without, so its absence breaks nothing."""
    if config.docker is None:
        return Finding("docker engine", "ok", "switched off in the configuration")
    host = config.docker.host

    def ask() -> str:
        import docker

        client = (
            docker.from_env(timeout=ENGINE_SECONDS) if not host else docker.DockerClient(host, timeout=ENGINE_SECONDS)
        )
        try:
            return str(client.version()["Version"])
        finally:
            client.close()

    async def call() -> str:
        return await asyncio.wait_for(asyncio.to_thread(ask), 2 * ENGINE_SECONDS)

    where = host or os.environ.get("DOCKER_HOST") or "the usual socket"
    try:
        return Finding("docker engine", "ok", f"{where}: version {asyncio.run(call())}")
    except ImportError:
        return Finding("docker engine", "warning", "the Python package docker is not installed")
    except TimeoutError:
        return Finding("docker engine", "warning", f"{where}: no answer within {2 * ENGINE_SECONDS} s")
    except Exception as error:  # noqa: BLE001  (whatever the SDK raises is the answer to the question)
        return Finding("docker engine", "warning", f"{where}: {' '.join(str(error).split())}")
