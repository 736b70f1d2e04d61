"""`completion`: the script that makes a shell complete commands, options and ids."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .arguments import Command
from .session import Session


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(workspaced completion bash)"        in ~/.bashrc
    zsh:   eval "$(workspaced completion zsh)"         in ~/.zshrc
    fish:  workspaced completion fish | source         in ~/.config/fish/config.fish
    """
    root = context.find_root().command
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(root, {}, "workspaced", "_WORKSPACED_COMPLETE").source()
    session = context.ensure_object(Session)
    if session.json:
        session.printer.document({"shell": shell, "script": script})
    else:
        session.printer.text(script)
