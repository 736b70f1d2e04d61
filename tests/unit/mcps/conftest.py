"""MCP servers in a real guest, in this process."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.real_guest import Handle, RealGuest, real_guest
from workspaced.v1 import mcp_pb2, workspace_pb2
from workspaced_server.mcps.mcps import Mcps
from workspaced_server.mcps.settings import McpSettings
from workspaced_server.principal import LOCAL, bind
from workspaced_server.workspaces.record import Record, State
from workspaced_server.workspaces.registry import Registry

SERVER = Path(__file__).parents[2] / "support" / "mcp_server.py"
HOSTILE = Path(__file__).parents[2] / "support" / "hostile_mcp_server.py"

Start = Callable[..., Awaitable[Mcps]]


def stdio(name: str, *arguments: str, program: Path = SERVER, **fields: object) -> mcp_pb2.Mcp:
    """A declaration of the test server."""
    mcp = mcp_pb2.Mcp(name=name, **fields)  # type: ignore[arg-type]
    mcp.stdio.command = sys.executable
    mcp.stdio.args.extend([str(program), *arguments])
    return mcp


def record(handle: Handle) -> Record:
    """The registry's row of the handle's workspace."""
    return Record(
        key=handle.key, owner="local", workspace_id="w", backend="local", state=State.READY, spec=b"", requested=b"",
        token="t", create_time=1, update_time=1, last_used_time=1, revision=1,
    )  # fmt: skip


@pytest.fixture
async def guest(tmp_path: Path, anyio_backend: str) -> AsyncIterator[RealGuest]:
    async with real_guest(tmp_path) as running:
        yield running


@pytest.fixture
async def handle(guest: RealGuest) -> AsyncIterator[Handle]:
    bind(LOCAL)
    channel = await guest.connect()
    try:
        yield Handle(channel, workdir=str(guest.workdir))
    finally:
        await channel.aclose()


@pytest.fixture
async def registry(tmp_path: Path, handle: Handle) -> AsyncIterator[Registry]:
    opened = await Registry.open(tmp_path / "registry.db")
    await opened.insert(record(handle))
    yield opened
    await opened.aclose()


@pytest.fixture
async def start(registry: Registry, tmp_path: Path) -> AsyncIterator[Start]:
    """Makes an Mcps with settings; they are closed at the end."""
    made: list[Mcps] = []

    async def begin(**settings: object) -> Mcps:
        mcps = Mcps(registry, replace(McpSettings(), **settings), tmp_path / "mcp.key", lambda _: "local")  # type: ignore[arg-type]
        made.append(mcps)
        return mcps

    yield begin
    for mcps in made:
        await mcps.aclose()


@pytest.fixture
async def mcps(start: Start) -> Mcps:
    return await start()


def with_defaults(handle: Handle, *defaults: mcp_pb2.Mcp) -> Handle:
    """The handle of a workspace whose spec has these default servers."""
    return replace(handle, spec=workspace_pb2.WorkspaceSpec(default_mcps=defaults))
