"""Going down in order: new calls are refused, long streams ended at once, the rest gets a grace."""

from __future__ import annotations

import asyncio
from typing import Any

from workspaced_server.workspaces.faults import stopping

# Streams that end by themselves, and so get the same grace as unary calls.
_FINITE = frozenset({"ReadFile", "ReadOffload"})


class Drain:
    """The calls of a server, and whether it is going down."""

    def __init__(self) -> None:
        self.draining = False
        self._calls: dict[asyncio.Task[Any], bool] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def enter(self, method: str, *, streams: bool) -> asyncio.Task[Any]:
        """Count the current task as a call. Raises UNAVAILABLE, SERVER_DRAINING."""
        if self.draining:
            raise stopping()
        task = asyncio.current_task()
        assert task is not None
        self._calls[task] = streams and method.rpartition("/")[2] not in _FINITE
        self._empty.clear()
        return task

    def leave(self, task: asyncio.Task[Any]) -> None:
        """The call has ended."""
        self._calls.pop(task, None)
        if not self._calls:
            self._empty.set()

    async def idle(self) -> None:
        """Wait until there is no call."""
        await self._empty.wait()

    async def run(self, grace: float) -> None:
        """Refuse new calls, end long streams, wait up to ``grace`` seconds for the others, then end those.
        Idempotent.
        """
        self.draining = True
        self._end(only_long=True)
        try:
            async with asyncio.timeout(grace):
                await self._empty.wait()
        except TimeoutError:
            self._end(only_long=False)
            await asyncio.wait(list(self._calls), timeout=1.0) if self._calls else None

    def _end(self, *, only_long: bool) -> None:
        for task, long in list(self._calls.items()):
            if long or not only_long:
                task.cancel()
