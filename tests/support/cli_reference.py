"""The tables of options in docs/cli.md, from the command itself.

``python -m tests.support.cli_reference`` writes them into the page anew, after the command has changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from workspaced_server.cli import main

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "cli.md"
EVERYWHERE = frozenset({"--json", "--help"})  # said once, with the options of `workspaced` itself

_SECTION = re.compile(r"^## `workspaced ([a-z ]+)`$", re.MULTILINE)
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
_HEAD = "| option | meaning |\n|---|---|\n"


def commands(group: click.Group = main, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by the words one types after ``workspaced``."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def usage(name: str, command: click.Command) -> str:
    """The line of ``--help`` that says what follows the command's name."""
    context = click.Context(command, info_name=f"workspaced {name}")
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def options(command: click.Command) -> str:
    """The rows for a command's options, as ``--help`` shows them; empty when it has none of its own."""
    context = click.Context(command, info_name="workspaced")
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or (command is not main and EVERYWHERE & set(parameter.opts)):
            continue
        names, text = (part.replace("|", "\\|") for part in record)
        rows.append(f"| `{names}` | {text.replace('  [', ' [')} |\n")
    return _HEAD + "".join(rows) if rows else ""


def sections(page: str) -> dict[str, str]:
    """The text below each command's heading, up to the next heading."""
    parts = _SECTION.split(page)
    return {
        name: re.split(r"^## ", text, flags=re.MULTILINE)[0]
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def table(section: str) -> str:
    """The table of options in a section; empty when there is none."""
    found = [text for text in _TABLE.findall(section) if text.startswith(_HEAD)]
    return found[0] if found else ""


def rewrite(page: str) -> str:
    """The page with its tables of options as they ought to be. A section without one gets it at its end."""
    for name, command in [("", main), *commands()]:
        wanted = options(command)
        section = sections(page)[name] if name else page.partition("\n## `workspaced ")[0]
        present = table(section)
        if present:
            changed = section.replace(present, wanted)
        else:
            changed = f"{section.rstrip()}\n\n{wanted}\n" if wanted else section
        page = page.replace(section, changed, 1)
    return page.rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(rewrite(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
