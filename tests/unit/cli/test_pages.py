"""docs/cli.md says what --help says, and docs/running.md knows every setting."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from google.protobuf.message import Message

from tests.support import cli_reference
from tests.support.doc_commands import REPOSITORY, extract
from workspaced_server.cli import main
from workspaced_server.cli.group import EXIT_CODES
from workspaced_server.config import Config, ConfigError, load

RUNNING = REPOSITORY / "docs" / "running.md"
# Defaults that depend on the machine or on other settings, so that the page says them in words.
IN_WORDS = {
    "state_dir", "local.root", "docker.state", "docker.host", "docker.tls_directory", "docker.allowed_networks",
    "mcp.key_file",
}  # fmt: skip


def test_every_command_has_its_section_and_no_other() -> None:
    sections = cli_reference.sections(cli_reference.PAGE.read_text(encoding="utf-8"))
    assert sections.keys() == dict(cli_reference.commands()).keys()


@pytest.mark.parametrize("name", [name for name, _ in cli_reference.commands()])
def test_options_are_those_of_the_help(name: str) -> None:
    section = cli_reference.sections(cli_reference.PAGE.read_text(encoding="utf-8"))[name]
    wanted = cli_reference.options(dict(cli_reference.commands())[name])
    assert cli_reference.table(section) == wanted, "python -m tests.support.cli_reference writes the tables anew"


def test_the_page_is_as_the_reference_would_write_it() -> None:
    page = cli_reference.PAGE.read_text(encoding="utf-8")
    assert cli_reference.rewrite(page) == page


def test_exit_codes_are_those_of_the_help() -> None:
    page = cli_reference.PAGE.read_text(encoding="utf-8")
    told = dict(re.findall(r"^  (\d+) +(.+)$", EXIT_CODES, re.MULTILINE))
    assert len(told) == 7
    assert dict(re.findall(r"^\| (\d+) \| (.+) \|$", page, re.MULTILINE)) == told


def test_every_command_is_shown_in_use() -> None:
    shown = " ; ".join(command for block in extract(cli_reference.PAGE) for command in block.commands)
    console = cli_reference.PAGE.read_text(encoding="utf-8")
    for name, _ in cli_reference.commands():
        assert f"workspaced {name}" in shown or f"$ workspaced {name}" in console, name


def test_examples_on_the_page_can_be_parsed() -> None:
    """Options that an example uses exist; running them is the matter of tests/e2e."""
    known = dict(cli_reference.commands())
    for block in extract(cli_reference.PAGE):
        for line in block.commands:
            for words in re.findall(r"workspaced ((?:token )?[a-z]+)((?: [^|;)>#]*)?)", line):
                name, rest = words
                if name not in known:
                    continue
                context = click.Context(known[name])
                options = {option for item in known[name].get_params(context) for option in item.opts}
                own = rest.split(" -- ")[0]
                used = set(re.findall(r"(?<!\S)--[a-z-]+(?!\S)", own))
                assert used <= options | {"--"}, (block.where, name, used - options)


# The settings


def rows() -> dict[str, tuple[str, str, str]]:
    """Flag, variable and default by key, as the page's tables have them."""
    cell = r"([^|]*?)"
    pattern = rf"^\| `([a-z_.]+)` \| {cell} \| {cell} \| {cell} \| [^|]+ \|$"
    found = re.findall(pattern, RUNNING.read_text(encoding="utf-8"), re.MULTILINE)
    assert len({key for key, *_ in found}) == len(found), "a key is listed twice"
    return {key: (flag.strip("`"), variable.strip("`"), default.strip("`")) for key, flag, variable, default in found}


def settings(kind: type[Any] = Config, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any], Any]]:
    """Every key with its field and type."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        arguments = () if typing.get_origin(hints[field.name]) is Mapping else typing.get_args(hints[field.name])
        hint = next((item for item in arguments if dataclasses.is_dataclass(item)), None)
        hint = hint or hints[field.name]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            yield from settings(hint, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field, hint


def test_every_setting_is_in_the_tables() -> None:
    switches = {"local.enabled", "docker.enabled"}
    assert rows().keys() == {key for key, *_ in settings()} | switches


def test_defaults_on_the_page_are_the_defaults() -> None:
    told = rows()
    for key, field, _ in settings():
        if key in IN_WORDS:
            continue
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        text = str(default).lower() if isinstance(default, bool) else str(default)
        assert told[key][2] == ("none" if default in (None, "", ()) or default == {} else text), key


def test_variables_and_flags_on_the_page_exist(tmp_path: Path) -> None:
    serve = main.commands["serve"]
    flags = {option for parameter in serve.params for option in parameter.opts}
    values = {"bool": "true", "int": "7", "float": "7.5", "str": "word"}
    special = {
        "listen": "127.0.0.1:1", "admin_listen": "127.0.0.1:2", "log.level": "debug", "log.format": "json",
        "workspaces.default_backend": "docker", "workspaces.sweep": "report", "docker.socket_channel": "never",
    }  # fmt: skip
    for key, (flag, variable, _) in rows().items():
        if key in ("workspaces.templates", "workspaces.pools"):
            assert (flag, variable) == ("-", "-")
            continue
        assert flag in flags, key
        assert variable.removesuffix("__NAME") == "WORKSPACED_" + key.replace(".", "__").upper()
        hint = {name: hint for name, _, hint in settings()}.get(key, bool)
        value = special.get(key) or values.get(getattr(hint, "__name__", ""), str(tmp_path))
        refusal = ""
        try:
            load(environment={"WORKSPACED_STATE_DIR": str(tmp_path), variable: value})
        except ConfigError as error:
            refusal = str(error)
        # What belongs together is refused alone; that it is known and can be read is what counts here.
        assert not refusal or "belong together" in refusal or "needs" in refusal, key


def test_a_template_takes_the_fields_that_the_page_shows(tmp_path: Path) -> None:
    block = next(block for block in extract(RUNNING) if block.name == "configuration")
    text = block.text.split("<<'END'\n")[1].split("\nEND\n")[0]
    (tmp_path / "w.toml").write_text(text)
    config = load(tmp_path / "w.toml", environment={"WORKSPACED_STATE_DIR": str(tmp_path)})
    template = config.workspaces.templates["small"]
    assert isinstance(template, Message)
    assert template.image == "python:3.12-slim"
