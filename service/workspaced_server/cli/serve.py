"""`serve`: the server itself. Nothing of it is imported before it is asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .arguments import Command, parse_pair
from .failure import USAGE, Failure
from .session import Session

if TYPE_CHECKING:
    from workspaced_server.config import Config

file = click.Path(path_type=Path, dir_okay=False)


def load_config(path: Path | None, flags: dict[str, object] | None = None) -> Config:
    """The server's configuration from file, environment and flags. Raises `Failure` naming the setting."""
    from workspaced_server import config

    try:
        return config.load(path, flags=flags)
    except config.ConfigError as error:
        raise Failure(str(error), "`workspaced serve --help` and docs/running.md explain the settings", USAGE)


@click.command(cls=Command)
@click.option("--listen", metavar="ADDRESS", help="HOST:PORT or unix:/PATH to listen on; 127.0.0.1:7420 if not given.")
@click.option("--state-dir", type=click.Path(path_type=Path, file_okay=False), help="Where all state is kept.")
@click.option("--config", type=file, envvar="WORKSPACED_CONFIG", show_envvar=True, help="TOML file with settings.")
@click.option("--token-file", type=file, help="Ask for tokens; `workspaced token new` makes them.")
@click.option("--tls-cert", type=file, help="Certificate of the server (PEM).")
@click.option("--tls-key", type=file, help="Key of the server (PEM).")
@click.option("--tls-client-ca", type=file, help="Authorities of client certificates (PEM).")
@click.option("--admin-listen", metavar="ADDRESS", help="Loopback address for channelz and health.")
@click.option("--insecure", is_flag=True, default=None, help="Listen on any address, even without TLS or tokens.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    type=parse_pair,
    metavar="KEY=VALUE",
    help="Any other setting, for example docker.enabled=false.",
)
@click.option("--check", is_flag=True, help="Print the configuration it would run with, and exit.")
@click.pass_obj
def serve(
    session: Session,
    listen: str | None,
    state_dir: Path | None,
    config: Path | None,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    admin_listen: str | None,
    insecure: bool | None,
    settings: tuple[tuple[str, str], ...],
    check: bool,
) -> None:
    """Run the server until SIGTERM or Ctrl-C. Workspaces and what runs in them go on after its end.

    Every setting can also be given in the TOML file, and as an environment variable: WORKSPACED_ and its name in
    capitals, with two underscores for a dot (WORKSPACED_LISTEN, WORKSPACED_DOCKER__ENABLED). An option wins over the
    environment, the environment over the file.
    """
    flags: dict[str, object] = {
        "listen": listen,
        "state_dir": state_dir,
        "auth.token_file": token_file,
        "tls.certificate": tls_cert,
        "tls.key": tls_key,
        "tls.client_ca": tls_client_ca,
        "admin_listen": admin_listen,
        "insecure": insecure,
        "log.format": "json" if session.json and not check else None,
        **dict(settings),
    }
    loaded = load_config(config, flags)
    if check:
        _print_checked(session, loaded)
        return
    from workspaced_server import serve as server
    from workspaced_server.config import ConfigError

    try:
        server.run(loaded)
    except ConfigError as error:
        raise Failure(str(error), exit_code=USAGE)


def _print_checked(session: Session, loaded: Config) -> None:
    """The effective configuration; what it names but cannot be read is an error."""
    from workspaced_server import config
    from workspaced_server.api.auth import Authenticator

    data = config.describe(loaded)
    for name, path in (
        ("tls.certificate", loaded.tls.certificate),
        ("tls.key", loaded.tls.key),
        ("tls.client_ca", loaded.tls.client_ca),
    ):
        if path is not None and not os.access(path, os.R_OK):
            raise Failure(f"{name}: {path} cannot be read", exit_code=USAGE)
    try:
        Authenticator(loaded.auth)
    except config.ConfigError as error:
        raise Failure(str(error), exit_code=USAGE)
    if session.json:
        session.printer.document(data)
    else:
        session.printer.fields(data)
