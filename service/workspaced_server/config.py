"""The server's configuration: a TOML file, overridden by ``WORKSPACED_*`` in the environment, overridden by flags.

The variable of a key is its path in capitals with two underscores between tables: ``WORKSPACED_LISTEN``,
``WORKSPACED_AUTH__TOKEN_FILE``, ``WORKSPACED_DOCKER__DEFAULT_IMAGE``. An unknown key is an error in all three.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from google.protobuf.json_format import ParseDict, ParseError

from workspaced.v1 import workspace_pb2 as pb
from workspaced_server.drivers.config import DockerConfig, LocalConfig
from workspaced_server.errors import WorkspacedError
from workspaced_server.mcps.settings import McpSettings
from workspaced_server.workspaces import spec
from workspaced_server.workspaces.settings import WorkspaceSettings

_ENV_PREFIX = "WORKSPACED_"
# Variables of programs around the server, which are no settings of it.
_ENV_OTHER = frozenset({
    "WORKSPACED_CONFIG", "WORKSPACED_ADDRESS", "WORKSPACED_SERVER", "WORKSPACED_TOKEN", "WORKSPACED_PROCESS_ID",
    "WORKSPACED_WORKSPACE", "WORKSPACED_GUEST_KEY", "WORKSPACED_IMAGE", "WORKSPACED_CACHE", "WORKSPACED_DEBIAN_MIRROR",
    "WORKSPACED_FAULT_SEED",
})  # fmt: skip
_ENV_OTHER_PREFIXES = ("WORKSPACED_CLIENT_", "WORKSPACED_HEALTH_", "WORKSPACED_TEST_")


class ConfigError(Exception):
    """The configuration cannot be used; the message names the key and the way out."""


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Transport security. With ``client_ca`` every client has to show a certificate: grpc's server asks for one only
    where it demands one.
    """

    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None

    @property
    def enabled(self) -> bool:
        """Whether the server speaks TLS."""
        return self.certificate is not None


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """Who may call. ``certificates`` maps a client certificate's URI, DNS name or common name to scopes."""

    token_file: Path | None = None
    certificates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def enabled(self) -> bool:
        """Whether callers have to authenticate."""
        return self.token_file is not None or bool(self.certificates)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """``format`` auto: lines for people on a terminal, else JSON."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "pretty"] = "auto"


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that can be configured. ``seed_skill_roots`` are directories on the server that seed skills may come
    from.
    """

    listen: str = "127.0.0.1:7420"
    admin_listen: str = ""  # channelz and health; loopback or a Unix socket only
    insecure: bool = False  # another address than loopback without TLS and authentication
    state_dir: Path = field(
        default_factory=lambda: default_state_dir()  # noqa: PLW0108 - defined below
    )
    database_url: str = ""  # empty: SQLite in the state directory
    drain_seconds: float = 10.0
    seed_skill_roots: tuple[Path, ...] = ()
    tls: TlsConfig = field(default_factory=TlsConfig)
    auth: AuthConfig = field(default_factory=AuthConfig)
    log: LogConfig = field(default_factory=LogConfig)
    workspaces: WorkspaceSettings = field(default_factory=WorkspaceSettings)
    mcp: McpSettings = field(default_factory=McpSettings)
    local: LocalConfig | None = None
    docker: DockerConfig | None = None

    @property
    def registry_file(self) -> Path:
        """The SQLite registry, which is used without ``database_url``."""
        return self.state_dir / "registry.db"


def default_state_dir() -> Path:
    """Where state goes unless told: below ``XDG_STATE_HOME`` or ``~/.local/state``, for root
    ``/var/lib/workspaced``.
    """
    if os.geteuid() == 0:
        return Path("/var/lib/workspaced")
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "workspaced"


def load(
    path: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Config:
    """Read the configuration. ``flags`` are by dotted key (``listen``, ``tls.key``); None values are not set.

    Raises ConfigError naming the key.
    """
    environment = os.environ if environment is None else environment
    if path is None and environment.get("WORKSPACED_CONFIG"):
        path = Path(environment["WORKSPACED_CONFIG"])
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text())
        except OSError as error:
            raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from error
    for name, text in environment.items():
        if name.startswith(_ENV_PREFIX) and name not in _ENV_OTHER and not name.startswith(_ENV_OTHER_PREFIXES):
            _put(values, name.removeprefix(_ENV_PREFIX).lower().split("__"), text, name)
    for name, value in (flags or {}).items():
        if value is not None:
            _put(values, name.split("."), value, name)
    return _finish(values)


def check_listen(config: Config) -> None:
    """Raise ConfigError when the addresses are not safe with what else is configured."""
    tls, auth = config.tls, config.auth
    if tls.enabled != (tls.key is not None):
        raise ConfigError("tls.certificate and tls.key belong together")
    if tls.client_ca is not None and not tls.enabled:
        raise ConfigError("tls.client_ca needs tls.certificate and tls.key")
    if auth.certificates and tls.client_ca is None:
        raise ConfigError("auth.certificates needs tls.client_ca")
    if not _is_private("listen", config.listen) and not config.insecure and not (tls.enabled and auth.enabled):
        raise ConfigError(
            f"listen = {config.listen!r} can be reached from other machines: configure TLS (tls.certificate, tls.key) "
            "and authentication (auth.token_file or auth.certificates), or say --insecure"
        )
    if config.admin_listen and not _is_private("admin_listen", config.admin_listen):
        raise ConfigError(f"admin_listen = {config.admin_listen!r} must be a loopback address or a Unix socket")


def _is_private(key: str, address: str) -> bool:
    try:
        return is_private(address)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


def is_private(address: str) -> bool:
    """Whether only this machine can reach the address: loopback or a Unix socket. Raises ConfigError when it is
    none.
    """
    if address.startswith("unix:"):
        return True
    host, separator, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not port.isdecimal() or int(port) > 65535 or not host:
        raise ConfigError(f"{address!r} is not an address: HOST:PORT, [IPV6]:PORT or unix:/PATH is")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def describe(config: Config) -> dict[str, object]:
    """The effective configuration as plain data, secrets redacted, for ``serve --check``."""
    data = _plain(config)
    assert isinstance(data, dict)
    if config.database_url:
        from sqlalchemy import make_url

        data["database_url"] = make_url(config.database_url).render_as_string(hide_password=True)
    return data


def _plain(value: object) -> object:
    if isinstance(value, pb.WorkspaceSpec):
        copy = pb.WorkspaceSpec.FromString(value.SerializeToString())
        spec.redact(copy)
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(copy, preserving_proto_field_name=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _put(values: dict[str, Any], path: list[str], value: object, source: str) -> None:
    for name in path[:-1]:
        inner = values.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{source}: {name} is not a table")
        values = inner
    values[path[-1]] = value


def _finish(values: dict[str, Any]) -> Config:
    values = dict(values)
    # What the drivers keep lies in the state directory unless told otherwise.
    state_dir = _convert(Path, values.get("state_dir", default_state_dir()), "state_dir").absolute()
    values["state_dir"] = str(state_dir)
    for backend, key in (("local", "root"), ("docker", "state")):
        table = values.get(backend, {})
        if table is False or (isinstance(table, dict) and _switch(table, backend) is False):
            values.pop(backend, None)
            continue
        if not isinstance(table, dict):
            raise ConfigError(f"{backend} is a table, or false")
        table = {name: item for name, item in table.items() if name != "enabled"}
        table.setdefault(key, str(state_dir / ("workspaces" if backend == "local" else backend)))
        values[backend] = table
    config: Config = _build(Config, values, "")
    check_listen(config)
    try:
        spec.backend_number(config.workspaces.default_backend)
    except ValueError:
        raise ConfigError(
            f"workspaces.default_backend: {config.workspaces.default_backend!r} is not a backend"
        ) from None
    return config


def _switch(table: Mapping[str, Any], backend: str) -> bool:
    return bool(_convert(bool, table.get("enabled", True), f"{backend}.enabled"))


def _build(kind: type[Any], values: Mapping[str, Any], prefix: str) -> Any:
    hints = typing.get_type_hints(kind)
    known = {item.name for item in dataclasses.fields(kind)}
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        if name not in known:
            raise ConfigError(f"{path} is not a setting; {prefix or 'the top level '}knows {', '.join(sorted(known))}")
        arguments[name] = _convert(hints[name], value, path)
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ConfigError(f"{prefix.rstrip('.')}: {error}") from error


def _convert(hint: Any, value: Any, path: str) -> Any:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _convert(next(item for item in inner if item is not type(None)), value, path)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path} is a table")
        return _build(typing.cast("type[Any]", hint), value, f"{path}.")
    if origin is Literal:
        if value not in inner:
            raise ConfigError(f"{path} is one of {', '.join(map(str, inner))}, not {value!r}")
        return value
    if origin is tuple:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise ConfigError(f"{path} is a list")
        return tuple(
            _convert(inner[0], item.strip() if isinstance(item, str) else item, path) for item in items if item != ""
        )
    if hint is Path:
        if not isinstance(value, str | Path) or not str(value):
            raise ConfigError(f"{path} is a path")
        return Path(value).expanduser()
    if hint == Mapping[str, pb.WorkspaceSpec]:
        return {name: _template(item, f"{path}.{name}") for name, item in _table(value, path).items()}
    if origin is not None and issubclass(origin, Mapping):
        return {name: _convert(inner[1], item, f"{path}.{name}") for name, item in _table(value, path).items()}
    return _scalar(hint, value, path)


def _scalar(hint: Any, value: Any, path: str) -> Any:
    if hint is bool:
        words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        value = words.get(value.lower()) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise ConfigError(f"{path} is true or false")
        return value
    if hint in (int, float):
        try:
            number = hint(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
        except ValueError:
            number = None
        if number is None or number < 0 or number != number or (hint is int and isinstance(value, float)):
            raise ConfigError(f"{path} is a number, 0 or more")
        return number
    if hint is str and isinstance(value, str):
        return value
    raise ConfigError(f"{path} is text")


def _table(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path} is a table")
    return value


def _template(value: Any, path: str) -> pb.WorkspaceSpec:
    """A template: the fields of WorkspaceSpec, enum values by their names without prefix, in small letters."""
    fields = dict(_table(value, path))
    for name, prefix in (("backend", "BACKEND_"), ("persistence", "PERSISTENCE_")):
        if isinstance(fields.get(name), str):
            fields[name] = prefix + fields[name].upper().removeprefix(prefix)
    if isinstance(fields.get("network"), dict) and isinstance(fields["network"].get("mode"), str):
        mode = "MODE_" + fields["network"]["mode"].upper().removeprefix("MODE_")
        fields["network"] = {**fields["network"], "mode": mode}
    try:
        template = ParseDict(fields, pb.WorkspaceSpec())
        if template.template:
            raise ConfigError(f"{path}.template: a template cannot use another")
        spec.check(template)
    except ParseError as error:
        raise ConfigError(f"{path}: {error}") from error
    except WorkspacedError as error:
        raise ConfigError(f"{path}: {error.message}") from error
    return template
