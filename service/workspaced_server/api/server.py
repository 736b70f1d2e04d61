"""The gRPC server: every service, health, reflection, TLS, and its way down."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from workspaced.v1 import (
    discovery_pb2,
    execution_pb2,
    file_pb2,
    lifecycle_pb2,
    management_pb2,
    offload_pb2,
    port_pb2,
    server_pb2,
)
from workspaced_server.api import reflection
from workspaced_server.api.allocation import AllocationServicer
from workspaced_server.api.auth import Authenticator
from workspaced_server.api.drain import Drain
from workspaced_server.api.execution import ExecutionServicer
from workspaced_server.api.files import FileServicer
from workspaced_server.api.handlers import service_handler
from workspaced_server.api.interceptors import CallInterceptor, scopes_of
from workspaced_server.api.lifecycle import LifecycleServicer
from workspaced_server.api.limits import MAX_REQUEST_BYTES
from workspaced_server.api.mcps import McpServicer
from workspaced_server.api.offload import OffloadServicer
from workspaced_server.api.ports import PortServicer
from workspaced_server.api.server_info import ServerServicer
from workspaced_server.api.skills import SkillServicer
from workspaced_server.api.tls import credentials
from workspaced_server.api.tools import ToolServicer
from workspaced_server.config import Config, ConfigError, TlsConfig
from workspaced_server.instructions import Instructions
from workspaced_server.mcps.mcps import Mcps
from workspaced_server.offload.offloads import Offloads
from workspaced_server.skills.seeds import SeedChecker
from workspaced_server.skills.skills import Skills
from workspaced_server.workspaces.manager import Workspaces

FILES = (
    discovery_pb2.DESCRIPTOR,
    execution_pb2.DESCRIPTOR,
    file_pb2.DESCRIPTOR,
    lifecycle_pb2.DESCRIPTOR,
    management_pb2.DESCRIPTOR,
    offload_pb2.DESCRIPTOR,
    port_pb2.DESCRIPTOR,
    server_pb2.DESCRIPTOR,
)

OPTIONS: list[tuple[str, Any]] = [
    ("grpc.so_reuseport", 0),  # else two servers share a port silently
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.max_concurrent_streams", 1000),
    # A frozen client is noticed after 20 to 30 s and its streams freed.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Clients may ping as often as they need to notice a frozen server within 10 s.
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    # What one stalled upload may hold in memory.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1 << 20),
    # A message arrives in few pieces, each of which costs copies; the window bounds what waits, not this.
    ("grpc.http2.max_frame_size", 1 << 20),
]


class ApiServer:
    """The API on its address, and the admin services on theirs."""

    def __init__(self, config: Config, workspaces: Workspaces) -> None:
        """Raises ConfigError when tokens or certificates cannot be read."""
        self._config = config
        self.drain = Drain()
        scopes = scopes_of(*FILES)
        interceptor = CallInterceptor(Authenticator(config.auth), self.drain, scopes)
        self._server = grpc.aio.server(interceptors=[interceptor], options=OPTIONS)
        self._admin: grpc.aio.Server | None = None
        self._health = HealthServicer()
        settings = workspaces.settings
        info = ServerServicer(workspaces.drivers, settings.default_backend, list(settings.templates))
        skills = Skills(config.seed_skill_roots)
        offloads = Offloads()
        mcps = Mcps(workspaces.registry, config.mcp, config.state_dir / "mcp.key", workspaces.owner_of)
        self._mcps = mcps
        workspaces.transitions.observers.append(mcps)
        workspaces.transitions.arrivals.append(mcps.arriving)
        workspaces.spec_checks.append(SeedChecker(config.seed_skill_roots))
        servicers: tuple[object, ...] = (
            LifecycleServicer(workspaces),
            AllocationServicer(workspaces),
            ExecutionServicer(workspaces),
            FileServicer(workspaces),
            PortServicer(workspaces),
            OffloadServicer(workspaces, offloads, mcps=mcps, skills=skills),
            SkillServicer(workspaces, skills, Instructions(skills, mcps)),
            McpServicer(workspaces, mcps, offloads),
            ToolServicer(workspaces, skills, offloads, offloads.calls, mcps),
            info,
        )
        services = [service for file in FILES for service in file.services_by_name.values()]
        self._names = [service.full_name for service in services]
        handlers = [service_handler(service, *servicers) for service in services]
        health = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
        self._server.add_generic_rpc_handlers((*handlers, *reflection.handlers([*self._names, health])))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    async def start(self) -> int:
        """Listen; returns the port (1 for a Unix socket). Raises ConfigError when the address cannot be had."""
        port = _bind(self._server, self._config.listen, self._config.tls)
        await self._mcps.check_key()
        if self._config.admin_listen:
            self._admin = grpc.aio.server(options=OPTIONS)
            _add_channelz(self._admin)
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._admin)
            _bind(self._admin, self._config.admin_listen, TlsConfig())
            await self._admin.start()
        await self._server.start()
        for name in ("", *self._names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return port

    async def stop(self, grace: float) -> None:
        """Go down in order: NOT_SERVING, no new calls, long streams ended, ``grace`` seconds for the rest."""
        # Every health watcher hears it, and the status stays so whatever is set later.
        await self._health.enter_graceful_shutdown()
        await self.drain.run(grace)
        await self._server.stop(0.25)
        await self.abort()

    async def abort(self) -> None:
        """Go down now. Idempotent."""
        await self._server.stop(None)
        await self._mcps.aclose()
        if self._admin is not None:
            await self._admin.stop(None)


def _bind(server: grpc.aio.Server, address: str, tls: TlsConfig) -> int:
    path = Path(address.removeprefix("unix:").removeprefix("//")) if address.startswith("unix:") else None
    if path is not None:
        _remove_stale(path)
    # Nobody else may connect in the moment between the socket's making and a later chmod.
    mask = os.umask(0o177) if path is not None else None
    try:
        if tls.enabled:
            port = server.add_secure_port(address, credentials(tls))
        else:
            port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigError(f"cannot listen on {address}: the address is in use or not of this machine") from error
    finally:
        if mask is not None:
            os.umask(mask)
    if port == 0:
        raise ConfigError(f"cannot listen on {address}: the address is in use or not of this machine")
    return port


def _remove_stale(path: Path) -> None:
    """Remove the socket of a server that was killed; the lock on the state directory says that it is gone."""
    try:
        if path.is_socket():
            path.unlink()
    except OSError as error:
        raise ConfigError(f"cannot listen on {path}: {error.strerror}") from error


def _add_channelz(server: grpc.aio.Server) -> None:
    from grpc_channelz.v1 import channelz

    channelz.add_channelz_servicer(server)
