"""Ending the process of a call that was cancelled, whatever else is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from workspaced_server.errors import WorkspacedError
from workspaced_server.guest.channel import ChannelLost
from workspaced_server.workspaces.handle import Handle

_log = structlog.get_logger("workspaced.execution")

# How long a cancelled call may hold on for the end of its process, beyond the grace from TERM to KILL.
_STOP_SECONDS: Final = 5.0


class Stops:
    """The processes that are being ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self, handle: Handle, process_id: str, grace: float) -> None:
        """TERM to its tree, KILL after `grace` seconds; returns when it has ended, goes on when cancelled. Bounded."""
        task = asyncio.create_task(_stop(handle, process_id, grace), name=f"stop-{process_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def aclose(self) -> None:
        """Wait for all; bounded by their grace."""
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _stop(handle: Handle, process_id: str, grace: float) -> None:
    params: dict[str, object] = {"process_id": process_id, "reason": "CANCELLED", "grace": grace}
    try:
        async with asyncio.timeout(grace + _STOP_SECONDS):
            await handle.guest.call("process.stop", params)
    except WorkspacedError as error:
        # Not started, or ended by itself: there is nothing to stop.
        if error.reason not in ("PROCESS_NOT_FOUND", "PROCESS_EXITED"):
            _log.warning("process_stop_failed", process_id=process_id, reason=error.reason)
    except (ChannelLost, TimeoutError) as error:
        # The guest ends it by its disconnect policy.
        _log.warning("process_stop_failed", process_id=process_id, reason=type(error).__name__)
