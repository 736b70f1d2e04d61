"""Tasks that work beside the main task of a call, and end with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def companion(work: Coroutine[Any, Any, None], failed: Callable[[BaseException], None]) -> AsyncIterator[None]:
    """Run `work` until the block is left, then cancel it and wait for it. An exception of it goes to `failed`."""
    task = asyncio.create_task(work)

    def report(done: asyncio.Task[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            failed(error)

    task.add_done_callback(report)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
