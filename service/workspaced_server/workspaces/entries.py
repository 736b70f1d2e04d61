"""Workspaces in memory: those in use or in transition, each beside its durable record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from workspaced.v1 import workspace_pb2 as pb
from workspaced_server.drivers.uninterrupted import uninterrupted
from workspaced_server.errors import Code, WorkspacedError, workspace_not_found
from workspaced_server.principal import current, current_call
from workspaced_server.workspaces.channels import SharedChannel
from workspaced_server.workspaces.identifiers import check_workspace_id, key_of
from workspaced_server.workspaces.record import Record, RevisionClock, State, now_us
from workspaced_server.workspaces.registry import Registry
from workspaced_server.workspaces.watch import Feed, Progress, Snapshot

if TYPE_CHECKING:
    from workspaced_server.workspaces.handle import WorkspaceHandle

_CACHE_ENTRIES = 4096


class Kind(Enum):
    """What a flight does."""

    INITIALIZE = "initialize"
    CLOSE = "close"
    RESET = "reset"
    DELETE = "delete"


class Flight:
    """The one transition that a workspace is in. All who want it wait for the same task.

    ``creates``: it is undone when the last waiter leaves. ``keep``: how many do not wait, so that it goes on and a
    failure stays visible as FAILED.
    """

    def __init__(self, kind: Kind, *, creates: bool = False, keep: int = 0) -> None:
        self.kind = kind
        self.creates = creates
        self.keep = keep
        self.task: asyncio.Task[None]
        self.cancel_reason: WorkspacedError | None = None
        self._claimed = not creates
        self._waiters = 0

    def claim(self) -> bool:
        """True for the one call that may say it created the workspace."""
        claimed, self._claimed = self._claimed, True
        return not claimed

    async def wait(self) -> None:
        """Wait for the end; raises what the transition raised.

        When cancelled, the transition goes on, unless it creates a workspace that nobody else waits for.
        """
        with self._waiting():
            try:
                await asyncio.shield(self.task)
            except asyncio.CancelledError:
                if self.task.cancelled() and self.cancel_reason is not None:
                    raise self.cancel_reason from None
                raise

    async def begun(self, stored: asyncio.Event, *, keep: bool) -> None:
        """Wait until its row is ``stored``, or raise why it never will be.

        A caller that is cancelled here has left as one of :meth:`wait` does, and its ``keep`` no longer counts.
        """
        row = asyncio.ensure_future(stored.wait())
        with self._waiting():
            try:
                await asyncio.wait([row, self.task], return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                self.keep -= keep
                raise
            finally:
                row.cancel()
        if not stored.is_set():
            await self.wait()

    async def settled(self) -> None:
        """Wait for the end, however it ends."""
        await asyncio.wait([self.task])

    def cancel(self, reason: WorkspacedError) -> None:
        """End it; its waiters get ``reason``."""
        self.cancel_reason = self.cancel_reason or reason
        self._cancel()

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self._waiters += 1
        try:
            yield
        except asyncio.CancelledError:
            if self.creates and not self.keep and self._waiters == 1:
                self._cancel()
            raise
        finally:
            self._waiters -= 1

    def _cancel(self) -> None:
        # Once only: a second one would interrupt the undoing.
        if not self.task.done() and not self.task.cancelling():
            self.task.cancel()


@dataclass(eq=False, slots=True)
class Entry:
    """A workspace in memory. ``used_time`` in microseconds, newer than the record's by up to a minute.

    ``stored`` is set once the record is durable. Whoever writes the record holds ``writing``.
    """

    record: Record
    used_time: int
    uses: int = 0
    channel: SharedChannel | None = None
    flight: Flight | None = None
    progress: Progress | None = None
    handle: WorkspaceHandle | None = None
    stored: asyncio.Event = field(default_factory=asyncio.Event)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def spec(self) -> pb.WorkspaceSpec:
        """The resolved spec, secrets included."""
        return pb.WorkspaceSpec.FromString(self.record.spec)


class Entries:
    """Finds entries, and is the only writer of records: registry first, then memory, then watchers.

    A write that has begun is done in all three even when its caller is cancelled, and in none when it fails.
    """

    def __init__(self, registry: Registry, feed: Feed) -> None:
        self.registry = registry
        self.feed = feed
        self.clock = RevisionClock()
        self.held_until: Callable[[str], int] = lambda _: 0
        self._entries: dict[str, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    async def load(self, key: str) -> Entry | None:
        """The entry with this key, from memory or the registry."""
        entry = self._entries.get(key)
        if entry is None:
            record = await self.registry.get(key)
            # Another task may have loaded or made it meanwhile: there is only ever one.
            entry = self._entries.get(key)
            if entry is None and record is not None:
                entry = self.adopt(record)
        return entry

    def adopt(self, record: Record) -> Entry:
        """The entry of a record that was just read, unless there is one that is newer."""
        entry = self._entries.get(record.key)
        if entry is None:
            entry = self._entries[record.key] = Entry(record, record.last_used_time)
            entry.stored.set()
        return entry

    def get(self, key: str) -> Entry | None:
        """The entry with this key if it is in memory."""
        return self._entries.get(key)

    async def resolve(self, workspace_id: str, *, own: bool = False) -> Entry:
        """The workspace that the caller means by this id. Raises NOT_FOUND, WORKSPACE_NOT_FOUND.

        An administrator's own one wins; else the only one with this id is meant, unless ``own``. Metadata
        ``x-workspaced-owner`` names whose is meant.
        """
        check_workspace_id(workspace_id)
        principal, call = current(), current_call()
        owner = principal.name
        if call is not None:
            call.workspace_id = workspace_id
            if call.owner and principal.is_admin:
                owner, own = call.owner, True
        entry = await self.load(key_of(owner, workspace_id))
        if entry is None and principal.is_admin and not own:
            found = await self.registry.find_by_id(workspace_id)
            if len(found) > 1:
                raise WorkspacedError(
                    Code.FAILED_PRECONDITION,
                    "WORKSPACE_AMBIGUOUS",
                    f"several principals have a workspace {workspace_id!r}; metadata x-workspaced-owner names whose",
                    {"workspace_id": workspace_id},
                )
            entry = self.adopt(found[0]) if found else None
        if entry is None:
            raise workspace_not_found(workspace_id)
        return entry

    async def insert(self, entry: Entry, check: Callable[[Sequence[Record]], None] | None = None) -> None:
        """Make the entry's record durable unless ``check``, which is given its owner's others, raises; tell watchers.

        ``entry.stored`` tells, also when this is cancelled, whether the record was written.
        """

        async def write() -> None:
            await self.registry.insert(entry.record, check)
            entry.stored.set()
            self.publish(entry)

        await uninterrupted(write())

    async def claim(self, entry: Entry, spare: Entry, check: Callable[[Sequence[Record]], None] | None = None) -> bool:
        """The same with the sandbox of ``spare``, which is forgotten; False when the spare is gone."""
        mine, record = entry.record, spare.record
        entry.record = replace(
            mine,
            sandbox_key=record.provider_key,
            token=record.token,
            ref=record.ref,
            workdir=record.workdir,
            persistent=record.persistent,
        )

        async def write() -> bool:
            async with spare.writing:
                if not await self.registry.claim(entry.record, record.key, check):
                    return False
                entry.stored.set()
                self.forget(spare)
                spare.record = replace(
                    record, state=State.DELETED, state_reason="handed out", revision=self.clock.next()
                )
                self.publish(spare, last=True)
                self.publish(entry)
                return True

        try:
            return await uninterrupted(write())
        finally:
            if not entry.stored.is_set():
                entry.record = mine

    def place(self, record: Record) -> Entry:
        """The entry of a workspace that is about to be created."""
        entry = self._entries[record.key] = Entry(record, record.last_used_time)
        return entry

    async def save(self, entry: Entry, **changes: Any) -> None:
        """Change the record. When this raises, nothing was changed; a cancelled write is done unless it fails."""

        async def write() -> None:
            async with entry.writing:
                record = replace(
                    entry.record,
                    update_time=now_us(),
                    last_used_time=max(entry.used_time, entry.record.last_used_time),
                    revision=self.clock.next(),
                    **changes,
                )
                await self.registry.update(record)
                entry.record = record
                entry.handle = None
                self.publish(entry)

        await uninterrupted(write())

    async def remove(self, entry: Entry, reason: str = "") -> None:
        """Forget the workspace; watchers see it DELETED. Cancellation and failure as with :meth:`save`."""

        async def write() -> None:
            async with entry.writing:
                await self.registry.delete(entry.record.key)
                self.forget(entry)
                entry.progress = None
                revision = self.clock.next()
                entry.record = replace(
                    entry.record, state=State.DELETED, state_reason=reason, update_time=now_us(), revision=revision
                )
                self.publish(entry, last=True)

        await uninterrupted(write())

    def forget(self, entry: Entry) -> None:
        """Drop it from memory."""
        if self._entries.get(entry.record.key) is entry:
            del self._entries[entry.record.key]

    def publish(self, entry: Entry, *, last: bool = False) -> None:
        """Tell watchers of the entry's present state."""
        self.feed.publish(self.snapshot(entry), last=last)

    def report(self, entry: Entry, progress: Progress) -> None:
        """Set how far the initialization is. Not durable."""
        entry.progress = progress
        entry.record = replace(entry.record, revision=self.clock.next())
        self.publish(entry)

    def snapshot(self, entry: Entry) -> Snapshot:
        """The workspace as a caller sees it now."""
        record = entry.record
        if entry.used_time > record.last_used_time:
            record = replace(record, last_used_time=entry.used_time)
        expire_time = 0
        if record.state is State.READY and record.idle_seconds and not entry.uses:
            expire_time = self.used_until(entry) + record.idle_seconds * 1_000_000
        progress = entry.progress if record.state is State.INITIALIZING else None
        return Snapshot(record, progress, expire_time)

    def used_until(self, entry: Entry) -> int:
        """When it was used last, or when the last lease ends, in microseconds; its idle time begins then."""
        return max(entry.used_time, entry.record.last_used_time, self.held_until(entry.record.key))

    async def touch(self, times: Mapping[str, int]) -> None:
        """These workspaces, by key, were in use until these times, in microseconds."""
        for key, until in times.items():
            entry = await self.load(key)
            if entry is not None:
                entry.used_time = max(entry.used_time, until)

    async def touch_now(self, key: str) -> None:
        """This workspace was in use until now."""
        await self.touch({key: now_us()})

    async def flush(self) -> None:
        """Store times of last use, and drop entries that nothing holds when there are many."""
        now = now_us()
        changed: dict[str, int] = {}
        for key, entry in self._entries.items():
            if entry.uses:
                entry.used_time = now
            if entry.used_time - entry.record.last_used_time >= 1_000_000:
                changed[key] = entry.used_time
        await self.registry.touch(changed)
        for key, used in changed.items():
            stored = self._entries.get(key)
            if stored is not None:
                stored.record = replace(stored.record, last_used_time=max(used, stored.record.last_used_time))
        if len(self._entries) > _CACHE_ENTRIES:
            for entry in list(self._entries.values()):
                held = entry.uses or entry.flight or (entry.channel is not None and entry.channel.open)
                if not held and entry.used_time <= entry.record.last_used_time:
                    self.forget(entry)

    def in_use(self) -> list[Entry]:
        """Entries that calls hold now."""
        return [entry for entry in self._entries.values() if entry.uses]

    def owned_by(self, owner: str) -> list[Entry]:
        """Entries in memory of this owner."""
        return [entry for entry in self._entries.values() if entry.record.owner == owner]

    def all(self) -> list[Entry]:
        """All entries in memory."""
        return list(self._entries.values())
