"""All workspaces of a server: what RPCs ask for, decided once for each workspace at a time.

There is no lock over all of them. A transition is a :class:`~workspaced_server.workspaces.entries.Flight`: a task of
the manager, not of the call that asked for it, so a cancelled call leaves no workspace between two states.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from sqlalchemy.exc import IntegrityError

from workspaced.v1 import workspace_pb2 as pb
from workspaced_server.drivers.base import Driver
from workspaced_server.errors import Code, FieldViolation, WorkspacedError, invalid, unreachable
from workspaced_server.principal import current, current_call
from workspaced_server.workspaces import faults, spec
from workspaced_server.workspaces.channels import Connect, connect_guest
from workspaced_server.workspaces.entries import Entries, Entry, Flight, Kind
from workspaced_server.workspaces.failpoints import reach
from workspaced_server.workspaces.handle import WorkspaceHandle, handle_of
from workspaced_server.workspaces.identifiers import (
    check_labels,
    check_request_id,
    check_workspace_id,
    generate_workspace_id,
    key_of,
)
from workspaced_server.workspaces.leases import Leases
from workspaced_server.workspaces.locks import KeyedLocks
from workspaced_server.workspaces.pools import POOL, Pools
from workspaced_server.workspaces.quotas import process_room, quota
from workspaced_server.workspaces.record import Record, RevisionClock, State, now_us
from workspaced_server.workspaces.registry import Query, Registry, RegistryUnavailable
from workspaced_server.workspaces.settings import WorkspaceSettings
from workspaced_server.workspaces.tasks import Tasks
from workspaced_server.workspaces.transitions import Transitions
from workspaced_server.workspaces.watch import Feed, Snapshot

_log = structlog.stdlib.get_logger("workspaced.workspaces")
_REQUEST_SECONDS = 24 * 3600
_DEFAULT_GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Initialized:
    """What InitializeWorkspace answers."""

    snapshot: Snapshot
    created: bool


class Workspaces:
    """The workspaces of this server. All methods act for the principal of the present call, and raise
    WorkspacedError.
    """

    def __init__(
        self,
        registry: Registry,
        drivers: Mapping[str, Driver],
        settings: WorkspaceSettings,
        *,
        connect: Connect = connect_guest,
    ) -> None:
        self.drivers = drivers
        self.settings = settings
        self._registry = registry
        self._feed = Feed()
        self._tasks = Tasks()
        self._locks = KeyedLocks()
        self._entries = Entries(registry, self._feed)
        self._transitions = Transitions(self._entries, drivers, settings, self._tasks, connect)
        self.leases = Leases(registry)
        self._entries.held_until = self.leases.held_until
        self._transitions.observers.append(self.leases)
        self.pools = Pools(self)
        # Each refuses a resolved spec, before a workspace is made of it, by raising WorkspacedError.
        self.spec_checks: list[Callable[[pb.WorkspaceSpec], Awaitable[None]]] = []

    async def start(self) -> None:
        """Go on with what an earlier server left between two states. No guest is connected to before it is used."""
        self._entries.clock = RevisionClock(await self._registry.last_revision())
        await self.leases.load()
        await self.resume_stuck()

    async def aclose(self, grace: float = 0.0) -> None:
        """Wait up to ``grace`` seconds for transitions, leave the rest to the next server, and close all channels."""
        flights = [entry.flight.task for entry in self._entries.all() if entry.flight is not None]
        if flights and grace > 0:
            await asyncio.wait(flights, timeout=grace)
        self._transitions.stopping = True
        await self._tasks.aclose()
        await self._transitions.drop_channels()
        await self._entries.flush()

    @asynccontextmanager
    async def use(self, workspace_id: str) -> AsyncIterator[WorkspaceHandle]:
        """The READY workspace with a healthy channel, kept from expiry until the context is left.

        Raises NOT_FOUND; FAILED_PRECONDITION, WORKSPACE_NOT_READY; UNAVAILABLE, WORKSPACE_UNREACHABLE when its
        sandbox is gone or does not answer.
        """
        entry = await self._entries.resolve(workspace_id)
        record = entry.record
        if record.state is State.DEGRADED:
            raise unreachable(record.workspace_id, record.state_reason)
        if record.state is not State.READY:
            raise faults.not_ready(record)
        entry.uses += 1
        shared = None
        try:
            guest = await self._transitions.channel(entry)
            shared = entry.channel
            if shared is not None:
                shared.enter()
            yield handle_of(entry, guest, partial(process_room, self, entry))
        finally:
            entry.uses -= 1
            entry.used_time = now_us()
            if shared is not None:
                shared.leave()

    async def initialize(
        self,
        requested: pb.WorkspaceSpec,
        *,
        workspace_id: str = "",
        labels: Mapping[str, str] | None = None,
        request_id: str = "",
        no_wait: bool = False,
    ) -> Initialized:
        """Create a workspace or bring the one there is to READY, and wait for that unless ``no_wait``.

        Concurrent calls for one id are one provisioning. When cancelled, it goes on if others wait or the workspace
        existed.
        """
        principal, call = current(), current_call()
        owner = call.owner if call is not None and call.owner and principal.is_admin else principal.name
        marks = check_labels(dict(labels or {}))
        check_request_id(request_id)
        spec.check(requested)
        if workspace_id:
            check_workspace_id(workspace_id)
            return await self._initialize(owner, workspace_id, requested, marks, request_id, no_wait, generated=False)
        if not request_id:
            workspace_id = generate_workspace_id()
            return await self._initialize(owner, workspace_id, requested, marks, "", no_wait, generated=True)
        async with self._locks.hold(f"request\0{owner}\0{request_id}"):
            since = now_us() - _REQUEST_SECONDS * 1_000_000
            found = await self._registry.find_by_request(owner, request_id, since)
            workspace_id = found.workspace_id if found is not None else generate_workspace_id()
            flight, entry = await self._decide(
                owner, workspace_id, requested, marks, request_id, no_wait, generated=False
            )
            if flight is not None:
                # From here on the next call with this request id finds it.
                await flight.begun(entry.stored, keep=no_wait)
            created = flight is not None and flight.claim()
        return await self._finish(flight, entry, no_wait, created=created)

    async def close(self, workspace_id: str, grace: float | None = None) -> Snapshot:
        """End its processes (TERM, KILL after ``grace`` seconds) and suspend it. Idempotent. Goes on when the call is
        cancelled.
        """
        seconds = _DEFAULT_GRACE_SECONDS if grace is None else grace
        if not 0 <= seconds <= 3600:
            raise invalid(FieldViolation("grace", "must be from 0 s to an hour"))
        while True:
            entry = await self._entries.resolve(workspace_id)
            if entry.flight is None:
                if entry.record.state in (State.CLOSED, State.FAILED):
                    return self._entries.snapshot(entry)
                if entry.record.state is State.DELETING:
                    raise faults.not_ready(entry.record)
                await self._begin(entry, Kind.CLOSE, self._transitions.close(entry, seconds)).wait()
                return self._entries.snapshot(entry)
            if entry.flight.kind is Kind.CLOSE:
                await entry.flight.wait()
                return self._entries.snapshot(entry)
            await entry.flight.settled()

    async def reset(self, workspace_id: str, *, wipe_files: bool = False, kill_processes: bool = False) -> Snapshot:
        """Remove skills, sessions, data and MCP declarations. Idempotent. Goes on when the call is cancelled."""
        while True:
            entry = await self._entries.resolve(workspace_id)
            if entry.flight is not None:
                await entry.flight.settled()
                continue
            if entry.record.state is State.DEGRADED:
                raise unreachable(entry.record.workspace_id, entry.record.state_reason)
            if entry.record.state is not State.READY:
                raise faults.not_ready(entry.record)
            work = self._transitions.reset(entry, wipe_files=wipe_files, kill_processes=kill_processes)
            await self._begin(entry, Kind.RESET, work).wait()
            return self._entries.snapshot(entry)

    async def delete(self, workspace_id: str, *, allow_missing: bool = False) -> None:
        """Destroy it and its files. Goes on when the call is cancelled.

        An administrator deletes another owner's only by naming the owner, so that a repeated Delete never meets a
        namesake.
        """
        seen = False
        while True:
            try:
                entry = await self._entries.resolve(workspace_id, own=True)
            except WorkspacedError as error:
                if error.code is Code.NOT_FOUND and (allow_missing or seen):
                    return
                raise
            seen = True
            if entry.flight is None:
                await self._begin(entry, Kind.DELETE, self._transitions.delete(entry)).wait()
                return
            if entry.flight.kind is Kind.DELETE:
                await entry.flight.wait()
                return
            if entry.flight.kind in (Kind.INITIALIZE, Kind.RESET):
                # What a guest is asked for in a reset may never be answered.
                entry.flight.cancel(faults.deleted_meanwhile(entry.record))
            await entry.flight.settled()

    async def get(self, workspace_id: str) -> Snapshot:
        """The workspace as it is now."""
        return self._entries.snapshot(await self._entries.resolve(workspace_id))

    async def list(self, query: Query, size: int) -> list[Snapshot]:
        """Up to ``size`` of the caller's workspaces (an administrator's: everybody's) that match, by time of
        creation.
        """
        records = await self._registry.page(self._visible(query), size)
        return [self._newest(record) for record in records]

    async def watch(self, query: Query) -> AsyncGenerator[Snapshot | None, None]:
        """The present state of each workspace that matches, then None, then every change, until the iterator is
        closed.
        """
        query = self._visible(query)
        sent: dict[str, int] = {}
        with self._feed.subscribe(query) as subscription:
            after: tuple[int, str] | None = None
            while True:
                page = Query(query.owner, query.states, query.backends, query.workspace_ids, query.labels, after)
                records = await self._registry.page(page, 500)
                for record in records:
                    snapshot = self._newest(record)
                    if query.matches(snapshot.record):
                        sent[record.key] = snapshot.record.revision
                        yield snapshot
                if len(records) < 500:
                    break
                after = (records[-1].create_time, records[-1].key)
            yield None
            while True:
                snapshot = await subscription.next()
                key, revision = snapshot.record.key, snapshot.record.revision
                if revision > sent.get(key, -1):
                    if snapshot.record.state is State.DELETED:
                        sent.pop(key, None)
                    else:
                        sent[key] = revision
                    yield snapshot

    # For housekeeping: expiry and sweep.

    @property
    def registry(self) -> Registry:
        """The registry, to be read."""
        return self._registry

    def owner_of(self, key: str) -> str:
        """The owner of a workspace in use, by its key in the registry."""
        entry = self._entries.get(key)
        return entry.record.owner if entry is not None else ""

    @property
    def entries(self) -> Entries:
        """What is in memory."""
        return self._entries

    @property
    def transitions(self) -> Transitions:
        """Steps between states; only within a flight."""
        return self._transitions

    async def resume_stuck(self) -> None:
        """Drive every row that is between two states, and has no flight, to a defined state. Does not wait for the
        ends.
        """
        for record in await self._registry.in_states(State.INITIALIZING, State.CLOSING, State.DELETING):
            entry = self._entries.adopt(record)
            record = entry.record
            if entry.flight is not None or self._transitions.stopping:
                continue
            if record.state is State.DELETING or (record.state is State.INITIALIZING and record.disposable):
                self._begin(entry, Kind.DELETE, self._transitions.delete(entry))
            elif record.state is State.CLOSING:
                self._begin(entry, Kind.CLOSE, self._transitions.close(entry, _DEFAULT_GRACE_SECONDS))
            elif record.state is State.INITIALIZING:
                flight = Flight(Kind.INITIALIZE, creates=record.restore is None, keep=1)
                self._launch(entry, flight, self._transitions.initialize(entry, flight))

    async def close_idle(self, entry: Entry) -> None:
        """Close a workspace whose idle time is over, unless somebody uses it now."""
        if entry.flight is None and not entry.uses and entry.record.state is State.READY:
            await self._begin(entry, Kind.CLOSE, self._transitions.close(entry, _DEFAULT_GRACE_SECONDS)).settled()

    async def _initialize(
        self,
        owner: str,
        workspace_id: str,
        requested: pb.WorkspaceSpec,
        labels: Mapping[str, str],
        request_id: str,
        no_wait: bool,
        *,
        generated: bool,
    ) -> Initialized:
        flight, entry = await self._decide(
            owner, workspace_id, requested, labels, request_id, no_wait, generated=generated
        )
        created = flight is not None and flight.claim()
        return await self._finish(flight, entry, no_wait, created=created)

    async def _decide(
        self,
        owner: str,
        workspace_id: str,
        requested: pb.WorkspaceSpec,
        labels: Mapping[str, str],
        request_id: str,
        no_wait: bool,
        *,
        generated: bool,
    ) -> tuple[Flight | None, Entry]:
        """Begin or join what makes the workspace READY; no flight when it is."""
        key = key_of(owner, workspace_id)
        settings = self.settings
        call = current_call()
        if call is not None:
            call.workspace_id = workspace_id
        checked = False
        while True:
            entry = await self._entries.load(key)
            if entry is None:
                resolved = spec.resolve(requested, settings.templates, settings.default_backend)
                if self.spec_checks and not checked:
                    for check in self.spec_checks:
                        await check(resolved)
                    checked = True
                    continue  # somebody else may have been quicker
                entry = self._entries.place(
                    self._new_record(
                        owner, workspace_id, requested, resolved, labels, request_id, generated and not no_wait
                    )
                )
                flight = Flight(Kind.INITIALIZE, creates=True, keep=int(no_wait))
                return self._launch(entry, flight, self._create(entry, flight)), entry
            running = entry.flight
            if running is not None and running.kind in (Kind.CLOSE, Kind.DELETE):
                await running.settled()
                continue
            if running is None and entry.record.state is State.DELETING:
                await self._begin(entry, Kind.DELETE, self._transitions.delete(entry)).wait()
                continue
            spec.compare(entry.record, requested, settings.templates, settings.default_backend)
            if running is not None and running.kind is Kind.INITIALIZE:
                if not running.task.cancelling():
                    running.keep += no_wait
                    return running, entry
                await running.settled()
                continue
            connected = entry.channel is not None and entry.channel.open is not None
            if entry.record.state is State.READY and (running is not None or connected):
                return None, entry
            flight = Flight(Kind.INITIALIZE, keep=1)
            return self._launch(entry, flight, self._transitions.initialize(entry, flight)), entry

    async def _finish(self, flight: Flight | None, entry: Entry, no_wait: bool, *, created: bool) -> Initialized:
        if flight is not None:
            if no_wait:
                await flight.begun(entry.stored, keep=True)
            else:
                await flight.wait()
        entry.used_time = now_us()
        return Initialized(self._entries.snapshot(entry), created)

    async def _create(self, entry: Entry, flight: Flight) -> None:
        try:
            reach("create.begun")
            spare = self.pools.take(entry.record)
            if spare is None or not await self._claim(entry, spare):
                await self._entries.insert(entry, quota(entry.record, self.settings))
        except asyncio.CancelledError:
            if entry.stored.is_set():
                await self._entries.remove(entry)
            raise
        except IntegrityError as error:
            # The row is another's, and what a repeated call attaches to.
            raise RegistryUnavailable("another server created this workspace meanwhile") from error
        finally:
            if not entry.stored.is_set():
                self._entries.forget(entry)
        reach("create.stored")
        await self._transitions.initialize(entry, flight)

    async def _claim(self, entry: Entry, spare: Entry) -> bool:
        """Create the workspace with the spare's sandbox; False when the spare is gone."""
        try:
            claimed = await self._entries.claim(entry, spare, quota(entry.record, self.settings))
        finally:
            self.pools.given(spare)
        if spare.channel is not None:
            await spare.channel.drop()
        return claimed

    def _new_record(
        self,
        owner: str,
        workspace_id: str,
        requested: pb.WorkspaceSpec,
        resolved: pb.WorkspaceSpec,
        labels: Mapping[str, str],
        request_id: str,
        disposable: bool,
    ) -> Record:
        now = now_us()
        idle = resolved.idle_timeout
        seconds = idle.seconds + (1 if idle.nanos else 0) or self.settings.idle_timeout_seconds
        if owner == POOL.name:
            seconds = 0  # it waits to be used
        return Record(
            key=key_of(owner, workspace_id),
            owner=owner,
            workspace_id=workspace_id,
            backend=spec.backend_name(resolved.backend),
            state=State.INITIALIZING,
            spec=spec.serialize(resolved),
            requested=spec.serialize(requested),
            token=secrets.token_hex(32),
            create_time=now,
            update_time=now,
            last_used_time=now,
            revision=self._entries.clock.next(),
            labels=dict(labels),
            request_id=request_id,
            idle_seconds=seconds,
            disposable=disposable,
        )

    def _begin(self, entry: Entry, kind: Kind, work: Coroutine[Any, Any, None]) -> Flight:
        return self._launch(entry, Flight(kind), work)

    def _launch(self, entry: Entry, flight: Flight, work: Coroutine[Any, Any, None]) -> Flight:
        assert entry.flight is None
        entry.flight = flight
        flight.task = self._tasks.start(self._fly(entry, flight, work), f"{flight.kind.value}-{entry.record.key}")

        def landed(_: object) -> None:
            # Here and not in the task, which does not even begin when it is cancelled at once.
            work.close()
            if entry.flight is flight:
                entry.flight = None
            if not entry.stored.is_set():
                self._entries.forget(entry)

        flight.task.add_done_callback(landed)
        return flight

    async def _fly(self, entry: Entry, flight: Flight, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            if flight.cancel_reason is not None:
                raise flight.cancel_reason from None
            raise faults.stopping() from None
        finally:
            entry.flight = None  # before anybody who waits for the task goes on

    def _visible(self, query: Query) -> Query:
        principal, call = current(), current_call()
        owner: str | None = principal.name
        if principal.is_admin:
            owner = call.owner if call is not None and call.owner else None
        return Query(owner, query.states, query.backends, query.workspace_ids, query.labels, query.after)

    def _newest(self, record: Record) -> Snapshot:
        entry = self._entries.get(record.key)
        return self._entries.snapshot(entry if entry is not None else Entry(record, record.last_used_time))
