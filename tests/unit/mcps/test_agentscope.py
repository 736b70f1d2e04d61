"""AgentScope's file of MCP servers, read as lists of ours."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.protobuf import json_format

from tests.support.real_guest import Handle
from tests.unit.mcps.conftest import stdio, with_defaults
from workspaced_server.mcps.agentscope import MAX_BYTES, parse
from workspaced_server.mcps.declarations import MAX_DECLARED
from workspaced_server.mcps.mcps import Mcps
from workspaced_server.partitions import Pair
from workspaced_server.workspaces.registry import Registry
from workspaced_server.workspaces.tables import mcp_lists

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


def test_more_than_a_pair_may_have() -> None:
    found = parse(file(*({**STDIO, "name": f"n{number}"} for number in range(MAX_DECLARED + 1))))
    assert len(found.lists[Pair("a", "s")]) == MAX_DECLARED
    assert len(found.problems) == 1


async def names(mcps: Mcps, handle: Handle, pair: Pair) -> list[str]:
    return [status.mcp.name for status in await mcps.statuses(handle, pair, start=False)]


@pytest.mark.anyio
async def test_a_new_workspace_takes_the_lists_over(mcps: Mcps, handle: Handle, registry: Registry) -> None:
    handle = with_defaults(handle, stdio("default"))
    content = {"version": 2, "mcps": {"a": {"s": [STDIO, HTTP, {}], "empty": []}, "own": {"": [STDIO]}}}
    Path(handle.workdir, ".mcp").write_text(json.dumps(content))
    await mcps.remove(handle, Pair("own"), "default")
    assert await names(mcps, handle, Pair("a", "s")) == ["default"]
    for _ in range(2):
        await mcps.arriving(handle.key, handle.guest)
        assert await names(mcps, handle, Pair("a", "s")) == ["files", "web"]
        assert await names(mcps, handle, Pair("a", "empty")) == []
        assert await names(mcps, handle, Pair("own")) == []  # changed here before
        assert await names(mcps, handle, Pair("other")) == ["default"]
    stored = await registry.transact(lambda connection: str(connection.execute(sa.select(mcp_lists.c.mcps)).all()))
    assert "value" not in stored


def _absent(path: Path) -> None:
    pass


def _directory(path: Path) -> None:
    path.mkdir()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link_out(path: Path) -> None:
    outside = path.parent.parent / "outside"
    outside.write_bytes(file(STDIO))
    path.symlink_to(outside)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _no_json(path: Path) -> None:
    path.write_text("[mcp]")


@pytest.mark.anyio
@pytest.mark.parametrize("make", [_absent, _directory, _fifo, _link_out, _loop, _no_json])
async def test_what_is_no_file_of_theirs_stops_nothing(
    mcps: Mcps, handle: Handle, make: Callable[[Path], None]
) -> None:
    make(Path(handle.workdir, ".mcp"))
    await mcps.arriving(handle.key, handle.guest)
    assert await names(mcps, handle, Pair("a", "s")) == []
