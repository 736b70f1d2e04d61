"""Written by generate_sync.py from workspaced.tools; do not edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workspaced import tools as twin
from workspaced.tools import (
    ToolEvent,
    ToolKind,
    ToolList,
    ToolResult,
)

from .portal import call
from .stream import Stream


class Tools:
    """Lists and calls tools, as an agent in a session; without ids as one that no id can name."""

    def __init__(self, asynchronous: twin.Tools) -> None:
        self._twin = asynchronous

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        offload_over_bytes: int = 0,
        call_id: str = "",
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> ToolResult:
        """Call a tool and return its result. A tool that reports an error returns it (``is_error``).

        ``timeout`` in seconds stops the tool, and what it gave by then is the result (state ``interrupted``). Text
        beyond ``offload_over_bytes`` is stored in the workspace (0: never). Cancellation stops the tool. Raises
        :class:`ToolNotFound`, :class:`McpUnavailable`. A broken connection is :class:`Unavailable`: whether the tool
        ran is not known, and it is not called again.
        """
        return call(
            self._twin.call(
                name,
                arguments,
                timeout=timeout,
                offload_over_bytes=offload_over_bytes,
                call_id=call_id,
                agent_id=agent_id,
                session_id=session_id,
            )
        )

    def stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        offload_over_bytes: int = 0,
        call_id: str = "",
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> Stream[ToolEvent]:
        """The events of a call, as :meth:`call` makes it; a :class:`ToolResult` comes last. Leaving the stream before
        stops the tool.
        """
        return Stream(
            self._twin.stream(
                name,
                arguments,
                timeout=timeout,
                offload_over_bytes=offload_over_bytes,
                call_id=call_id,
                agent_id=agent_id,
                session_id=session_id,
            )
        )

    def list(
        self,
        *,
        kind: ToolKind | None = None,
        mcp: str = "",
        agent_id: str | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> ToolList:
        """The tools that can be called: the built-in ones, then those of the MCP servers, or only a kind, or one
        server's. Starts the servers that it needs.
        """
        return call(self._twin.list(kind=kind, mcp=mcp, agent_id=agent_id, session_id=session_id, timeout=timeout))
