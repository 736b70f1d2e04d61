"""One event loop in a thread of its own, shared by every synchronous client of this program.

One, because channels of several event loops in one process disturb each other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 (the thread is started once, by whoever comes first)
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="workspaced", daemon=True).start()
        return _loop


def call(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop and wait for it. An interrupt (Ctrl-C) cancels it, and is raised when it has ended.

    Raises :class:`RuntimeError` in a callback of this library, which runs on that loop and would wait for itself.
    """
    loop = _running_loop()
    try:
        inside = asyncio.get_running_loop() is loop
    except RuntimeError:
        inside = False
    if inside:
        coroutine.close()
        raise RuntimeError("a callback must not call the client that it is called by")
    ended = threading.Event()

    async def run() -> T:
        try:
            return await coroutine
        finally:
            ended.set()

    future = asyncio.run_coroutine_threadsafe(run(), loop)
    try:
        return future.result()
    except BaseException:
        if future.cancel():
            ended.wait(5)
        raise


async def awaited(awaitable: Awaitable[T]) -> T:
    """What an awaitable that is no coroutine gives."""
    return await awaitable
