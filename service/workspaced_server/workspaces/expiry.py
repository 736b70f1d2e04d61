"""Housekeeping: times of last use are stored, idle workspaces closed, providers' own time-to-live renewed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import structlog

from workspaced_server.drivers.base import DriverError
from workspaced_server.errors import WorkspacedError
from workspaced_server.workspaces.entries import Entry
from workspaced_server.workspaces.manager import Workspaces
from workspaced_server.workspaces.record import State, now_us

_log = structlog.stdlib.get_logger("workspaced.expiry")
_RENEW_SECONDS = 60.0
_RENEW_AHEAD = timedelta(minutes=15)
_CONCURRENCY = 4
_ANSWER_SECONDS = 10.0
_CLOSE_SECONDS = 30.0


class Housekeeping:
    """Does the periodic work of one server. A workspace is idle when no call used it for its idle timeout.

    A running process counts as use unless the configuration says otherwise: to close a workspace under a running
    development server would be a surprise. What a backend does not answer holds up nothing of another backend, and
    neither the storing of times nor the renewing.
    """

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._expiring = {name: asyncio.Semaphore(_CONCURRENCY) for name in workspaces.drivers}
        self._renewing = {name: asyncio.Semaphore(_CONCURRENCY) for name in workspaces.drivers}

    async def run(self) -> None:
        """Work until cancelled."""
        seconds = self._workspaces.settings.housekeeping_seconds
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self.store, seconds))
            group.create_task(self._repeat(self.expire, seconds))
            group.create_task(self._repeat(self.renew, _RENEW_SECONDS))

    async def store(self) -> None:
        """Store times of last use, and go on with what is between two states."""
        ended = await self._workspaces.leases.prune()
        await self._workspaces.entries.touch(ended)
        await self._workspaces.entries.flush()
        await self._workspaces.resume_stuck()

    async def expire(self) -> None:
        """Close what is idle; returns when it is closed, or its backend has had its time and goes on alone."""
        workspaces = self._workspaces
        await workspaces.entries.flush()
        idle = [workspaces.entries.adopt(record) for record in await workspaces.registry.idle(now_us())]
        await asyncio.gather(*(self._expire(entry) for entry in idle))

    async def renew(self) -> None:
        """Extend the time-to-live of what is in use."""
        await asyncio.gather(*(self._renew(entry) for entry in self._workspaces.entries.in_use()))

    async def _repeat(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except WorkspacedError as error:  # the registry cannot be reached now: the next round will tell
                _log.warning("housekeeping postponed", cause=error.message)
            except Exception:  # noqa: BLE001 - a driver's or database's surprise must not end all later rounds
                _log.exception("housekeeping failed")

    async def _expire(self, entry: Entry) -> None:
        slots = self._expiring.get(entry.record.backend)
        if slots is None:  # no longer configured
            return
        async with slots:
            if not self._due(entry) or (self._workspaces.settings.idle_counts_processes and await self._busy(entry)):
                return
            if self._due(entry):
                _log.info("closing an idle workspace", workspace_id=entry.record.workspace_id, owner=entry.record.owner)
                try:
                    async with asyncio.timeout(_CLOSE_SECONDS):
                        await self._workspaces.close_idle(entry)
                except TimeoutError:
                    _log.warning("closing takes long", workspace_id=entry.record.workspace_id)

    def _due(self, entry: Entry) -> bool:
        if entry.uses or entry.flight is not None or entry.record.state is not State.READY:
            return False
        return self._workspaces.entries.used_until(entry) + entry.record.idle_seconds * 1_000_000 <= now_us()

    async def _busy(self, entry: Entry) -> bool:
        """Whether a process runs in it. Then, or when that cannot be found out, the idle time begins anew."""
        try:
            guest = await self._workspaces.transitions.channel(entry)
            # A guest that answers pings and nothing else must not hold up the other workspaces.
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = await guest.call("process.list", {"state": "running", "page_size": 1000, "page_token": ""})
            busy = bool(answer.get("next_page_token")) or any(map(_counts, answer.get("processes") or ()))
        except (WorkspacedError, OSError) as error:
            _log.warning("idle workspace not closed", workspace_id=entry.record.workspace_id, cause=str(error))
            busy = True
        if busy:
            entry.used_time = now_us()
        return busy

    async def _renew(self, entry: Entry) -> None:
        ref, slots = entry.record.sandbox, self._renewing.get(entry.record.backend)
        if ref is None or slots is None:
            return
        async with slots:
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    await self._workspaces.transitions.driver(entry).renew(ref, datetime.now(UTC) + _RENEW_AHEAD)
            except (DriverError, WorkspacedError, TimeoutError) as error:
                _log.warning("time-to-live not renewed", workspace_id=entry.record.workspace_id, cause=repr(error))


def _counts(process: object) -> bool:
    """Whether a running process is a use. Pipes are MCP servers of this server, which are used by calls alone."""
    return not isinstance(process, dict) or process.get("kind") != "pipe"
