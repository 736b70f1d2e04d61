"""How the command tells what went wrong."""

from __future__ import annotations

import json

import pytest

import workspaced
from workspaced_server.cli.failure import describe, report


def _told(error: Exception, capsys: pytest.CaptureFixture[str], *, as_json: bool = False) -> str:
    failure = describe(error)
    assert failure is not None
    report(failure, as_json=as_json)
    return capsys.readouterr().err


def test_what_a_program_wrote_is_below_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    error = workspaced.McpStartFailed("MCP server 'm' was not added: it exited with code 2", reason="MCP_START_FAILED")
    error.metadata = {"stderr_tail": "usage: m\n\nm: no such option\x1b[2J\n"}
    assert _told(error, capsys) == (
        "workspaced: MCP server 'm' was not added: it exited with code 2\n"
        "    usage: m\n\n    m: no such option\\x1b[2J\n"
    )
    told = json.loads(_told(error, capsys, as_json=True))["error"]
    assert told["metadata"] == error.metadata


def test_a_message_of_a_stranger_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    error = workspaced.FailedPrecondition("it said \x1b]0;owned\x07\nand more", reason="MCP_PROTOCOL_ERROR")
    assert _told(error, capsys) == "workspaced: it said \\x1b]0;owned\\x07 and more\n"
