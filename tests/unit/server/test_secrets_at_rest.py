"""What a workspace's spec has of secrets is not in the registry's file, and a server without the key does not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.server.test_registry import record
from workspaced.v1 import mcp_pb2
from workspaced.v1 import workspace_pb2 as pb
from workspaced_server.config import ConfigError, load
from workspaced_server.serve import _open_registry
from workspaced_server.workspaces.registry import Registry, RegistryUnavailable
from workspaced_server.workspaces.vault import Vault

pytestmark = pytest.mark.anyio

SECRETS = {
    "env": pb.WorkspaceSpec(env={"KEY": "hidden-value"}),
    "stdio": pb.WorkspaceSpec(
        default_mcps=[mcp_pb2.Mcp(name="a", stdio=mcp_pb2.McpStdio(command="x", env={"K": "hidden-value"}))]
    ),
    "headers": pb.WorkspaceSpec(
        default_mcps=[mcp_pb2.Mcp(name="a", http=mcp_pb2.McpHttp(url="http://h", headers={"K": "hidden-value"}))]
    ),
    "url": pb.WorkspaceSpec(default_mcps=[mcp_pb2.Mcp(name="a", http=mcp_pb2.McpHttp(url="http://u:hidden-value@h"))]),
}


@pytest.mark.parametrize("kind", SECRETS)
async def test_secrets_of_specs_are_encrypted(tmp_path: Path, kind: str) -> None:
    data = SECRETS[kind].SerializeToString(deterministic=True)
    path, key = tmp_path / "r.db", tmp_path / "mcp.key"
    registry = await Registry.open(path, Vault(key))
    await registry.insert(record(1, spec=data, requested=data))
    await registry.update(record(1, spec=data, requested=data, workdir="/w"))
    await registry.aclose()
    for file in tmp_path.iterdir():
        assert b"hidden-value" not in file.read_bytes(), file
    registry = await Registry.open(path, Vault(key))
    (found,) = await registry.in_states(record(1).state)
    assert (found.spec, found.requested) == (data, data)
    await registry.aclose()


async def test_a_spec_without_secrets_needs_no_key(tmp_path: Path) -> None:
    data = pb.WorkspaceSpec(image="i").SerializeToString(deterministic=True)
    registry = await Registry.open(tmp_path / "r.db", Vault(tmp_path / "mcp.key"))
    await registry.insert(record(1, spec=data, requested=data))
    await registry.aclose()
    assert not (tmp_path / "mcp.key").exists()


async def test_what_an_older_server_wrote_in_the_clear_is_read(tmp_path: Path) -> None:
    data = SECRETS["env"].SerializeToString(deterministic=True)
    registry = await Registry.open(tmp_path / "r.db")
    await registry.insert(record(1, spec=data, requested=data))
    await registry.aclose()
    registry = await Registry.open(tmp_path / "r.db", Vault(tmp_path / "mcp.key"))
    found = await registry.get(record(1).key)
    assert found is not None
    assert found.spec == data
    await registry.update(found)
    await registry.aclose()
    with pytest.raises(RegistryUnavailable):
        await Registry.open(tmp_path / "r.db")


@pytest.mark.parametrize("damage", ["lost", "other", "garbage", "readable"])
async def test_a_server_without_the_key_does_not_start(tmp_path: Path, damage: str) -> None:
    configured = load(environment={}, flags={"state_dir": tmp_path})
    data = SECRETS["env"].SerializeToString(deterministic=True)
    registry = await _open_registry(configured)
    await registry.insert(record(1, spec=data, requested=data))
    await registry.aclose()
    key = tmp_path / "mcp.key"
    kept = key.read_bytes()
    if damage == "lost":
        key.unlink()
    elif damage == "other":
        key.unlink()
        Vault(key).encrypt(b"x", may_create=True)
    elif damage == "garbage":
        key.write_bytes(b"no key\n")
    else:
        key.chmod(0o644)
    with pytest.raises(ConfigError, match=r"mcp\.key"):
        await _open_registry(configured)
    key.unlink(missing_ok=True)
    key.touch(mode=0o600)
    key.write_bytes(kept)
    registry = await _open_registry(configured)
    assert await registry.get(record(1).key) is not None
    await registry.aclose()
