"""Leases: what keeps a workspace from being closed for idleness, durably."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

import sqlalchemy as sa

from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.workspaces.record import now_us
from workspaced_server.workspaces.registry import Registry
from workspaced_server.workspaces.tables import leases as table


@dataclass(frozen=True, slots=True)
class Lease:
    """One lease. Times are microseconds since the epoch, ``duration`` microseconds."""

    lease_id: str
    owner: str
    workspace_key: str
    workspace_id: str
    duration: int
    expire_time: int


class Leases:
    """The leases of this server's workspaces. Memory answers, the registry remembers; it is written first."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._leases: dict[str, Lease] = {}
        self._of_workspace: dict[str, set[str]] = {}

    async def load(self) -> None:
        """Go on with what an earlier server gave."""
        rows = await self._registry.transact(lambda connection: connection.execute(table.select()).mappings().all())
        for row in rows:
            self._remember(Lease(**row))

    def held_until(self, key: str) -> int:
        """When the last lease of the workspace ends or has ended; 0 when there is none."""
        return max((self._leases[lease].expire_time for lease in self._of_workspace.get(key, ())), default=0)

    async def grant(self, owner: str, key: str, workspace_id: str, duration: int) -> Lease:
        """A new lease, durable."""
        lease = Lease(secrets.token_urlsafe(18), owner, key, workspace_id, duration, now_us() + duration)
        values = {name: getattr(lease, name) for name in Lease.__slots__}
        await self._registry.share(lambda connection: connection.execute(table.insert().values(values)))
        self._remember(lease)
        return lease

    async def renew(self, owner: str, lease_id: str, duration: int | None) -> Lease:
        """Let it end ``duration`` from now, as it was granted when None.

        Raises WorkspacedError NOT_FOUND, LEASE_NOT_FOUND when there is none or it has expired.
        """
        lease = self._leases.get(lease_id)
        if lease is None or lease.owner != owner or lease.expire_time <= now_us():
            raise _not_found(lease_id)
        length = lease.duration if duration is None else duration
        renewed = replace(lease, duration=length, expire_time=now_us() + length)
        statement = table.update().where(table.c.lease_id == lease_id)
        values = {"duration": length, "expire_time": renewed.expire_time}
        await self._registry.share(lambda connection: connection.execute(statement.values(values)))
        if lease_id not in self._leases:
            raise _not_found(lease_id)  # released, or its workspace was deleted, meanwhile
        self._leases[lease_id] = renewed
        return renewed

    async def release(self, owner: str, lease_id: str) -> Lease | None:
        """End it now; None when there is none of this owner. Idempotent."""
        lease = self._leases.get(lease_id)
        if lease is None or lease.owner != owner:
            return None
        await self._forget([lease])
        return lease

    async def prune(self) -> Mapping[str, int]:
        """Forget what has expired; returns when the workspaces concerned were held last, by key."""
        now = now_us()
        expired = [lease for lease in self._leases.values() if lease.expire_time <= now]
        if expired:
            await self._forget(expired)
        ends: dict[str, int] = {}
        for lease in expired:
            ends[lease.workspace_key] = max(lease.expire_time, ends.get(lease.workspace_key, 0))
        return ends

    # As an observer of workspaces.

    async def closing(self, key: str) -> None:
        """A closed workspace keeps its leases: they say who will come back."""

    async def resetting(self, key: str) -> None:
        """Whoever holds it goes on holding it."""

    async def deleting(self, key: str) -> None:
        """There is nothing to be held any more."""
        await self._forget([self._leases[lease] for lease in self._of_workspace.get(key, ())])

    def _remember(self, lease: Lease) -> None:
        self._leases[lease.lease_id] = lease
        self._of_workspace.setdefault(lease.workspace_key, set()).add(lease.lease_id)

    async def _forget(self, leases: list[Lease]) -> None:
        if not leases:
            return
        statement = table.delete().where(table.c.lease_id == sa.bindparam("gone"))
        rows = [{"gone": lease.lease_id} for lease in leases]
        await self._registry.share(lambda connection: connection.execute(statement, rows))
        for lease in leases:
            self._leases.pop(lease.lease_id, None)
            of_workspace = self._of_workspace.get(lease.workspace_key, set())
            of_workspace.discard(lease.lease_id)
            if not of_workspace:
                self._of_workspace.pop(lease.workspace_key, None)


def _not_found(lease_id: str) -> WorkspacedError:
    text = "there is no such lease, or it has expired: acquire the workspace again"
    return WorkspacedError(Code.NOT_FOUND, "LEASE_NOT_FOUND", text, {"lease_id": lease_id[:128]})
