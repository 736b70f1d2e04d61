"""Steps that have to end before a cancellation may be heard."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def uninterrupted(step: Coroutine[Any, Any, T]) -> T:
    """Run ``step`` to its end, whatever kind of cancellation arrives; the cancellation is raised afterwards.

    What the step returned or raised is lost then, so that its effects have to be undone by name. The step has to be
    bounded in time.
    """
    task = asyncio.ensure_future(step)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()
        raise cancelled
    return task.result()
