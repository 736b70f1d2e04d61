"""AgentScope's file of MCP servers, read as lists of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format

from workspaced_server.mcps.agentscope import MAX_BYTES, parse
from workspaced_server.partitions import Pair

STDIO: dict[str, Any] = {
    "name": "files",
    "is_stateful": True,
    "mcp_config": {
        "type": "stdio_mcp",
        "command": "server",
        "args": ["-v", "/a b"],
        "env": {"KEY": "value"},
        "cwd": "/tmp",
        "encoding_error_handler": "strict",
    },
    "enable_tools": ["read"],
    "disable_tools": ["write"],
    "execution_timeout": 7.5,
    "stream_progress": False,
}
HTTP: dict[str, Any] = {
    "name": "web",
    "is_stateful": False,
    "mcp_config": {"type": "http_mcp", "url": "https://example.org/mcp", "headers": {"A": "b"}, "timeout": 30.0},
}


def file(*entries: Any, agent: str = "a", session: str = "s") -> bytes:
    return json.dumps({"version": 2, "mcps": {agent: {session: list(entries)}}}).encode()


def changed(entry: dict[str, Any], **config: Any) -> dict[str, Any]:
    return {**entry, "mcp_config": {**entry["mcp_config"], **config}}


def test_every_field() -> None:
    found = parse(file(STDIO, HTTP))
    assert found.problems == []
    stdio, http = found.lists[Pair("a", "s")]
    assert json_format.MessageToDict(stdio, preserving_proto_field_name=True) == {
        "name": "files",
        "stdio": {"command": "server", "args": ["-v", "/a b"], "env": {"KEY": "value"}, "cwd": "/tmp"},
        "enabled_tools": ["read"],
        "disabled_tools": ["write"],
        "call_timeout": "7.500s",
    }
    assert json_format.MessageToDict(http, preserving_proto_field_name=True) == {
        "name": "web",
        "http": {"url": "https://example.org/mcp", "headers": {"A": "b"}, "kind": "MCP_HTTP_KIND_STREAMABLE"},
        "stateless": True,
    }


@pytest.mark.parametrize(
    ("url", "kind"),
    [("http://h/sse", 2), ("http://h/x/sse?k=v", 2), ("http://h/messages/", 2), ("http://h/mcp?x=/sse", 1)],
)
def test_the_transport_is_told_from_the_path(url: str, kind: int) -> None:
    [mcp] = parse(file(changed(HTTP, url=url))).lists[Pair("a", "s")]
    assert mcp.http.kind == kind


def test_pairs_without_ids_empty_lists_and_a_mark_at_the_beginning() -> None:
    content = json.dumps({"version": 2, "mcps": {"": {"": [STDIO], "s": []}, "a": {"": [HTTP]}}}).encode()
    found = parse(b"\xef\xbb\xbf" + content)
    assert {pair: [mcp.name for mcp in mcps] for pair, mcps in found.lists.items()} == {
        Pair(): ["files"],
        Pair(None, "s"): [],
        Pair("a", None): ["web"],
    }


def test_the_first_version() -> None:
    assert [mcp.name for mcp in parse(json.dumps([STDIO, HTTP]).encode()).lists[Pair()]] == ["files", "web"]


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        {},
        {**STDIO, "name": "no space"},
        {**STDIO, "name": 7},
        {**STDIO, "mcp_config": {"type": "carrier_pigeon"}},
        {**STDIO, "mcp_config": "stdio"},
        {**STDIO, "enable_tools": []},
        {**STDIO, "enable_tools": 3},
        {**STDIO, "enable_tools": [3]},
        {**STDIO, "execution_timeout": -1},
        {**STDIO, "execution_timeout": "soon"},
        {**STDIO, "execution_timeout": 1e300},
        changed(STDIO, command=""),
        changed(STDIO, args="-v"),
        changed(STDIO, args=[1]),
        changed(STDIO, env={"A": 1}),
        changed(STDIO, env=["A"]),
        changed(STDIO, command="\ud800"),
        changed(HTTP, url="ftp://example.org"),
        changed(HTTP, url="http://[::1"),
        changed(HTTP, headers={"A": "b\nc"}),
        STDIO,  # a name twice
    ],
)
def test_one_bad_server_costs_only_itself(bad: Any) -> None:
    found = parse(file(STDIO, bad, HTTP))
    assert [mcp.name for mcp in found.lists[Pair("a", "s")]] == ["files", "web"]
    [problem] = found.problems
    assert problem.startswith("agent 'a', session 's', server 1: ")
    assert "value" not in problem


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"7",
        b"null",
        b"{}",
        b'{"mcps": []}',
        b"[" * 100_000,
        b" " * (MAX_BYTES + 1),
        file(STDIO, agent="../x"),
        file(STDIO, session=".x"),
    ],
)
def test_what_is_no_such_file_is_a_problem(content: bytes) -> None:
    found = parse(content)
    assert found.lists == {}
    assert len(found.problems) == 1


@pytest.mark.parametrize("content", [b'{"mcps": {"a": 7}}', b'{"mcps": {"a": {"s": {}}}}', b'{"mcps": {}}'])
def test_what_is_no_list_is_nothing(content: bytes) -> None:
    assert parse(content).lists == {}
