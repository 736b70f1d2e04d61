"""Which backends there are. Their SDKs are imported only for those that are switched on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from workspaced_server.drivers.base import (
    Availability,
    ByteStream,
    Driver,
    DriverError,
    Progress,
    SandboxRef,
    SandboxSpec,
    SandboxStatus,
)
from workspaced_server.drivers.config import DriversConfig


def load(config: DriversConfig) -> dict[str, Driver]:
    """A driver for each backend that the configuration switches on, by name.

    One whose SDK is not installed is there too: it says that it is not available, and why. Belongs to the running
    event loop.
    """
    drivers: dict[str, Driver] = {}
    if config.local is not None:
        from workspaced_server.drivers.local import LocalDriver

        drivers["local"] = LocalDriver(config.local)
    if config.docker is not None:
        try:
            from workspaced_server.drivers.docker.driver import DockerDriver
        except ModuleNotFoundError as error:
            drivers["docker"] = AbsentDriver("docker", f"the Python package {error.name} is not installed")
        else:
            drivers["docker"] = DockerDriver(config.docker, config.installation)
    return drivers


class AbsentDriver:
    """Stands for a backend that cannot be loaded: every call says why."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self._reason = reason

    def _error(self) -> DriverError:
        return DriverError("BACKEND_UNAVAILABLE", f"the {self.name} backend is not available: {self._reason}")

    async def probe(self) -> Availability:
        """Never available."""
        return Availability(False, self._reason)

    async def provision(self, spec: SandboxSpec, report: Progress) -> SandboxRef:
        """Raises BACKEND_UNAVAILABLE, as the others do."""
        raise self._error()

    async def open_channel(self, ref: SandboxRef) -> ByteStream:
        """Raises BACKEND_UNAVAILABLE."""
        raise self._error()

    async def status(self, ref: SandboxRef) -> SandboxStatus:
        """Raises BACKEND_UNAVAILABLE."""
        raise self._error()

    async def renew(self, ref: SandboxRef, until: datetime) -> None:
        """Raises BACKEND_UNAVAILABLE."""
        raise self._error()

    async def suspend(self, ref: SandboxRef) -> None:
        """Raises BACKEND_UNAVAILABLE."""
        raise self._error()

    async def destroy(self, ref: SandboxRef) -> None:
        """Raises BACKEND_UNAVAILABLE."""
        raise self._error()

    def list(self) -> AsyncIterator[SandboxRef]:
        """Raises BACKEND_UNAVAILABLE: what there is cannot be known."""
        raise self._error()

    async def aclose(self) -> None:
        """Nothing to release."""
