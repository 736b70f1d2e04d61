"""The change feed: who watches gets the newest state of each workspace, however slowly it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from workspaced_server.drivers.base import Phase
from workspaced_server.workspaces.record import Record
from workspaced_server.workspaces.registry import Query


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an initialization is; ``fraction`` from 0 to 1, negative when unknown."""

    phase: Phase
    fraction: float = -1.0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A workspace at one revision. ``expire_time`` in microseconds since the epoch, 0 for never."""

    record: Record
    progress: Progress | None = None
    expire_time: int = 0


class Subscription:
    """One watcher's pending changes: at most one for each workspace."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._pending: dict[str, Snapshot] = {}
        self._changed = asyncio.Event()

    def offer(self, snapshot: Snapshot, *, last: bool) -> None:
        """Take a change; one for the same workspace that was not read yet is forgotten."""
        if self._query.matches(snapshot.record, any_state=last):
            # Removed first: a workspace that keeps changing goes to the end and starves nobody.
            self._pending.pop(snapshot.record.key, None)
            self._pending[snapshot.record.key] = snapshot
            self._changed.set()

    async def next(self) -> Snapshot:
        """The oldest change that was not read. When cancelled, nothing is lost."""
        while not self._pending:
            self._changed.clear()
            await self._changed.wait()
        return self._pending.pop(next(iter(self._pending)))


class Feed:
    """Hands each change to all watchers."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()

    def publish(self, snapshot: Snapshot, *, last: bool = False) -> None:
        """Tell every watcher that is concerned; ``last`` when the workspace is gone."""
        for subscription in self._subscriptions:
            subscription.offer(snapshot, last=last)

    @contextmanager
    def subscribe(self, query: Query) -> Iterator[Subscription]:
        """Watch from now on until the context is left."""
        subscription = Subscription(query)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
