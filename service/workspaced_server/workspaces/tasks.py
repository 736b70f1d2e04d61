"""Tasks that outlive the call which started them, owned and awaited by whoever owns the :class:`Tasks`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

from workspaced_server.drivers.base import DriverError
from workspaced_server.errors import WorkspacedError

T = TypeVar("T")
_log = structlog.stdlib.get_logger("workspaced.tasks")


class Tasks:
    """Owns tasks: keeps them alive, logs what nobody expected, and ends them all in :meth:`aclose`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run ``work`` as a task."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def aclose(self) -> None:
        """Cancel all and wait for their ends. Idempotent."""
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, WorkspacedError | DriverError):
            _log.error("a task failed", task=task.get_name(), exc_info=error)
