"""Configuration of the backends: what the operator allows, and where things are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """The Local backend.

    Workspaces are directories below ``root``. ``allowed_roots`` are the directories in which a caller may name one
    of its own (``LocalOptions.directory``); none by default. A guest without a channel and without a running
    process ends after ``idle_exit_seconds``.
    """

    root: Path
    allowed_roots: tuple[Path, ...] = ()
    idle_exit_seconds: int = 600


@dataclass(frozen=True, slots=True)
class DockerConfig:
    """The Docker backend.

    ``host`` is an engine's address as in ``DOCKER_HOST`` (``unix://``, ``tcp://``, ``ssh://``); empty means the
    environment's ``DOCKER_HOST``, else the engine's usual socket. For ``tcp://`` with TLS, ``tls_directory`` holds
    ``ca.pem``,
    ``cert.pem`` and ``key.pem``; empty means the environment's ``DOCKER_CERT_PATH`` where ``DOCKER_TLS_VERIFY`` is set.

    ``state`` is a directory of the driver's own on the server's machine. ``allowed_mounts`` are absolute directories
    on the engine's host of which callers may mount themselves or anything below. ``allowed_capabilities`` are names
    such as ``NET_ADMIN`` that callers may add.
    ``allowed_networks`` are names of the networks that callers may join; None means each that somebody created on the
    engine, never ``host`` or another container's.

    ``socket_channel``: "auto" carries channels over a bind-mounted Unix socket where the engine proves to share this
    machine's file system, "never" always uses the exec's standard streams.
    """

    state: Path
    host: str = ""
    tls_directory: Path | None = None
    default_image: str = "python:3.13-slim"
    allowed_mounts: tuple[str, ...] = ()
    allowed_capabilities: tuple[str, ...] = ()
    allow_default_capabilities: bool = False
    allowed_networks: tuple[str, ...] | None = None
    socket_channel: Literal["auto", "never"] = "auto"
    request_timeout_seconds: int = 60
    max_threads: int = 16


@dataclass(frozen=True, slots=True)
class DriversConfig:
    """Which backends are switched on.

    ``installation`` is this server's own random id: it marks what is its property.
    """

    installation: str
    local: LocalConfig | None = None
    docker: DockerConfig | None = None
