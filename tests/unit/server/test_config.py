"""The configuration: file, environment, flags, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workspaced.v1 import workspace_pb2 as pb
from workspaced_server.config import ConfigError, describe, is_private, load


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "workspaced.toml"
    path.write_text(text)
    return path


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path, f'state_dir = "{tmp_path}"\nlisten = "127.0.0.1:1"\n[log]\nlevel = "debug"\nformat = "json"\n'
    )
    environment = {"WORKSPACED_LISTEN": "127.0.0.1:2", "WORKSPACED_LOG__LEVEL": "error", "PATH": "/bin"}
    assert load(path, environment={}).listen == "127.0.0.1:1"
    config = load(path, environment=environment)
    assert (config.listen, config.log.level, config.log.format) == ("127.0.0.1:2", "error", "json")
    assert (
        load(path, environment=environment, flags={"listen": "127.0.0.1:3", "insecure": None}).listen == "127.0.0.1:3"
    )
    assert load(environment={"WORKSPACED_CONFIG": str(path)}).log.format == "json"


def test_tables_of_the_backends(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        f'state_dir = "{tmp_path}"\n[local]\nallowed_roots = ["/srv", "/home"]\n[docker]\nallowed_mounts = ["/data"]\n',
    )
    config = load(path, environment={"WORKSPACED_DOCKER__ALLOWED_CAPABILITIES": "NET_ADMIN, SYS_PTRACE"})
    assert config.local is not None
    assert config.docker is not None
    assert config.local.root == tmp_path / "workspaces"
    assert config.local.allowed_roots == (Path("/srv"), Path("/home"))
    assert config.docker.state == tmp_path / "docker"
    assert config.docker.allowed_mounts == ("/data",)
    assert config.docker.allowed_capabilities == ("NET_ADMIN", "SYS_PTRACE")
    assert config.docker.allowed_networks is None
    assert load(path, environment={"WORKSPACED_DOCKER__ENABLED": "false"}).docker is None


def test_templates(tmp_path: Path) -> None:
    text = '[workspaces.templates.py]\nbackend = "docker"\nimage = "python"\nenv = { A = "secret" }\n'
    text += 'network = { mode = "none" }\nresources = { pids = 9 }\nidle_timeout = "60s"\n'
    config = load(write(tmp_path, text), environment={})
    template = config.workspaces.templates["py"]
    assert (template.backend, template.resources.pids, template.idle_timeout.seconds) == (pb.BACKEND_DOCKER, 9, 60)
    assert template.network.mode == pb.Network.MODE_NONE
    assert "secret" not in json.dumps(describe(config))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("lisen = 1", "lisen"),
        ("[docker]\nhots = 1", "docker.hots"),
        ("[workspaces.channel]\nx = 1", "workspaces.channel.x"),
        ('drain_seconds = "soon"', "drain_seconds"),
        ("drain_seconds = -1", "drain_seconds"),
        ('insecure = "maybe"', "insecure"),
        ('listen = "nowhere"', "nowhere"),
        ('[log]\nlevel = "loud"', "log.level"),
        ('[workspaces]\ndefault_backend = "moon"', "workspaces.default_backend"),
        ('[workspaces.templates.t]\nimages = "x"', "workspaces.templates.t"),
        ('[workspaces.templates.t]\nworkdir = "x"', "spec.workdir"),
        ("[tls]\ncertificate = 5", "tls.certificate"),
        ('[tls]\ncertificate = "/x"', "tls.key"),
        ('[auth.certificates]\n"cn" = ["read"]', "tls.client_ca"),
        ("= 5", "workspaced.toml"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named.replace(".", r"\.")):
        load(write(tmp_path, text), environment={})


def test_an_unknown_variable_is_refused() -> None:
    with pytest.raises(ConfigError, match="lisen"):
        load(environment={"WORKSPACED_LISEN": "127.0.0.1:1"})
    load(environment={"WORKSPACED_TOKEN": "a client's", "WORKSPACED_ADDRESS": "a client's"})


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("127.0.0.1:1", True),
        ("127.8.9.10:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("unix:/run/w.sock", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("example.org:1", False),
    ],
)
def test_which_addresses_other_machines_reach(address: str, private: bool) -> None:
    assert is_private(address) is private


def test_another_address_needs_tls_and_authentication(tmp_path: Path) -> None:
    def listens(**flags: object) -> bool:
        try:
            load(environment={}, flags={"listen": "0.0.0.0:7420", **flags})
        except ConfigError as error:
            return "--insecure" not in str(error)
        return True

    tls = {"tls.certificate": "/c", "tls.key": "/k"}
    assert not listens()
    assert not listens(**tls)
    assert not listens(**{"auth.token_file": "/t"})
    assert listens(**tls, **{"auth.token_file": "/t"})
    assert listens(insecure=True)
    with pytest.raises(ConfigError, match="admin_listen"):
        load(environment={}, flags={"admin_listen": "0.0.0.0:1", "insecure": True})


def test_the_description_hides_passwords() -> None:
    config = load(environment={}, flags={"database_url": "postgresql://user:hidden@db/x"})
    assert "hidden" not in json.dumps(describe(config))
