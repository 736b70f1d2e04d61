"""What one owner's workspaces may take together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import structlog

from workspaced_server.errors import WorkspacedError
from workspaced_server.workspaces import faults, spec
from workspaced_server.workspaces.pools import POOL
from workspaced_server.workspaces.record import Record, State
from workspaced_server.workspaces.registry import Query
from workspaced_server.workspaces.settings import WorkspaceSettings

if TYPE_CHECKING:
    from workspaced_server.workspaces.entries import Entry
    from workspaced_server.workspaces.manager import Workspaces
    from workspaced_server.workspaces.transitions import Transitions

_log = structlog.stdlib.get_logger("workspaced.quotas")
_ANSWER_SECONDS = 5.0
_MOST_COUNTED = 10_000


def quota(record: Record, settings: WorkspaceSettings) -> Callable[[Sequence[Record]], None] | None:
    """What raises RESOURCE_EXHAUSTED, QUOTA_EXCEEDED when the owner's other records leave no room for ``record``; None
    without a limit.
    """
    most, disk = settings.max_per_owner, settings.max_disk_bytes_per_owner
    if record.owner == POOL.name or not (most or disk):
        return None

    def check(others: Sequence[Record]) -> None:
        if most and len(others) >= most:
            raise faults.too_many(record, most)
        if disk:
            wanted = spec.disk_bytes(record)
            if not wanted or wanted + sum(map(spec.disk_bytes, others)) > disk:
                raise faults.too_much_disk(record, wanted, disk)

    return check


async def process_room(workspaces: Workspaces, entry: Entry) -> int | None:
    """How many processes may run in a workspace, as far as its owner's others leave room; None without a limit."""
    most = workspaces.settings.max_processes_per_owner
    if not most:
        return None
    owned = Query(owner=entry.record.owner, states=frozenset({State.READY}))
    records = await workspaces.registry.page(owned, _MOST_COUNTED)
    others = [workspaces.entries.adopt(record) for record in records if record.key != entry.record.key]
    counted = await asyncio.gather(*(_running(workspaces.transitions, other) for other in others))
    return max(0, most - sum(counted))


async def _running(transitions: Transitions, entry: Entry) -> int:
    """How many processes run in a workspace, at most 1,000; 0 for one that cannot be asked, whose processes nobody can
    use either.
    """
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            guest = await transitions.channel(entry)
            answer = await guest.call("process.list", {"state": "running", "page_size": 1000, "page_token": ""})
    except (WorkspacedError, OSError, TimeoutError) as error:
        _log.warning("processes not counted", workspace_id=entry.record.workspace_id, cause=str(error))
        return 0
    found = answer.get("processes")
    return len(found) if isinstance(found, list) else 0
