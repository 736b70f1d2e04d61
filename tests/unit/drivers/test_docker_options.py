"""What a spec becomes for the engine, and what is refused, without an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workspaced_server.drivers.base import DriverError, SandboxSpec
from workspaced_server.drivers.config import DockerConfig
from workspaced_server.drivers.docker.endpoint import Endpoint
from workspaced_server.drivers.docker.options import BASE_CAPABILITIES, Plan, names, plan

INFO = {
    "CpuCfsQuota": True,
    "MemoryLimit": True,
    "SwapLimit": True,
    "PidsLimit": True,
    "Runtimes": {"runc": {}, "runsc": {}},
}


def planned(config: dict[str, Any] | None = None, info: dict[str, Any] = INFO, **fields: Any) -> Plan:
    options = fields.pop("options", {})
    spec = SandboxSpec(key="ab" * 16, token="t", options=options, **fields)
    settings = DockerConfig(Path("/state"), **{"allowed_mounts": ("/srv/shared", "/data/"), **(config or {})})
    return plan(spec, settings, "installation", info, same_machine=False)


def test_names_tell_installations_apart() -> None:
    assert names("ab" * 16, "0123456789") != names("ab" * 16, "abcdefghij")


def test_defaults_are_the_safe_ones() -> None:
    host = planned().host
    assert host["cap_drop"] == ["ALL"]
    assert host["cap_add"] == list(BASE_CAPABILITIES)
    assert host["security_opt"] == ["no-new-privileges"]
    assert host["network_mode"] is None
    assert host["binds"] is None
    assert host["mounts"] == []
    assert not {"privileged", "pid_mode", "ipc_mode", "devices"} & set(host)


def test_what_the_configuration_allows() -> None:
    allowed = {"allowed_capabilities": ("CAP_NET_ADMIN",), "allow_default_capabilities": True}
    assert planned(allowed, options={"cap_add": ["net_admin"]}).host["cap_add"][-1] == "NET_ADMIN"
    host = planned(allowed, options={"keep_default_capabilities": True, "cap_add": ["NET_ADMIN"]}).host
    assert (host.get("cap_drop"), host["cap_add"]) == (None, ["NET_ADMIN"])
    assert planned(options={"runtime": "runsc"}).host["runtime"] == "runsc"
    assert planned(options={"network": "team"}).host["network_mode"] == "team"
    assert planned({"allowed_networks": ("team",)}, options={"network": "team"}).host["network_mode"] == "team"
    for path in ("/srv/shared", "/srv/shared/a b", "/data/x"):
        assert planned(options={"host_workdir": path}).host["binds"] == [f"{path}:/workspace:rw"]


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"options": {"host_workdir": "/etc"}}, "OPTION_NOT_ALLOWED", "spec.docker.host_workdir"),
        ({"options": {"host_workdir": "/srv/sharedx"}}, "OPTION_NOT_ALLOWED", "spec.docker.host_workdir"),
        ({"options": {"host_workdir": "/srv/shared/../x"}}, "ARGUMENT_INVALID", "spec.docker.host_workdir"),
        ({"options": {"host_workdir": "//srv/shared"}}, "ARGUMENT_INVALID", "spec.docker.host_workdir"),
        ({"options": {"host_workdir": "/srv/shared/a:/etc"}}, "ARGUMENT_INVALID", "spec.docker.host_workdir"),
        ({"options": {"host_workdir": "srv/shared"}}, "ARGUMENT_INVALID", "spec.docker.host_workdir"),
        (
            {"options": {"host_workdir": "/srv/shared"}, "persistent": False},
            "ARGUMENT_INVALID",
            "spec.persistence",
        ),
        (
            {"options": {"mounts": [{"source": "/var/run/docker.sock", "target": "/x"}]}},
            "OPTION_NOT_ALLOWED",
            "spec.docker.mounts[0].source",
        ),
        ({"options": {"mounts": [{"target": "/x"}]}}, "ARGUMENT_INVALID", "spec.docker.mounts[0].source"),
        (
            {"options": {"mounts": [{"source": "/data", "target": "/proc/x"}]}},
            "ARGUMENT_INVALID",
            "spec.docker.mounts[0].target",
        ),
        (
            {"options": {"mounts": [{"source": "/data", "target": "/x"}, {"source": "/data", "target": "/x"}]}},
            "ARGUMENT_INVALID",
            "spec.docker.mounts[1].target",
        ),
        (
            {"options": {"mounts": [{"source": "/data", "target": "/workspace"}]}},
            "ARGUMENT_INVALID",
            "spec.docker.mounts[0].target",
        ),
        ({"options": {"cap_add": ["SYS_ADMIN"]}}, "OPTION_NOT_ALLOWED", "spec.docker.cap_add"),
        ({"options": {"cap_add": ["ALL"]}}, "OPTION_NOT_ALLOWED", "spec.docker.cap_add"),
        (
            {"options": {"keep_default_capabilities": True}},
            "OPTION_NOT_ALLOWED",
            "spec.docker.keep_default_capabilities",
        ),
        ({"options": {"network": "host"}}, "OPTION_NOT_ALLOWED", "spec.docker.network"),
        ({"options": {"network": "container:abc"}}, "ARGUMENT_INVALID", "spec.docker.network"),
        ({"options": {"network": "team"}, "network": "none"}, "ARGUMENT_INVALID", "spec.docker.network"),
        ({"options": {"runtime": "kata"}}, "UNSUPPORTED_BY_BACKEND", "spec.docker.runtime"),
        ({"network": "allow_list", "network_allow": ("example.org",)}, "UNSUPPORTED_BY_BACKEND", "spec.network"),
        ({"gpus": 1}, "UNSUPPORTED_BY_BACKEND", "spec.resources.gpus"),
        ({"disk_bytes": 1, "persistent": True}, "UNSUPPORTED_BY_BACKEND", "spec.resources.disk_bytes"),
        ({"workdir": "relative"}, "ARGUMENT_INVALID", "spec.workdir"),
        ({"workdir": "/"}, "ARGUMENT_INVALID", "spec.workdir"),
        ({"workdir": "/proc/1"}, "ARGUMENT_INVALID", "spec.workdir"),
        ({"workdir": "/a/../b"}, "ARGUMENT_INVALID", "spec.workdir"),
    ],
)
def test_refused(fields: dict[str, Any], reason: str, field: str) -> None:
    with pytest.raises(DriverError) as caught:
        planned(**fields)
    assert (caught.value.reason, caught.value.metadata["field"]) == (reason, field)


def test_labels_name_the_workspace_and_cannot_pose_as_ours() -> None:
    labels = planned(
        labels={"workspaced.workspace_id": "a\nb\x1b[2J", "workspaced.channel": "1", "com.docker.compose.project": "x"}
    ).config["labels"]
    assert labels["workspaced.workspace_id"] == "a\ufffdb\ufffd[2J"
    assert "workspaced.channel" not in labels
    assert labels["workspaced.label.com.docker.compose.project"] == "x"


@pytest.mark.parametrize(
    ("flag", "fields"),
    [("CpuCfsQuota", {"cpu_millis": 1}), ("MemoryLimit", {"memory_bytes": 1}), ("PidsLimit", {"pids": 1})],
)
def test_limits_that_the_engine_would_ignore_are_refused(flag: str, fields: dict[str, Any]) -> None:
    [name] = fields
    with pytest.raises(DriverError, match=f"spec.resources.{name}") as caught:
        planned(info={**INFO, flag: False}, **fields)
    assert caught.value.reason == "UNSUPPORTED_BY_BACKEND"


def test_links_are_followed_where_they_can_be_seen(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "link").symlink_to("/etc")
    config = DockerConfig(tmp_path, allowed_mounts=(str(allowed),))
    spec = SandboxSpec(key="ab" * 16, token="t", options={"host_workdir": f"{allowed}/link"})
    with pytest.raises(DriverError) as caught:
        plan(spec, config, "i", INFO, same_machine=True)
    assert caught.value.reason == "OPTION_NOT_ALLOWED"


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("unix:///run/x.sock", Endpoint("unix", "/run/x.sock")),
        ("tcp://10.0.0.1:99", Endpoint("tcp", "tcp://10.0.0.1:99", "10.0.0.1", 99)),
        ("tcp://[::1]", Endpoint("tcp", "tcp://[::1]", "::1", 2375)),
        ("engine:99", Endpoint("tcp", "engine:99", "engine", 99)),
        ("ssh://me@far:22", Endpoint("ssh", "ssh://me@far:22")),
    ],
)
def test_addresses(address: str, found: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_TLS_VERIFY", raising=False)
    assert Endpoint.find(DockerConfig(Path("/s"), host=address)) == found
    monkeypatch.setenv("DOCKER_HOST", address)
    assert Endpoint.find(DockerConfig(Path("/s"))) == found


def test_tls_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://engine")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", "/certs")
    found = Endpoint.find(DockerConfig(Path("/s")))
    assert (found.port, found.tls) == (2376, Path("/certs"))
