"""`token`: who may use a server. Works on the token file, so on the server's machine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from .arguments import Command
from .failure import NOT_FOUND, Failure
from .serve import load_config
from .session import Session

SCOPES = ("read", "execute", "manage", "admin")

file_option = click.option(
    "--file",
    "--token-file",  # as `serve` calls it; the shared option of this name is a client's token, of no use here
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Token file; that of the server's configuration, else `tokens` in its state directory, if not given.",
)
config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="WORKSPACED_CONFIG",
    help="The server's configuration.",
)


@click.group()
def token() -> None:
    """Make, list and revoke the tokens of a server.

    The file holds hashes only, and a running server reads it again when it changes.
    """


def _locate(path: Path | None, config: Path | None) -> Path:
    if path is not None:
        return path
    loaded = load_config(config)
    return loaded.auth.token_file or loaded.state_dir / "tokens"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []


def _entry(line: str) -> tuple[str, str] | None:
    """Principal and scopes of a line; None for a comment."""
    fields = line.split()
    return (fields[0], fields[1]) if len(fields) == 3 and not line.lstrip().startswith("#") else None


def _replace(path: Path, lines: list[str]) -> None:
    """Write the whole file at once, readable by its owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        if path.exists():
            found = path.stat()
            os.fchmod(descriptor, found.st_mode & 0o777)
            if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()) and os.geteuid() == 0:
                os.fchown(descriptor, found.st_uid, found.st_gid)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@token.command(cls=Command)
@click.argument("name")
@click.option(
    "--scope", multiple=True, metavar="SCOPE", help=f"{', '.join(SCOPES)}; read, execute and manage if not given."
)
@file_option
@config_option
@click.pass_obj
def new(session: Session, name: str, scope: tuple[str, ...], path: Path | None, config: Path | None) -> None:
    """Make a token for NAME, who owns what is made with it. It is printed once, and stored as a hash."""
    from workspaced_server.api.auth import new_token
    from workspaced_server.config import ConfigError

    path = _locate(path, config)
    scopes = [part.strip() for word in scope for part in word.split(",") if part.strip()]
    try:
        made = new_token(name, scopes or SCOPES[:3])
    except ConfigError as error:
        raise click.UsageError(str(error))
    _replace(path, [*_lines(path), made.line])
    if session.json:
        session.printer.document(
            {"name": name, "scopes": made.line.split()[1].split(","), "token": made.token, "file": path}
        )
    else:
        session.printer.text(made.token)
        session.printer.note(f"Added to {path}. `workspaced serve --token-file {path}` asks for tokens.")


@token.command("ls", cls=Command)
@file_option
@config_option
@click.pass_obj
def list_tokens(session: Session, path: Path | None, config: Path | None) -> None:
    """List who has a token, with which scopes."""
    found = [entry for line in _lines(_locate(path, config)) if (entry := _entry(line)) is not None]
    if session.json:
        session.printer.document([{"name": name, "scopes": scopes.split(",")} for name, scopes in found])
    else:
        session.printer.table(("NAME", "SCOPES"), found)


@token.command("rm", cls=Command)
@click.argument("name")
@file_option
@config_option
@click.pass_obj
def remove(session: Session, name: str, path: Path | None, config: Path | None) -> None:
    """Revoke all tokens of NAME, within a second. What it owns stays."""
    path = _locate(path, config)
    lines = _lines(path)
    kept = [line for line in lines if (_entry(line) or ("",))[0] != name]
    removed = len(lines) - len(kept)
    if not removed:
        raise Failure(f"{name!r} has no token in {path}", "`workspaced token ls` shows who has", NOT_FOUND)
    _replace(path, kept)
    if session.json:
        session.printer.document({"name": name, "removed": removed, "file": path})
    else:
        session.printer.text(f"{name}: {removed} {'token' if removed == 1 else 'tokens'} revoked")
