"""Written by generate_sync.py from workspaced.mcps; do not edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from workspaced import mcps as twin
from workspaced.content import Message
from workspaced.mcps import McpInfo, McpPrompt, McpResource, ResourceContent

from .portal import call


class Mcps:
    """Declares, lists and asks MCP servers. They belong to an (``agent_id``, ``session_id``) pair; without ids to a
    pair of its own that no id can name.

    Nothing runs before it is needed. One that fails does not hide the others.
    """

    def __init__(self, asynchronous: twin.Mcps) -> None:
        self._twin = asynchronous

    def add(
        self,
        name: str,
        *,
        stdio: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        http: str | None = None,
        headers: Mapping[str, str] | None = None,
        kind: Literal["streamable", "sse"] = "streamable",
        enabled_tools: Sequence[str] = (),
        disabled_tools: Sequence[str] = (),
        call_timeout: float | None = None,
        stateless: bool = False,
        agent_id: str | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> McpInfo:
        """Declare a server and connect to it: ``stdio`` is a program with its arguments that runs in the workspace,
        ``http`` a URL that is dialled from there. ``timeout`` in seconds is how long it may take to start.

        Idempotent for the same declaration; a name that is taken by another is :class:`McpExists`. Raises
        :class:`McpStartFailed`, :class:`McpUnavailable`, :class:`QuotaExceeded`; the name is free then.
        """
        return call(
            self._twin.add(
                name,
                stdio=stdio,
                env=env,
                cwd=cwd,
                http=http,
                headers=headers,
                kind=kind,
                enabled_tools=enabled_tools,
                disabled_tools=disabled_tools,
                call_timeout=call_timeout,
                stateless=stateless,
                agent_id=agent_id,
                session_id=session_id,
                timeout=timeout,
            )
        )

    def remove(
        self, name: str, *, allow_missing: bool = False, agent_id: str | None = None, session_id: str | None = None
    ) -> bool:
        """Forget a server and end it; whether there was one. :class:`McpNotFound` without ``allow_missing``."""
        return call(self._twin.remove(name, allow_missing=allow_missing, agent_id=agent_id, session_id=session_id))

    def resources(
        self, mcp: str = "", *, agent_id: str | None = None, session_id: str | None = None, timeout: float | None = None
    ) -> list[McpResource]:
        """The resources of one server, or of all that can be used."""
        return call(self._twin.resources(mcp, agent_id=agent_id, session_id=session_id, timeout=timeout))

    def read_resource(
        self,
        mcp: str,
        uri: str,
        *,
        offload_over_bytes: int = 0,
        agent_id: str | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> list[ResourceContent]:
        """The parts of a resource; those larger than ``offload_over_bytes`` are stored in the workspace (0: never)."""
        return call(
            self._twin.read_resource(
                mcp,
                uri,
                offload_over_bytes=offload_over_bytes,
                agent_id=agent_id,
                session_id=session_id,
                timeout=timeout,
            )
        )

    def prompts(
        self, mcp: str = "", *, agent_id: str | None = None, session_id: str | None = None, timeout: float | None = None
    ) -> list[McpPrompt]:
        """The prompts of one server, or of all that can be used."""
        return call(self._twin.prompts(mcp, agent_id=agent_id, session_id=session_id, timeout=timeout))

    def get_prompt(
        self,
        mcp: str,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> list[Message]:
        """The messages of a prompt, with its arguments filled in."""
        return call(
            self._twin.get_prompt(mcp, name, arguments, agent_id=agent_id, session_id=session_id, timeout=timeout)
        )

    def list(
        self,
        *,
        start: bool = True,
        agent_id: str | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> list[McpInfo]:
        """The servers in the order of their declaration, started when they never were, unless ``start=False``."""
        return call(self._twin.list(start=start, agent_id=agent_id, session_id=session_id, timeout=timeout))
