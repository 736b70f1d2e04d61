"""Pools: workspaces of a template that are made ready before anybody asks for one."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from workspaced.v1 import workspace_pb2 as pb
from workspaced_server.errors import WorkspacedError
from workspaced_server.principal import Principal, Scope, bind
from workspaced_server.workspaces import spec
from workspaced_server.workspaces.entries import Entry
from workspaced_server.workspaces.record import Record, State, now_us
from workspaced_server.workspaces.registry import Query
from workspaced_server.workspaces.settings import PoolSettings

if TYPE_CHECKING:
    from workspaced_server.workspaces.manager import Workspaces

POOL = Principal("(pool)", frozenset({Scope.MANAGE}))
"""Who owns what waits in a pool. No caller can have this name: a principal's name holds no parentheses."""

DEFAULT_TEMPLATE = "default"
"""The template that always exists: what the configuration says of it, or the server's defaults."""

_ROUND_SECONDS = 15.0
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 1.0, 300.0
_log = structlog.stdlib.get_logger("workspaced.pools")


def wanted(template: str, templates: Mapping[str, pb.WorkspaceSpec]) -> pb.WorkspaceSpec:
    """The spec that asks for a template. Who acquires a workspace comes back to it, so it keeps its files unless the
    template says otherwise.
    """
    configured = templates.get(template)
    asked = pb.WorkspaceSpec()
    if configured is not None or template != DEFAULT_TEMPLATE:
        asked.template = template
    if configured is None or not configured.persistence:
        asked.persistence = pb.PERSISTENCE_PERSISTENT
    return asked


class Pools:
    """Keeps each pool at its size. What waits is an ordinary workspace of the owner `POOL`; it is handed out by giving
    its sandbox to the new workspace, once its guest has answered.
    """

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._settings = workspaces.settings.pools
        self._taken: set[str] = set()
        self._creating: dict[str, int] = dict.fromkeys(self._settings, 0)
        self._failures: dict[str, int] = {}
        self._retry_at: dict[str, float] = {}
        self._wake = asyncio.Event()

    def take(self, record: Record) -> Entry | None:
        """A spare that is what ``record`` wants, or None. It is the caller's from now on, who must use it or call
        :meth:`dispose`.
        """
        spares = [
            entry
            for entry in self._workspaces.entries.owned_by(POOL.name)
            if entry.record.state is State.READY
            and entry.flight is None
            and entry.record.key not in self._taken
            and entry.record.spec == record.spec
            and not self._too_old(entry)
        ]
        if not spares or record.owner == POOL.name:
            return None
        spare = min(spares, key=lambda entry: entry.record.create_time)
        self._taken.add(spare.record.key)
        self._wake.set()
        return spare

    def given(self, spare: Entry) -> None:
        """The spare's sandbox belongs to another workspace now, or the spare is gone."""
        self._taken.discard(spare.record.key)
        self._wake.set()

    async def run(self) -> None:
        """Fill the pools until cancelled; what is being made then is finished by the next server."""
        if not self._settings and not await self._stored():
            return
        bind(POOL)
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                try:
                    await self._round(group)
                except WorkspacedError as error:
                    _log.warning("pools not looked after", cause=error.message)
                try:
                    async with asyncio.timeout(_ROUND_SECONDS):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    async def _stored(self) -> list[Entry]:
        records = await self._workspaces.registry.page(Query(owner=POOL.name), 10_000)
        return [self._workspaces.entries.adopt(record) for record in records]

    async def _round(self, group: asyncio.TaskGroup) -> None:
        settings = self._workspaces.settings
        spares: dict[str, list[Entry]] = {name: [] for name in self._settings}
        for entry in await self._stored():
            name = entry.record.labels.get("template", "")
            if entry.record.key in self._taken or entry.flight is not None:
                continue
            fresh = name in self._settings and not self._too_old(entry) and entry.record.state is State.READY
            if fresh:
                asked = spec.resolve(wanted(name, settings.templates), settings.templates, settings.default_backend)
                fresh = spec.serialize(asked) == entry.record.spec
            if fresh and len(spares[name]) < self._settings[name].size:
                spares[name].append(entry)
            else:
                self._taken.add(entry.record.key)
                group.create_task(self._delete(entry))
        for name, pool in self._settings.items():
            missing = pool.size - len(spares[name]) - self._creating[name]
            room = pool.max_creating - self._creating[name]
            if time.monotonic() < self._retry_at.get(name, 0.0):
                continue
            for _ in range(min(missing, room)):
                self._creating[name] += 1
                group.create_task(self._create(name))

    async def _create(self, name: str) -> None:
        template = wanted(name, self._workspaces.settings.templates)
        began = time.monotonic()
        try:
            await self._workspaces.initialize(
                template, workspace_id=f"pool-{name}-{secrets.token_hex(6)}", labels={"template": name}
            )
        except WorkspacedError as error:
            self._failures[name] = failures = self._failures.get(name, 0) + 1
            pause = min(_FIRST_RETRY_SECONDS * 2 ** min(failures, 16), _LONGEST_RETRY_SECONDS)
            self._retry_at[name] = time.monotonic() + pause
            _log.warning("pool not filled", template=name, cause=error.message, retry_seconds=pause)
        else:
            self._failures.pop(name, None)
            _log.info("spare ready", template=name, seconds=round(time.monotonic() - began, 2))
        finally:
            self._creating[name] -= 1
            self._wake.set()

    async def _delete(self, entry: Entry) -> None:
        try:
            await self._workspaces.delete(entry.record.workspace_id, allow_missing=True)
        except WorkspacedError as error:
            _log.warning("spare not deleted", workspace_id=entry.record.workspace_id, cause=error.message)
        finally:
            self._taken.discard(entry.record.key)

    def _too_old(self, entry: Entry) -> bool:
        pool: PoolSettings | None = self._settings.get(entry.record.labels.get("template", ""))
        age = now_us() - entry.record.create_time
        return pool is None or bool(pool.max_age_seconds and age > pool.max_age_seconds * 1_000_000)
