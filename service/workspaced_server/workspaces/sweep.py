"""Leftovers: sandboxes that carry this installation's mark, but that no row owns."""

from __future__ import annotations

import asyncio
import time

import structlog

from workspaced_server.drivers.base import Driver, DriverError, SandboxRef
from workspaced_server.errors import WorkspacedError
from workspaced_server.workspaces.manager import Workspaces

_log = structlog.stdlib.get_logger("workspaced.sweep")


class Sweep:
    """Finds leftovers, reports each once, and destroys it when a later sweep still finds it after a grace.

    Rows are written before a provider is asked, so a sandbox without one can only come from a registry that was
    restored from an older copy, or from a deletion by hand. The grace leaves time to notice.
    """

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._seen: dict[tuple[str, str], float] = {}

    async def run(self) -> None:
        """Sweep until cancelled: at once, then periodically."""
        settings = self._workspaces.settings
        while settings.sweep != "off":
            try:
                await self.once()
            except WorkspacedError as error:
                _log.warning("sweep postponed", cause=error.message)
            except Exception:  # noqa: BLE001 - a driver's or database's surprise must not end all later sweeps
                _log.exception("sweep failed")
            await asyncio.sleep(settings.sweep_seconds)

    async def once(self) -> list[SandboxRef]:
        """One sweep over all backends that answer. Returns the leftovers that were found, destroyed or not."""
        found: list[SandboxRef] = []
        for name, driver in self._workspaces.drivers.items():
            if not (await driver.probe()).available:
                continue
            try:
                found += await self._sweep(name, driver)
            except DriverError as error:
                _log.warning("sweep failed", backend=name, cause=error.message)
        return found

    async def _sweep(self, name: str, driver: Driver) -> list[SandboxRef]:
        settings = self._workspaces.settings
        refs = {ref.key: ref async for ref in driver.list()}
        leftovers: list[SandboxRef] = []
        keys = list(refs)
        for start in range(0, len(keys), 500):
            batch = keys[start : start + 500]
            owned = await self._workspaces.registry.existing_keys(batch)
            leftovers += [refs[key] for key in batch if key not in owned]
        now = time.monotonic()
        present = {(name, ref.key) for ref in leftovers}
        self._seen = {mark: at for mark, at in self._seen.items() if mark[0] != name or mark in present}
        for ref in leftovers:
            mark = (name, ref.key)
            if mark not in self._seen:
                self._seen[mark] = now
                _log.warning("leftover sandbox", backend=name, key=ref.key, action=settings.sweep)
            if settings.sweep != "destroy" or now - self._seen[mark] < settings.sweep_grace_seconds:
                continue
            # Asked again: a workspace of this key may have been created since the list was read.
            if self._workspaces.entries.get(ref.key) or await self._workspaces.registry.existing_keys([ref.key]):
                continue
            await driver.destroy(ref)
            del self._seen[mark]
            _log.warning("leftover sandbox destroyed", backend=name, key=ref.key)
        return leftovers
