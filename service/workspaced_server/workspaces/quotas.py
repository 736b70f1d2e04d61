"""What one owner's workspaces may take together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workspaced_server.workspaces import faults, spec
from workspaced_server.workspaces.pools import POOL
from workspaced_server.workspaces.record import Record
from workspaced_server.workspaces.settings import WorkspaceSettings


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
