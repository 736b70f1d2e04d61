"""All instances of a server: found by key, admitted by capacity and quota, closed when nobody uses them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.guest.channel import ChannelLost
from workspaced_server.mcps import failures
from workspaced_server.mcps.failures import McpFailure
from workspaced_server.mcps.instance import Connect, Instance, InstanceKey
from workspaced_server.mcps.place import Place

if TYPE_CHECKING:
    from workspaced_server.mcps.connection import Connection
    from workspaced_server.mcps.declarations import Declaration
    from workspaced_server.mcps.settings import McpSettings

_LONGEST_SLEEP = 60.0
_END_SECONDS = 10.0
# Of instances that do not live; what a server said of itself is kept with them.
_KEPT = 2000


class Instances:
    """Instances by key. There is no lock over them: a slow server holds up nobody else."""

    def __init__(self, settings: McpSettings, connect: Connect) -> None:
        self._settings = settings
        self._connect = connect
        self._known: dict[InstanceKey, Instance] = {}
        self._extra: set[Instance] = set()  # of servers that are being added
        self._freed = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False

    def find(self, key: InstanceKey) -> Instance | None:
        """The instance, if it was ever needed."""
        return self._known.get(key)

    def get(self, key: InstanceKey, declaration: Declaration, owner: str) -> Instance:
        """The instance of this declaration; one of another declaration under this name is ended."""
        found = self._known.get(key)
        if found is not None:
            if found.declaration.identity == declaration.identity:
                return found
            found.retire(failures.ended(key.name, "it was declared anew"))
        found = self._known[key] = self.make(key, declaration, owner)
        self._forget_some()
        return found

    def make(self, key: InstanceKey, declaration: Declaration, owner: str) -> Instance:
        """An instance that is not found by its key."""
        return Instance(key, declaration, owner, self._settings, self._connect, self._freed.set)

    @asynccontextmanager
    async def adding(self, instance: Instance) -> AsyncIterator[None]:
        """Count an instance that is not declared yet. What is not kept by the end is ended."""
        self._extra.add(instance)
        try:
            yield
        finally:
            self._extra.discard(instance)
            if self._known.get(instance.key) is not instance:
                instance.retire(failures.ended(instance.key.name, "it was not added"))
            self._freed.set()

    def keep(self, instance: Instance) -> None:
        """An instance that was added is found by its key from now on."""
        before = self._known.get(instance.key)
        if before is not None and before is not instance:
            before.retire(failures.ended(instance.key.name, "it was declared anew"))
        self._known[instance.key] = instance
        self._keep_house()

    @asynccontextmanager
    async def use(self, instance: Instance, place: Place) -> AsyncIterator[Connection]:
        """A connection that calls can be made on, opened if need be. Concurrent users wait for one start, which goes
        on without them.

        Raises WorkspacedError MCP_UNAVAILABLE, QUOTA_EXCEEDED; ChannelLost.
        """
        async with instance.used():
            try:
                yield await self._usable(instance, place)
            finally:
                self._freed.set()

    async def _usable(self, instance: Instance, place: Place) -> Connection:
        again = False
        while True:
            connection = instance.connection
            if connection is not None and connection.usable:
                return connection
            if connection is not None and not connection.ended.is_set():
                if connection.closing:
                    await connection.wait_closed()
                    continue
                try:
                    await asyncio.shield(connection.opened)
                except McpFailure as failure:
                    raise failures.unavailable(instance.key.name, failure, max(0.0, instance.retry_after)) from failure
                except ChannelLost:
                    # It was opened on a channel that is no more; once more on the present one.
                    if again or place.guest.closed:
                        raise
                    again = True
                continue
            instance.check_startable()
            if self._closed:
                raise failures.ended(instance.key.name, "the server is shutting down")
            if not self._room(instance):
                self._freed.clear()
                await self._freed.wait()
                continue
            instance.start(place)
            self._keep_house()

    def _room(self, instance: Instance) -> bool:
        """Whether it may be started now, ending another one if need be. Raises RESOURCE_EXHAUSTED."""
        settings = self._settings
        live = [other for other in (*self._known.values(), *self._extra) if other.live and other is not instance]
        most = settings.max_instances_per_owner
        if most and sum(other.owner == instance.owner for other in live) >= most:
            raise _too_many(instance.owner, most)
        most = settings.max_instances_per_workspace
        here = [other for other in live if other.key.workspace == instance.key.workspace]
        counted = [other for other in here if other.uses or not other.declaration.mcp.stateless]
        if not most or len(counted) < most:
            return True
        idle = [other for other in counted if not other.uses]
        if not idle:
            return False
        min(idle, key=lambda other: other.used_at).stop()
        return True

    async def end(self, matches: Callable[[InstanceKey], bool], cause: Callable[[str], WorkspacedError]) -> int:
        """End and forget instances; calls that run in them end with the cause. Returns how many there were."""
        found = [instance for instance in (*self._known.values(), *self._extra) if matches(instance.key)]
        ending = []
        for instance in found:
            if self._known.get(instance.key) is instance:
                del self._known[instance.key]
            connection = instance.retire(cause(instance.key.name))
            if connection is not None:
                ending.append(connection)
        self._freed.set()
        await _wait_closed(ending)
        return len(found)

    async def aclose(self) -> None:
        """End all, and start no more. Idempotent."""
        self._closed = True
        await self.end(lambda _: True, lambda name: failures.ended(name, "the server is shutting down"))
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])

    def _keep_house(self) -> None:
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.create_task(self._close_idle(), name="mcp-housekeeping")

    async def _close_idle(self) -> None:
        """Close instances whose idle time is over, until none lives."""
        while live := [instance for instance in self._known.values() if instance.live]:
            now = time.monotonic()
            next_due = now + _LONGEST_SLEEP
            for instance in live:
                limit = self._idle_limit(instance)
                if not limit:
                    continue
                due = now + limit if instance.uses else instance.used_at + limit
                if due <= now:
                    instance.stop()
                else:
                    next_due = min(next_due, due)
            await asyncio.sleep(max(0.01, next_due - now))

    def _idle_limit(self, instance: Instance) -> float:
        settings = self._settings
        if instance.declaration.mcp.stateless and settings.stateless_idle_close_seconds:
            return settings.stateless_idle_close_seconds
        return settings.idle_close_seconds

    def _forget_some(self) -> None:
        """Forget what is not running and not waited for, the longest unused first."""
        if len(self._known) <= _KEPT:
            return
        resting = [item for item in self._known.values() if not item.live and not item.uses and item.failure is None]
        for instance in sorted(resting, key=lambda item: item.used_at)[: len(self._known) - _KEPT]:
            del self._known[instance.key]


async def _wait_closed(connections: Iterable[Connection]) -> None:
    waits = [asyncio.ensure_future(connection.wait_closed()) for connection in connections]
    if waits:
        _, late = await asyncio.wait(waits, timeout=_END_SECONDS)
        for wait in late:
            wait.cancel()


def _too_many(owner: str, most: int) -> WorkspacedError:
    text = f"principal {owner!r} has {most} MCP instances, the most that this server allows; remove one"
    return WorkspacedError(
        Code.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", text, {"limit": str(most)}, quota=(f"principal:{owner}", text)
    )
