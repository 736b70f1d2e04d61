"""The calls that run for a session, so that purging it can end them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.partitions import Pair


@dataclass(eq=False, slots=True)
class _Call:
    task: asyncio.Task[Any]
    of_agent: bool
    agent_id: str | None
    purged: bool = False


class SessionCalls:
    """Running calls by the workspace's key and the session."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str | None], set[_Call]] = {}

    @contextmanager
    def running(self, key: str, session_id: str | None) -> Iterator[None]:
        """A call that belongs to the session whoever its agent is, as offloading does; as `running_for` otherwise."""
        with self._enter(key, session_id, False, None):
            yield

    @contextmanager
    def running_for(self, key: str, pair: Pair) -> Iterator[None]:
        """A call of one agent in one session, until the block is left. It runs in the present task.

        Raises WorkspacedError ABORTED, SESSION_PURGED inside the block when the session is purged; whatever the block
        holds is cancelled then.
        """
        with self._enter(key, pair.session_id, True, pair.agent_id):
            yield

    def end(self, key: str, pair: Pair) -> int:
        """End the calls of a session that belong to this agent or to none; returns how many there were. Never waits."""
        ended = 0
        for call in self._calls.get((key, pair.session_id), ()):
            if not call.purged and (not call.of_agent or call.agent_id == pair.agent_id):
                call.purged = True
                call.task.cancel()
                ended += 1
        return ended

    @contextmanager
    def _enter(self, key: str, session_id: str | None, of_agent: bool, agent_id: str | None) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        call = _Call(task, of_agent, agent_id)
        place = (key, session_id)
        self._calls.setdefault(place, set()).add(call)
        try:
            yield
        except asyncio.CancelledError:
            # Cancelled by somebody else as well, it stays cancelled.
            if call.purged and not task.uncancel():
                text = "the session was purged while the call ran"
                raise WorkspacedError(Code.ABORTED, "SESSION_PURGED", text) from None
            raise
        finally:
            calls = self._calls[place]
            calls.discard(call)
            if not calls:
                del self._calls[place]
