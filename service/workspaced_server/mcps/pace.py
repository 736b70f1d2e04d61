"""How fast the messages of one server are taken, so that it cannot keep the loop for itself."""

from __future__ import annotations

import asyncio
import time

# Others run after so many messages that came in one piece.
_TURN = 16
# A server that sends more than so many messages in a second is read more slowly.
_MAX_RATE = 2000
# Work in one piece that others notice.
_LONG_SECONDS = 0.005


class Pace:
    """Called before each message that is taken. Back pressure does the rest: what is not read, is not sent."""

    def __init__(self) -> None:
        self._count = 0
        self._second = 0.0
        self._rate = 0
        self._began = 0.0

    def taken(self) -> None:
        """A message begins to be looked at."""
        self._began = time.perf_counter()

    async def turn(self) -> None:
        """Wait as long as others need, or as the last message took."""
        if self._began:
            spent, self._began = time.perf_counter() - self._began, 0.0
            if spent > _LONG_SECONDS:
                await asyncio.sleep(min(spent, 1.0))
        self._count += 1
        self._rate += 1
        if self._count % _TURN == 0:
            now = time.monotonic()
            if now - self._second >= 1:
                self._second, self._rate = now, 0
            elif self._rate > _MAX_RATE:
                await asyncio.sleep(max(0.0, self._second + 1 - now))
            await asyncio.sleep(0)
