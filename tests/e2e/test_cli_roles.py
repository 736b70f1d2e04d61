"""The commands about what an agent has: exit codes, JSON, errors, and what is drawn on a terminal."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_cli import Cli, cli, docker, local
from tests.support.server import ROOT

__all__ = ["cli", "docker", "local"]
MCP_SERVER = str(ROOT / "tests" / "support" / "mcp_server.py")


def refusal(cli: Cli, *arguments: str, code: int = 1) -> dict[str, Any]:
    """The error that a command tells programs."""
    error: dict[str, Any] = json.loads(cli.run(*arguments, "--json", code=code).stderr)["error"]
    return error


def test_a_call_ends_with_what_the_tool_says(cli: Cli, local: str) -> None:
    done = cli.run("call", local, "Bash", "command=echo out; exit 3", code=1)
    assert b"out\n" in done.stdout
    assert b"[exit code 3]" in done.stdout
    assert cli.run("call", local, "Bash", '{"command": "true"}').stdout
    # Texts stay texts, and := gives what is not one.
    cli.run("call", local, "Write", "file_path=f", "content=false")
    assert b"false" in cli.run("call", local, "Read", "file_path=f", "limit:=1").stdout
    assert b"limit" in cli.run("call", local, "Read", "file_path=f", "limit=1", code=1).stdout
    assert b"no tool 'Nope'" in cli.run("call", local, "Nope", code=4).stderr


@pytest.mark.parametrize("wrong", ["command", "=x", "limit:={", "{not json"])
def test_what_is_no_input_is_told_before_anything_runs(cli: Cli, local: str, wrong: str) -> None:
    assert b"JSON" in cli.run("call", local, "Bash", wrong, code=2).stderr


def test_events_of_a_call_are_lines_of_json(cli: Cli, local: str) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(32)
    cli.run("call", local, "Bash", f"command=printf %s {base64.b64encode(picture).decode()} | base64 -d > p.png")
    lines = [
        json.loads(line) for line in cli.run("call", local, "Bash", "command=echo 1", "--json").stdout.splitlines()
    ]
    assert lines[0]["event"] == "process"
    assert lines[-1]["event"] == "result"
    assert lines[-1]["is_error"] is False
    shown = [
        json.loads(line) for line in cli.run("call", local, "Read", "file_path=p.png", "--json").stdout.splitlines()
    ]
    (block,) = [block for block in shown[-1]["blocks"] if "media_type" in block]
    assert base64.b64decode(block["data"]["data_base64"]) == picture


def test_mcp_servers(cli: Cli, local: str) -> None:
    said = cli.run("mcp", "add", local, "test", sys.executable, MCP_SERVER, "--slow", "0").stdout
    assert b"test: " in said
    assert cli.run("mcp", "call", local, "test", "echo", "text=hello there").stdout == b"hello there\n"
    missing = cli.run("mcp", "call", local, "test", "nope", code=4)
    assert b"It has" in missing.stderr
    assert b"progress" not in missing.stderr
    slow = cli.run("mcp", "call", local, "test", "slow", "seconds:=0.1", "steps:=2")
    assert b"1/2 step 1" in slow.stderr
    (listed,) = cli.json("mcp", "ls", local)
    assert (listed["state"], listed["server_name"]) == ("ready", "support")
    assert cli.json("mcp", "ls", local, "--agent", "other") == []
    taken = refusal(cli, "mcp", "add", "--http", "http://127.0.0.1:1/mcp", local, "test")
    assert taken["reason"] == "MCP_EXISTS"
    # What follows the program is the program's, --json too.
    failed = cli.run("--json", "mcp", "add", local, "bad", "sh", "-c", "echo why >&2; exit 9", code=1)
    error = json.loads(failed.stderr)["error"]
    assert error["reason"] == "MCP_START_FAILED"
    assert "why" in error["metadata"]["stderr_tail"]
    assert b"program" in cli.run("mcp", "add", local, "neither", code=2).stderr
    assert b"--workspace" in cli.run("mcp", code=2).stderr
    cli.run("mcp", "rm", local, "test")
    cli.run("mcp", "rm", local, "test", code=4)
    cli.run("mcp", "rm", local, "test", "--force")


def test_secrets_of_mcp_servers_are_not_shown(cli: Cli, local: str) -> None:
    cli.run("mcp", "add", local, "secret", "-e", "KEY=hidden-value", sys.executable, MCP_SERVER)
    try:
        for arguments in (["mcp", "ls", local], ["mcp", "ls", local, "--json"], ["ps", local, "--json"]):
            assert b"hidden-value" not in cli.run(*arguments).stdout
    finally:
        cli.run("mcp", "rm", local, "secret")


def test_skills(cli: Cli, local: str, tmp_path: Path) -> None:
    added = cli.run("skill", "add", local, str(ROOT / "examples" / "skills" / "greeting"))
    assert added.stdout == b"greeting\n"
    assert cli.run("skill", "show", local, "greeting").stdout.startswith(b"---\n")
    assert b"SKILL.md" in cli.run("skill", "show", local, "greeting", "--files").stdout
    (tmp_path / "SKILL.md").write_text("nothing in front\n")
    assert refusal(cli, "skill", "add", local, str(tmp_path))["reason"] == "SKILL_INVALID"
    cli.run("skill", "add", local, str(tmp_path / "missing"), code=2)
    cli.run("call", local, "Bash", "command=mkdir -p skills/default/broken && echo x > skills/default/broken/SKILL.md")
    assert b"broken" in cli.run("skill", "ls", local).stderr
    cli.run("skill", "rm", local, "greeting")
    cli.run("skill", "show", local, "greeting", code=4)


def test_offloads(cli: Cli, local: str) -> None:
    cli.run("call", local, "Bash", "command=seq 1 5000", "--offload-over", "1k", "--session", "s")
    (stored,) = cli.json("offload", "ls", local, "--session", "s")
    assert stored["kind"] == "tool_result"
    assert b"\n4999\n" in cli.run("offload", "show", local, stored["path"]).stdout
    assert b"\n4999\n" in cli.run("offload", "show", local, stored["url"]).stdout
    cli.run("offload", "show", local, "/etc/passwd", code=4)


def test_acquire_holds_a_workspace(cli: Cli) -> None:
    first = cli.json("acquire", "--user", "ada", "--agent", "a", "--backend", "local")
    cli.made.append(first["workspace_id"])
    assert first["created"] is True
    again = cli.json("acquire", "--user", "ada", "--agent", "a", "--backend", "local", "--lease", "10m")
    assert (again["workspace_id"], again["created"]) == (first["workspace_id"], False)
    assert again["lease_expire_time"] > first["lease_expire_time"]
    # Standard input that is at its end releases at once.
    held = cli.run("acquire", "--user", "ada", "--agent", "a", "--backend", "local", "--hold")
    assert held.stdout.decode().strip() == first["workspace_id"]
    assert b"--agent" in cli.run("acquire", "--user", "ada", "--session", "s", code=2).stderr


def test_top_draws_until_it_is_interrupted(cli: Cli, local: str) -> None:
    with cli.terminal("top", "--delay", "100ms", cols=120) as terminal:
        terminal.expect("BUSIEST")
        terminal.expect(local)
        cli.run(
            "call",
            local,
            "Bash",
            "command=yes | head -c 1000000 > /dev/stdout",
            "--offload-over",
            "1k",
            "--session",
            "t",
        )
        terminal.expect(local)
        terminal.type("\x03")
        assert terminal.wait() == 130
    once = cli.run("top").stdout.decode()
    assert local in once
    (look,) = cli.run("top", "--json", "--count", "1").stdout.splitlines()
    assert local in {line["workspace_id"] for line in json.loads(look)}
