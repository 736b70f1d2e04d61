"""ServerService: what this server is and can do."""

from __future__ import annotations

import asyncio
import dataclasses
import time
import uuid
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from workspaced.v1 import options_pb2, server_pb2, workspace_pb2
from workspaced_server.api import limits
from workspaced_server.api.principal import current
from workspaced_server.api.revision import API_REVISION
from workspaced_server.drivers.base import Availability, Driver

_PROBE_SECONDS: Final = 10.0
_FRESH_SECONDS: Final = 60.0

BACKENDS: Final[Mapping[str, workspace_pb2.Backend.ValueType]] = {
    "local": workspace_pb2.BACKEND_LOCAL,
    "docker": workspace_pb2.BACKEND_DOCKER,
    "e2b": workspace_pb2.BACKEND_E2B,
    "daytona": workspace_pb2.BACKEND_DAYTONA,
    "kubernetes": workspace_pb2.BACKEND_KUBERNETES,
    "opensandbox": workspace_pb2.BACKEND_OPENSANDBOX,
}


def server_version() -> str:
    """The version of the distribution that is installed."""
    try:
        return version("workspaced-server")
    except PackageNotFoundError:
        return "0.0.0+unknown"


class ServerServicer:
    """The RPC of ``workspaced.v1.ServerService``."""

    def __init__(self, drivers: Mapping[str, Driver], default_backend: str, templates: Sequence[str] = ()) -> None:
        """`drivers` by the names of `BACKENDS`; those that are missing are told as not available."""
        self._drivers = drivers
        self._default_backend = BACKENDS[default_backend]
        self._templates = sorted(templates)
        self._instance_id = uuid.uuid4().hex
        self._start_time = Timestamp()
        self._start_time.FromNanoseconds(time.time_ns())
        self._found: dict[str, Availability] = {}
        self._found_at = -_FRESH_SECONDS
        self._probing = asyncio.Lock()

    async def GetServerInfo(  # noqa: N802
        self, request: server_pb2.GetServerInfoRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> server_pb2.GetServerInfoResponse:
        asked_at = time.monotonic()
        async with self._probing:
            # Whoever waited for another's probe that began after it asked needs none of its own.
            fresh = self._found_at >= asked_at or (not request.probe and asked_at - self._found_at < _FRESH_SECONDS)
            if not fresh:
                self._found = await self._probe()
                self._found_at = time.monotonic()
        principal = current()
        return server_pb2.GetServerInfoResponse(
            version=server_version(),
            api_revision=API_REVISION,
            backends=[_backend_info(name, backend, self._found) for name, backend in BACKENDS.items()],
            default_backend=self._default_backend,
            limits=server_pb2.Limits(
                max_request_bytes=limits.MAX_REQUEST_BYTES,
                max_chunk_bytes=limits.MAX_CHUNK_BYTES,
                max_run_output_bytes=limits.MAX_RUN_OUTPUT_BYTES,
                max_journal_bytes=limits.MAX_JOURNAL_BYTES,
                max_page_size=limits.MAX_PAGE_SIZE,
            ),
            principal=principal.name,
            scopes=sorted(options_pb2.Scope.Value(f"SCOPE_{scope.name}") for scope in principal.scopes),
            start_time=self._start_time,
            instance_id=self._instance_id,
            templates=self._templates,
        )

    async def _probe(self) -> dict[str, Availability]:
        names = list(self._drivers)
        found = await asyncio.gather(*(_probe(self._drivers[name]) for name in names))
        return dict(zip(names, found, strict=True))


async def _probe(driver: Driver) -> Availability:
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            return await driver.probe()
    except TimeoutError:
        return Availability(available=False, reason=f"did not answer within {_PROBE_SECONDS:.0f} s")


def _backend_info(
    name: str, backend: workspace_pb2.Backend.ValueType, found: Mapping[str, Availability]
) -> server_pb2.BackendInfo:
    availability = found.get(name)
    if availability is None:
        return server_pb2.BackendInfo(
            backend=backend, available=False, unavailable_reason="this server is not configured for it"
        )
    return server_pb2.BackendInfo(
        backend=backend,
        available=availability.available,
        unavailable_reason="" if availability.available else availability.reason,
        capabilities=server_pb2.Capabilities(**dataclasses.asdict(availability.capabilities)),
        version=availability.version,
    )
