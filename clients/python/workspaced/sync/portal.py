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
_running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None


def _running_loop() -> asyncio.AbstractEventLoop:
    global _running  # noqa: PLW0603 (the thread is started once, by whoever comes first)
    with _lock:
        if _running is None:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="workspaced", daemon=True)
            thread.start()
            _running = loop, thread
        return _running[0]


def stop() -> None:
    """End the thread, once every synchronous client is closed; the next call starts another. For a program that goes on
    with an event loop of its own.
    """
    global _running
    with _lock:
        running, _running = _running, None
    if running is not None:
        loop, thread = running
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


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
