"""The MCP servers that AgentScope declared: its file ``.mcp``, read once, when a workspace is made of the directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from google.protobuf.message import Message

from workspaced.v1 import mcp_pb2
from workspaced_server.errors import WorkspacedError
from workspaced_server.guest.channel import GuestChannel
from workspaced_server.mcps.declarations import MAX_DECLARED
from workspaced_server.partitions import ID_RULE, Pair, is_id
from workspaced_server.workspaces.mcp_rules import check_mcp

FILE: Final = ".mcp"
MAX_BYTES: Final = 4 << 20
"""The largest file that is read: what is larger is no list of servers that somebody wrote."""

# What the guest says of something of that name that is no file of this directory.
_NO_FILE: Final = frozenset({"IS_A_DIRECTORY", "NOT_A_FILE", "PATH_ESCAPES", "LINK_LOOP", "FILE_PERMISSION_DENIED"})


@dataclass(slots=True)
class Found:
    """The list of each pair that has one of its own, and what could not be taken over, a sentence each."""

    lists: dict[Pair, list[mcp_pb2.Mcp]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


async def read(guest: GuestChannel) -> Found | None:
    """What the workspace's directory declares; None without the file. Raises WorkspacedError, ChannelLost."""
    params = {"path": FILE, "root": ".", "offset": 0, "limit": MAX_BYTES + 1, "hash": False}
    content = bytearray()
    try:
        async with guest.open("file.read", params) as stream:
            while (item := await stream.receive()) is not None:
                if isinstance(item, bytes):
                    content += item
    except WorkspacedError as error:
        if error.reason == "FILE_NOT_FOUND":
            return None
        if error.reason in _NO_FILE:
            return Found(problems=[error.message])
        raise
    return parse(bytes(content))


def parse(content: bytes) -> Found:
    """Read the file. Servers that cannot be declared here are left out, each with its problem."""
    found = Found()
    if len(content) > MAX_BYTES:
        found.problems.append(f"the file is larger than {MAX_BYTES} bytes")
        return found
    try:
        data = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        found.problems.append(f"the file is no JSON: {error}")
        return found
    if isinstance(data, list):  # its first version knew no agents and no sessions
        data = {"mcps": {"": {"": data}}}
    agents = data.get("mcps") if isinstance(data, dict) else None
    if not isinstance(agents, dict):
        found.problems.append("the file holds no lists of MCP servers")
        return found
    for agent, sessions in agents.items():
        for session, entries in sessions.items() if isinstance(sessions, dict) else ():
            if isinstance(entries, list):
                _read_list(agent, session, entries, found)
    return found


def _read_list(agent: str, session: str, entries: list[Any], found: Found) -> None:
    where = f"agent {agent!r}, session {session!r}"
    if not all(identifier == "" or is_id(identifier) for identifier in (agent, session)):
        found.problems.append(f"{where}: an id {ID_RULE}")
        return
    mcps = found.lists.setdefault(Pair(agent or None, session or None), [])
    for index, entry in enumerate(entries):
        try:
            if len(mcps) == MAX_DECLARED:
                raise ValueError(f"there are {MAX_DECLARED} before it")
            mcp = _mcp(entry)
            if any(mcp.name == other.name for other in mcps):
                raise ValueError("name: is the name of another one before it")
        except (ValueError, TypeError) as error:
            found.problems.append(f"{where}, server {index}: {error}")
        else:
            mcps.append(mcp)


def _mcp(entry: Mapping[str, Any]) -> mcp_pb2.Mcp:
    """Raises ValueError, TypeError."""
    if not isinstance(entry, dict):
        raise TypeError("it is no object")
    mcp = mcp_pb2.Mcp()
    _fill(mcp, entry, "name")
    config: Any = entry.get("mcp_config")
    kind = config.get("type") if isinstance(config, dict) else None
    if kind == "stdio_mcp":
        _fill(mcp.stdio, config, "command", "args", "env", "cwd")
        mcp.stdio.SetInParent()
    elif kind == "http_mcp":
        _fill(mcp.http, config, "url", "headers")
        sse = urlsplit(mcp.http.url).path.endswith(("/sse", "/messages/"))
        mcp.http.kind = mcp_pb2.MCP_HTTP_KIND_SSE if sse else mcp_pb2.MCP_HTTP_KIND_STREAMABLE
        mcp.stateless = entry.get("is_stateful") is False
    else:
        raise ValueError(f"its transport is {kind!r}")
    if entry.get("enable_tools") == []:
        raise ValueError("it has all tools disabled")
    mcp.enabled_tools.extend(entry.get("enable_tools") or ())
    mcp.disabled_tools.extend(entry.get("disable_tools") or ())
    timeout = entry.get("execution_timeout")
    if timeout is not None:
        mcp.call_timeout.FromMicroseconds(round(timeout * 1_000_000))
    broken: list[str] = []
    check_mcp(mcp, "", lambda name, rule: broken.append(f"{name.lstrip('.')}: {rule}"))
    if broken:
        raise ValueError("; ".join(broken))
    return mcp


def _fill(message: Message, config: Mapping[str, Any], *names: str) -> None:
    """Set the fields of these names that are there. Raises ValueError, which says nothing of their values."""
    for name in names:
        if config.get(name) is not None:
            try:
                message.MergeFrom(type(message)(**{name: config[name]}))
            except (TypeError, ValueError, AttributeError):
                raise ValueError(f"its {name} is of a wrong kind") from None
