"""What is declared for whom, and how it is stored."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support.real_guest import Handle
from tests.unit.mcps.conftest import HOSTILE, Start, stdio, with_defaults
from workspaced.v1 import mcp_pb2
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.mcps.declarations import declaration
from workspaced_server.mcps.mcps import Mcps
from workspaced_server.partitions import Pair
from workspaced_server.workspaces.registry import Registry

pytestmark = pytest.mark.anyio
PAIR = Pair("a", "s")


def quick(name: str, **fields: object) -> mcp_pb2.Mcp:
    """A server that starts fast."""
    return stdio(name, "patient", program=HOSTILE, **fields)


async def names(mcps: Mcps, handle: Handle, pair: Pair = PAIR) -> list[str]:
    return [status.mcp.name for status in await mcps.statuses(handle, pair, start=False)]


async def test_a_pair_inherits_the_defaults_until_its_first_change(mcps: Mcps, handle: Handle) -> None:
    handle = with_defaults(handle, quick("one"), quick("two"))
    assert [status.inherited for status in await mcps.statuses(handle, PAIR, start=False)] == [True, True]
    await mcps.add(handle, PAIR, quick("three"))
    assert await names(mcps, handle) == ["one", "two", "three"]
    assert not any(status.inherited for status in await mcps.statuses(handle, PAIR, start=False))
    for other in (Pair("a", None), Pair(None, "s"), Pair(), Pair("b", "s")):
        assert await names(mcps, handle, other) == ["one", "two"]
    later = with_defaults(handle, quick("four"))
    assert await names(mcps, later) == ["one", "two", "three"]
    assert await names(mcps, later, Pair()) == ["four"]


async def test_an_emptied_list_stays_empty(mcps: Mcps, handle: Handle) -> None:
    handle = with_defaults(handle, quick("one"))
    assert await mcps.remove(handle, PAIR, "one")
    assert await names(mcps, handle) == []
    with pytest.raises(WorkspacedError) as caught:
        await mcps.remove(handle, PAIR, "one")
    assert (caught.value.code, caught.value.reason) == (Code.NOT_FOUND, "MCP_NOT_FOUND")
    assert not await mcps.remove(handle, PAIR, "one", allow_missing=True)
    assert await names(mcps, handle) == []


async def test_the_same_again_is_ok_and_another_is_refused(mcps: Mcps, handle: Handle) -> None:
    handle = with_defaults(handle, quick("default"))
    first = quick("m", enabled_tools=["a", "b"])
    _, existing = await mcps.add(handle, PAIR, first)
    assert not existing
    same = quick("m", enabled_tools=["b", "a"])
    status, existing = await mcps.add(handle, PAIR, same)
    assert existing
    assert status.state == mcp_pb2.MCP_STATE_READY
    _, existing = await mcps.add(handle, Pair(), quick("default"))
    assert existing
    other = quick("m", enabled_tools=["a", "b"])
    other.stdio.env["X"] = "y"
    for mcp in (other, quick("default", stateless=True)):
        with pytest.raises(WorkspacedError) as caught:
            await mcps.add(handle, PAIR, mcp)
        assert (caught.value.code, caught.value.reason) == (Code.ALREADY_EXISTS, "MCP_EXISTS")
    assert await names(mcps, handle) == ["default", "m"]


def test_declarations_are_the_same_when_every_field_is() -> None:
    http = mcp_pb2.McpHttp(url="http://x/")
    one, two = mcp_pb2.Mcp(name="m", http=http), mcp_pb2.Mcp(name="m", http=http)
    two.http.kind = mcp_pb2.MCP_HTTP_KIND_STREAMABLE
    assert declaration(one).identity == declaration(two).identity
    two.http.kind = mcp_pb2.MCP_HTTP_KIND_SSE
    assert declaration(one).identity != declaration(two).identity


async def test_a_list_survives_the_server_and_secrets_are_encrypted(
    start: Start, handle: Handle, registry: Registry, tmp_path: Path
) -> None:
    mcp = quick("m")
    mcp.stdio.env["SECRET"] = "hush-hush"
    await (await start()).add(handle, PAIR, mcp)
    assert stat.S_IMODE((tmp_path / "mcp.key").stat().st_mode) == 0o600
    key = (tmp_path / "mcp.key").read_bytes()

    def stored(connection: sa.Connection) -> str:
        return str(connection.execute(sa.text("SELECT mcps FROM mcp_lists")).scalar())

    text = await registry.transact(stored)
    assert "hush" not in text
    assert "secrets" in text
    again = await start()
    (status,) = await again.statuses(handle, PAIR)
    assert status.state == mcp_pb2.MCP_STATE_READY
    assert dict(status.mcp.stdio.env) == {"SECRET": "[redacted]"}
    assert (tmp_path / "mcp.key").read_bytes() == key


async def test_url_credentials_are_secrets_too(
    start: Start, handle: Handle, registry: Registry, tmp_path: Path
) -> None:
    item = declaration(mcp_pb2.Mcp(name="m", http=mcp_pb2.McpHttp(url="https://user:pass-word@host:1/mcp?q=1")))
    assert item.redacted().http.url == "https://[redacted]@host:1/mcp?q=1"
    assert set(item.secrets) == {"user", "pass-word"}


@pytest.mark.parametrize("way", ["lost", "another"])
async def test_a_lost_or_wrong_key_is_told(
    start: Start, handle: Handle, tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    mcp = quick("secret")
    mcp.stdio.env["SECRET"] = "hush-hush"
    first = await start()
    await first.add(handle, PAIR, mcp)
    await first.add(handle, PAIR, quick("plain"))
    await first.aclose()
    key_file = tmp_path / "mcp.key"
    kept = key_file.read_bytes()
    key_file.unlink()
    if way == "another":
        from cryptography.fernet import Fernet

        key_file.write_bytes(Fernet.generate_key())
        key_file.chmod(0o600)
    mcps = await start()
    secret, plain = await mcps.statuses(handle, PAIR)
    assert plain.state == mcp_pb2.MCP_STATE_READY
    assert secret.state == mcp_pb2.MCP_STATE_FAILED
    assert secret.error.reason == "MCP_SECRETS_UNREADABLE"
    assert not secret.mcp.stdio.env
    with pytest.raises(WorkspacedError) as caught:
        await mcps.call(handle, PAIR, "secret", "go", {})
    assert (caught.value.code, caught.value.reason) == (Code.FAILED_PRECONDITION, "MCP_SECRETS_UNREADABLE")
    if way == "lost":
        another = quick("another")
        another.stdio.env["SECRET"] = "hush"
        with pytest.raises(WorkspacedError) as caught:
            await mcps.add(handle, PAIR, another)
        assert caught.value.reason == "MCP_SECRETS_UNREADABLE"
        assert not key_file.exists()
    await mcps.remove(handle, PAIR, "plain")  # a change of the list keeps what it cannot read
    key_file.write_bytes(kept)
    key_file.chmod(0o600)
    again = await start()
    (status,) = await again.statuses(handle, PAIR)
    assert status.state == mcp_pb2.MCP_STATE_READY


async def test_keys_can_be_replaced(start: Start, handle: Handle, tmp_path: Path) -> None:
    from cryptography.fernet import Fernet

    mcp = quick("m")
    mcp.stdio.env["SECRET"] = "hush-hush"
    await (await start()).add(handle, PAIR, mcp)
    key_file = tmp_path / "mcp.key"
    key_file.write_bytes(Fernet.generate_key() + b"\n" + key_file.read_bytes())
    (status,) = await (await start()).statuses(handle, PAIR)
    assert status.state == mcp_pb2.MCP_STATE_READY


async def test_purges_and_resets(mcps: Mcps, handle: Handle) -> None:
    handle = with_defaults(handle, quick("default"))
    for pair in (PAIR, Pair("a", "t"), Pair("b", "s"), Pair(None, "s")):
        await mcps.add(handle, pair, quick("m"))
    assert await mcps.purge(handle, PAIR) == 2
    assert await mcps.purge(handle, PAIR) == 0
    assert await names(mcps, handle) == ["default"]
    assert await names(mcps, handle, Pair("a", "t")) == ["default", "m"]
    assert await mcps.purge_agent(handle, "a") == 2
    assert await names(mcps, handle, Pair("a", "t")) == ["default"]
    assert await names(mcps, handle, Pair("b", "s")) == ["default", "m"]
    assert await mcps.purge_agent(handle, None) == 2
    await mcps.resetting(handle.key)
    assert await names(mcps, handle, Pair("b", "s")) == ["default"]


async def test_a_deleted_workspace_takes_its_lists_along(mcps: Mcps, handle: Handle, registry: Registry) -> None:
    await mcps.add(handle, PAIR, quick("m"))
    await mcps.deleting(handle.key)
    await registry.delete(handle.key)
    count = await registry.transact(
        lambda connection: connection.execute(sa.text("SELECT count(*) FROM mcp_lists")).scalar()
    )
    assert count == 0
    with pytest.raises(WorkspacedError) as caught:
        await mcps.add(handle, PAIR, quick("m"))
    assert caught.value.code is Code.UNAVAILABLE
