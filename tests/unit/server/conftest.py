"""Workspaces over the fake backend, and a way to end their server as ``kill -9`` does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_driver import FakeDriver, fake_connect
from workspaced_server import principal
from workspaced_server.workspaces import failpoints
from workspaced_server.workspaces.manager import Workspaces
from workspaced_server.workspaces.registry import Registry
from workspaced_server.workspaces.settings import ChannelSettings, WorkspaceSettings

FAST = ChannelSettings(
    open_timeout_seconds=5.0,
    ping_active_seconds=0.02,
    ping_idle_seconds=0.02,
    ping_timeout_seconds=0.02,
    retry_first_seconds=0.01,
    retry_most_seconds=0.05,
)


@dataclass
class Harness:
    """A server's inside, which can be killed and started again on the same registry and backend."""

    path: Path
    driver: FakeDriver
    settings: WorkspaceSettings
    registry: Registry
    workspaces: Workspaces
    opened: list[tuple[Registry, Workspaces]] = field(default_factory=list)

    @classmethod
    async def start(cls, path: Path, settings: WorkspaceSettings) -> Harness:
        driver = FakeDriver()
        registry = await Registry.open(path)
        workspaces = Workspaces(registry, {"local": driver}, settings, connect=fake_connect)
        harness = cls(path, driver, settings, registry, workspaces)
        harness.opened.append((registry, workspaces))
        await workspaces.start()
        return harness

    async def restart(self, **changes: Any) -> Workspaces:
        """Start another server on what the present one left, which gets no chance to tidy up."""
        failpoints.install(None)
        old = self.workspaces
        old.transitions.stopping = True
        self.settings = replace(self.settings, **changes)
        self.registry = await Registry.open(self.path)
        self.workspaces = Workspaces(self.registry, {"local": self.driver}, self.settings, connect=fake_connect)
        self.opened.append((self.registry, self.workspaces))
        for sandbox in self.driver.sandboxes.values():
            sandbox.break_channels()
        await self.workspaces.start()
        return self.workspaces

    async def settle(self) -> None:
        """Wait until no workspace is in transition."""
        for entry in self.workspaces.entries.all():
            while entry.flight is not None:
                await entry.flight.settled()

    async def aclose(self) -> None:
        for registry, workspaces in self.opened:
            await workspaces.aclose()
            await registry.aclose()


@contextmanager
def slow_writes(registry: Registry) -> Iterator[tuple[asyncio.Event, threading.Event]]:
    """The next write says that it has begun, and goes on when it may."""
    begun, write = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    original = registry._engine.begin

    def begin() -> Any:
        loop.call_soon_threadsafe(begun.set)
        assert write.wait(10)
        return original()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry._engine, "begin", begin)
        yield begun, write


@pytest.fixture
def settings() -> WorkspaceSettings:
    return WorkspaceSettings(channel=FAST)


@pytest.fixture
async def harness(tmp_path: Path, settings: WorkspaceSettings) -> AsyncIterator[Harness]:
    principal.bind(principal.LOCAL)
    harness = await Harness.start(tmp_path / "registry.db", settings)
    yield harness
    await harness.aclose()


@pytest.fixture(autouse=True)
def no_failpoints() -> Iterator[None]:
    yield
    failpoints.install(None)
