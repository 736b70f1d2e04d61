"""What command lines are made of: options that every command takes, and the types of values."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from .session import DEFAULT_SERVER, Session


def version_text() -> str:
    """The line that ``--version`` prints."""
    try:
        return f"workspaced {version('workspaced-server')}"
    except PackageNotFoundError:
        return "workspaced (not installed)"


def _remember(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Keep a global option in the session, if it was given here: the command's own wins over the one before it."""
    session = context.ensure_object(Session)
    assert parameter.name is not None
    if value is not None and value is not False:
        setattr(session, parameter.name, value)


def SHARED_OPTIONS(*, hidden: bool) -> list[click.Parameter]:  # noqa: N802  (it makes a constant list anew)
    """Options that are accepted before and after the command. Environment variables are read before it only."""

    def option(*names: str, envvar: str | None = None, show: bool = False, **extra: Any) -> click.Option:
        return click.Option(
            names,
            expose_value=False,
            callback=_remember,
            envvar=None if hidden else envvar,
            show_envvar=envvar is not None and not hidden,
            hidden=hidden and not show,
            is_eager=True,
            **extra,
        )

    file = click.Path(path_type=Path, dir_okay=False)
    return [
        option(
            "--server",
            metavar="ADDRESS",
            envvar="WORKSPACED_SERVER",
            help=f"Server to use; {DEFAULT_SERVER} if not given.",
        ),
        option("--token", metavar="TOKEN", envvar="WORKSPACED_TOKEN", help="Token to send."),
        option(
            "--token-file",
            type=file,
            envvar="WORKSPACED_CLIENT_TOKEN_FILE",
            help="File with the token; ~/.config/workspaced/token if it exists.",
        ),
        option("--tls", is_flag=True, envvar="WORKSPACED_CLIENT_TLS", help="Speak TLS; implied by the options below."),
        option("--tls-ca", type=file, envvar="WORKSPACED_CLIENT_TLS_CA", help="Authorities to trust (PEM)."),
        option("--tls-cert", type=file, envvar="WORKSPACED_CLIENT_TLS_CERT", help="Certificate of this client (PEM)."),
        option("--tls-key", type=file, envvar="WORKSPACED_CLIENT_TLS_KEY", help="Key of this client (PEM)."),
        option(
            "--tls-server-name",
            metavar="NAME",
            envvar="WORKSPACED_CLIENT_TLS_SERVER_NAME",
            help="Name to expect in the server's certificate.",
        ),
        option(
            "--plaintext",
            is_flag=True,
            envvar="WORKSPACED_CLIENT_PLAINTEXT",
            help="Send the token without TLS, over a network that you trust.",
        ),
        option("--json", is_flag=True, show=True, help="Print JSON: one document, or a line for each event."),
    ]


class Command(click.Command):
    """A command that takes the shared options as well. Only ``--json`` is shown in its help."""

    def __init__(self, *args: Any, **extra: Any) -> None:
        super().__init__(*args, **extra)
        taken = {name for parameter in self.params for name in parameter.opts}
        self.params += [shared for shared in SHARED_OPTIONS(hidden=True) if not taken & set(shared.opts)]


class ProgramCommand(Command):
    """A command whose last argument is a program with options of its own: nothing after its name is ours."""

    own_arguments = 1

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._delimit(args, self.own_arguments))

    def _delimit(self, args: Sequence[str], own: int) -> list[str]:
        """``args`` with ``--`` before the first word that follows ``own`` positional ones."""
        takes_value = {
            name
            for parameter in self.params
            if isinstance(parameter, click.Option) and not parameter.is_flag and not parameter.count
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        position = 0
        while position < len(args):
            word = args[position]
            if word == "--":
                break
            if word.startswith("--"):
                position += word in takes_value  # `--name=value` is one word
            elif word.startswith("-") and len(word) > 1:
                position += f"-{word[-1]}" in takes_value and not any(f"-{c}" in takes_value for c in word[1:-1])
            elif own:
                own -= 1
            else:
                return [*args[:position], "--", *args[position:]]
            position += 1
        return list(args)


def parse_size(text: str) -> int:
    """Bytes, with an optional unit: ``512m``, ``2g``, ``1.5GiB``. Units are powers of 1024."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?)(?:i?b)?", text.strip().lower())
    if not match:
        raise click.BadParameter(f"{text!r} is no size; write for example 512m or 2g")
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2] or " "))


def parse_time(text: str) -> float:
    """Seconds, with an optional unit: ``90``, ``1.5s``, ``10m``, ``2h``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(ms|s|m|h|d)?", text.strip().lower())
    if not match:
        raise click.BadParameter(f"{text!r} is no time; write for example 90s, 10m or 2h")
    return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2] or "s"]


def parse_pair(text: str) -> tuple[str, str]:
    """``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


def parse_variable(text: str) -> tuple[str, str]:
    """``NAME=VALUE``, or ``NAME`` for a variable that is to have the value it has here."""
    if not text or "=" in text:
        return parse_pair(text)
    if text not in os.environ:
        raise click.BadParameter(f"{text} is not set here; write {text}=VALUE")
    return text, os.environ[text]
