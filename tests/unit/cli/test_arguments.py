"""Command lines as people write them, and what becomes of the wrong ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from workspaced_server.cli import main
from workspaced_server.cli.arguments import parse_pair, parse_size, parse_time, parse_variable
from workspaced_server.cli.copy import Remote, goes_into, parse
from workspaced_server.cli.execute import execute
from workspaced_server.cli.forward import parse_ports
from workspaced_server.cli.output import visible


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("512", 512), ("512m", 512 << 20), ("2G", 2 << 30), ("1.5GiB", 3 << 29), ("1kb", 1024)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("1.5s", 1.5), ("250ms", 0.25), ("10m", 600), ("1d", 86400)])
def test_times(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "1e9", "ten", "5 parsecs", "1.5.2", "inf"])
def test_numbers_that_are_none(text: str) -> None:
    for read in (parse_size, parse_time):
        with pytest.raises(click.BadParameter):
            read(text)


def test_pairs_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_pair("a=b=c") == ("a", "b=c")
    assert parse_pair("a=") == ("a", "")
    monkeypatch.setenv("FROM_HERE", "value")
    assert parse_variable("FROM_HERE") == ("FROM_HERE", "value")
    monkeypatch.delenv("FROM_HERE")
    for text in ("FROM_HERE", "=x", ""):
        with pytest.raises(click.BadParameter):
            parse_variable(text)


@pytest.mark.parametrize(("text", "ports"), [("80", (80, 80)), ("8080:80", (8080, 80)), (":80", (0, 80))])
def test_ports(text: str, ports: tuple[int, int]) -> None:
    assert parse_ports(text) == ports


@pytest.mark.parametrize("text", ["", ":", "0", "80:", "a:80", "70000", "80:70000", "-1:80", "1:2:3"])
def test_ports_that_are_none(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_ports(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("demo:a/b", Remote("demo", "a/b")),
        ("demo:", Remote("demo", "")),
        ("demo:/etc/hosts", Remote("demo", "/etc/hosts")),
        ("用户:x", Remote("用户", "x")),
        ("./demo:a", Path("./demo:a")),
        ("/tmp/a:b", Path("/tmp/a:b")),
        ("plain", Path("plain")),
        (":x", Path(":x")),
    ],
)
def test_sides_of_a_copy(text: str, meant: Remote | Path) -> None:
    assert parse(text) == meant


def test_destinations_to_copy_into() -> None:
    assert [name for name in ("", "a", "a/", ".", "a/.", "..", "a/b") if goes_into(name)] == [
        "",
        "a/",
        ".",
        "a/.",
        "..",
    ]


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("demo ls -la", ("ls", "-la")),
        ("-it demo bash -c x", ("bash", "-c", "x")),
        ("--cwd dir demo ls --cwd here", ("ls", "--cwd", "here")),
        ("-w dir demo -- ls -- x", ("ls", "--", "x")),
        ("demo --id p ls -i", ("ls", "-i")),
        ("demo -eA=b env -e", ("env", "-e")),
        ("demo --timeout=5 sleep --json", ("sleep", "--json")),
    ],
)
def test_options_of_the_program_are_its_own(words: str, command: tuple[str, ...]) -> None:
    context = execute.make_context("exec", words.split(), parent=click.Context(main))
    assert context.params["workspace_id"] == "demo"
    assert context.params["command"] == command


def test_a_stranger_cannot_move_the_cursor() -> None:
    assert visible("a\x1b[2Jb\nc\u202ed") == "a\\x1b[2Jb\\nc\\u202ed"
    assert visible("名前 ü") == "名前 ü"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "workspaced_server", *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_wrong_command_line_is_one_line_and_2() -> None:
    for words in (["no-such"], ["ls", "--no-such"], ["cp", "a"], ["init", "--memory", "much"]):
        done = run(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("workspaced: ")
        assert done.stderr.count("\n") == 1
        assert "--help" in done.stderr
    error = json.loads(run("ls", "--json", "--no-such").stderr)["error"]
    assert error["exit_code"] == 2


def test_version() -> None:
    assert run("--version").stdout.startswith("workspaced ")


def test_help_needs_no_server_and_nothing_of_it() -> None:
    """It is what a shell asks for at each key of a completion, so nothing heavy may be imported for it."""
    code = (
        "import sys; from workspaced_server.cli import main; main.main(['--help'], standalone_mode=False);"
        "sys.exit(','.join({'grpc', 'docker', 'sqlalchemy', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.strip() == ""
    assert "Agent workspaces" in done.stdout
