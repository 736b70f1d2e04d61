"""Ids of the calls that run now."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from workspaced_server.errors import Code, WorkspacedError

Key = tuple[str, str | None, str]


class RunningCalls:
    """Which ids are taken, per workspace and session."""

    def __init__(self) -> None:
        self._running: set[Key] = set()

    @contextmanager
    def claim(self, workspace: str, session_id: str | None, call_id: str) -> Iterator[str]:
        """Hold the id, or a new one when it is empty. Raises WorkspacedError TOOL_CALL_RUNNING."""
        call_id = call_id or f"call_{secrets.token_hex(12)}"
        key = (workspace, session_id, call_id)
        if key in self._running:
            raise WorkspacedError(
                Code.ALREADY_EXISTS,
                "TOOL_CALL_RUNNING",
                f"a call with the id {call_id!r} runs in this session: wait for it, or choose another id",
                {"call_id": call_id},
                resource=("tool_call", call_id),
            )
        self._running.add(key)
        try:
            yield call_id
        finally:
            self._running.discard(key)
