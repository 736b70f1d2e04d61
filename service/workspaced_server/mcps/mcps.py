"""MCP servers as RPCs ask for them: declared for an agent and session, started when used, and called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from workspaced.v1 import mcp_pb2
from workspaced_server.errors import Code, FieldViolation, WorkspacedError, invalid
from workspaced_server.mcps import agentscope, failures, survey
from workspaced_server.mcps.declarations import Declaration, Declarations, Declared, check_free, declaration
from workspaced_server.mcps.failures import McpFailure
from workspaced_server.mcps.instance import Instance, InstanceKey, allows
from workspaced_server.mcps.instances import Instances
from workspaced_server.mcps.place import Handle, Place
from workspaced_server.mcps.settings import McpSettings
from workspaced_server.partitions import Pair
from workspaced_server.principal import current
from workspaced_server.workspaces.locks import KeyedLocks
from workspaced_server.workspaces.vault import Vault

if TYPE_CHECKING:
    import mcp_types as types

    from workspaced_server.guest.channel import GuestChannel
    from workspaced_server.mcps.connection import Connection, OnLog
    from workspaced_server.mcps.http import Trust
    from workspaced_server.workspaces.registry import Registry

T = TypeVar("T")
OnProgress = Callable[[float, float | None, str | None], None]
"""Takes progress, total and message. It must not wait."""

_log = structlog.stdlib.get_logger("workspaced.mcps")

_LOGGED_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool of an MCP server: the server's name, and the tool as the server describes it."""

    mcp: str
    tool: types.Tool


class Mcps:
    """The MCP servers of all workspaces. Also an observer of transitions of workspaces.

    ``wait`` is how many seconds the caller can wait, or None. Methods raise WorkspacedError, and ChannelLost when the
    channel to the workspace breaks.
    """

    def __init__(
        self,
        registry: Registry,
        settings: McpSettings,
        key_file: Path,
        owner_of: Callable[[str], str] = lambda _: current().name,
    ) -> None:
        self._settings = settings
        self._declarations = Declarations(registry, Vault(settings.key_file or key_file))
        self._instances = Instances(settings, self._connect)
        self._survey = survey.Survey(self._instances, owner_of, settings.list_wait_seconds)
        self._locks = KeyedLocks()
        self._owner_of = owner_of
        self._trust: Trust | None = None

    async def check_key(self) -> None:
        """Write into the log when stored secrets need a key file that is not there."""
        if await self._declarations.lost_key():
            _log.error("the key file of MCP secrets is gone: MCP servers with secrets cannot be started")

    async def add(self, handle: Handle, pair: Pair, mcp: mcp_pb2.Mcp) -> tuple[mcp_pb2.McpStatus, bool]:
        """Connect, then declare; returns the status and whether the same declaration was there.

        When it fails or is cancelled, nothing is left.
        """
        added = declaration(mcp)
        key = InstanceKey(handle.key, pair, added.name)
        async with self._locks.hold(repr(key)):
            declared = await self._declared(handle, pair)
            check_free(declared.mcps, added)
            if declared.find(added.name) is not None:
                instance = self._instance(handle, pair, declared, added.name)
                await self._opened(instance, handle)
                return instance.status(declared.inherited), True
            instance = self._instances.make(key, added, self._owner_of(handle.key))
            async with self._instances.adding(instance):
                await self._opened(instance, handle)
                existing = await self._store(handle, pair, added, instance)
                self._instances.keep(instance)
            return instance.status(inherited=False), existing

    async def remove(self, handle: Handle, pair: Pair, name: str, *, allow_missing: bool = False) -> bool:
        """Forget a declaration and end its instance; False when there was none and ``allow_missing``."""
        removed = await self._declarations.remove(handle.key, pair, name, handle.spec)
        if not removed and not allow_missing:
            raise failures.not_found(name)
        if removed:
            key = InstanceKey(handle.key, pair, name)
            await self._instances.end(key.__eq__, lambda mcp: failures.ended(mcp, "it was removed"))
        return removed

    async def statuses(
        self, handle: Handle, pair: Pair, *, start: bool = True, wait: float | None = None
    ) -> list[mcp_pb2.McpStatus]:
        """The status of each in the order of declaration, started where it was not unless ``start`` is false."""
        declared = await self._declared(handle, pair)
        if start:
            await self._survey.ask(handle, pair, declared.mcps, wait, survey.nothing)
        statuses = []
        for item in declared.mcps:
            if item.problem is not None:
                failure = survey.unreadable(item, item.problem)
                statuses.append(mcp_pb2.McpStatus(mcp=item.redacted(), state=mcp_pb2.MCP_STATE_FAILED, error=failure))
                continue
            instance = self._instances.find(InstanceKey(handle.key, pair, item.name))
            if instance is None or instance.declaration.identity != item.identity:
                statuses.append(
                    mcp_pb2.McpStatus(mcp=item.redacted(), state=mcp_pb2.MCP_STATE_IDLE, inherited=declared.inherited)
                )
            else:
                statuses.append(instance.status(declared.inherited))
        return statuses

    async def names(self, handle: Handle, pair: Pair) -> list[str]:
        """The names of the declared servers, in the order of declaration; starts nothing."""
        return [item.name for item in (await self._declared(handle, pair)).mcps]

    async def tools(
        self, handle: Handle, pair: Pair, only: str = "", *, wait: float | None = None
    ) -> tuple[list[McpTool], list[mcp_pb2.McpError]]:
        """The tools of each server, or of ``only`` one, in the order of declaration, and what is missing and why."""
        declared = _chosen(await self._declared(handle, pair), only)
        known = {item.name: tools for item in declared if (tools := self._remembered(handle, pair, item)) is not None}
        asked = [item for item in declared if item.name not in known]
        found = await self._survey.ask(handle, pair, asked, wait, survey.read_tools)
        errors = [answer.error for answer in found if answer.error is not None]
        known |= {answer.declaration.name: answer.value for answer in found if answer.error is None}
        return [tool for item in declared for tool in _allowed(item, known.get(item.name, ()))], errors

    async def tools_of(self, handle: Handle, pair: Pair, mcp: str, *, wait: float | None = None) -> list[McpTool]:
        """The tools of one server, for a caller who is about to call one: a listing gives up on a server that has been
        starting for long, this waits as long as the caller can.

        Raises NOT_FOUND, MCP_NOT_FOUND; UNAVAILABLE, MCP_UNAVAILABLE; RESOURCE_EXHAUSTED, QUOTA_EXCEEDED;
        FAILED_PRECONDITION, MCP_SECRETS_UNREADABLE.
        """
        (item,) = _chosen(await self._declared(handle, pair), mcp)
        known = self._remembered(handle, pair, item)
        if known is None:
            (found,) = await self._survey.ask(handle, pair, [item], wait, survey.read_tools, patient=True)
            if found.cause is not None:
                raise found.cause
            known = found.value
        return list(_allowed(item, known))

    def _remembered(self, handle: Handle, pair: Pair, item: Declaration) -> Sequence[types.Tool] | None:
        instance = self._instances.find(InstanceKey(handle.key, pair, item.name))
        if instance is None or instance.declaration.identity != item.identity or not survey.remembers(instance):
            return None
        assert instance.about is not None
        return instance.about.tools

    async def resources(
        self, handle: Handle, pair: Pair, only: str = "", *, wait: float | None = None
    ) -> tuple[list[tuple[str, types.Resource | types.ResourceTemplate]], list[mcp_pb2.McpError]]:
        """Resources and templates with the names of their servers, and what is missing."""
        declared = _chosen(await self._declared(handle, pair), only)
        return survey.flat(await self._survey.ask(handle, pair, declared, wait, survey.read_resources))

    async def prompts(
        self, handle: Handle, pair: Pair, only: str = "", *, wait: float | None = None
    ) -> tuple[list[tuple[str, types.Prompt]], list[mcp_pb2.McpError]]:
        """Prompts with the names of their servers, and what is missing."""
        declared = _chosen(await self._declared(handle, pair), only)
        return survey.flat(await self._survey.ask(handle, pair, declared, wait, survey.read_prompts))

    async def call(
        self,
        handle: Handle,
        pair: Pair,
        mcp: str,
        tool: str,
        arguments: dict[str, Any],
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        on_log: OnLog | None = None,
    ) -> types.CallToolResult:
        """Call a tool by the server's own name. ``timeout`` bounds the start of the server too, in seconds.

        ``on_progress`` gets the progress of this call in order; ``on_log`` every log line that the server sends
        meanwhile, since MCP does not say which call one belongs to. Structured output is not checked against the
        tool's schema. Raises DEADLINE_EXCEEDED, MCP_TIMEOUT; NOT_FOUND, MCP_NOT_FOUND or TOOL_NOT_FOUND; UNAVAILABLE,
        MCP_UNAVAILABLE; FAILED_PRECONDITION, MCP_REQUEST_FAILED; ABORTED, SESSION_PURGED. When it is cancelled, or the
        time is over, the server is told and stays usable.
        """

        async def work(connection: Connection) -> types.CallToolResult:
            from workspaced_server.mcps import requests

            async with connection.listening(on_log):
                return await requests.call_tool(connection, tool, arguments, on_progress)

        item = await self._find(handle, pair, mcp)
        if not allows(item.mcp, tool):
            raise _tool_not_found(mcp, tool)
        return await self._request(handle, pair, item, work, timeout)

    async def read_resource(self, handle: Handle, pair: Pair, mcp: str, uri: str) -> types.ReadResourceResult:
        """Read a resource. Raises as `call`, and NOT_FOUND, MCP_RESOURCE_NOT_FOUND."""

        async def work(connection: Connection) -> types.ReadResourceResult:
            from workspaced_server.mcps import requests

            return await requests.read_resource(connection, uri)

        return await self._request(handle, pair, await self._find(handle, pair, mcp), work)

    async def get_prompt(
        self, handle: Handle, pair: Pair, mcp: str, name: str, arguments: dict[str, str]
    ) -> types.GetPromptResult:
        """Fill in a prompt. Raises as `call`; NOT_FOUND, MCP_PROMPT_NOT_FOUND; INVALID_ARGUMENT."""

        async def work(connection: Connection) -> types.GetPromptResult:
            from workspaced_server.mcps import requests

            return await requests.get_prompt(connection, name, arguments)

        return await self._request(handle, pair, await self._find(handle, pair, mcp), work)

    async def purge(self, handle: Handle, pair: Pair) -> int:
        """End the instances of a pair and forget its list; returns how many servers the list held. Idempotent."""
        return await self._purge(handle.key, lambda other: other == pair)

    async def purge_agent(self, handle: Handle, agent_id: str | None) -> int:
        """The same for every session of an agent."""
        return await self._purge(handle.key, lambda other: other.agent_id == agent_id)

    # What transitions of a workspace mean here.

    async def arriving(self, key: str, guest: GuestChannel) -> None:
        """The workspace is about to be READY for the first time: what AgentScope declared in its directory is kept."""
        found = await agentscope.read(guest)
        if found is None:
            return
        count = sum(map(len, found.lists.values()))
        _log.info("servers declared by AgentScope", workspace=key, lists=len(found.lists), servers=count)
        for problem in found.problems[:_LOGGED_PROBLEMS]:
            _log.warning("not taken over from AgentScope", workspace=key, problem=problem)
        await self._declarations.adopt(key, found.lists)

    async def closing(self, key: str) -> None:
        """The workspace is about to be suspended: its instances end, what is declared stays."""
        await self._end(key, "the workspace was closed")

    async def resetting(self, key: str) -> None:
        """The workspace goes back to its beginning: every pair has the defaults again."""
        await self._end(key, "the workspace was reset")
        await self._declarations.forget(key, lambda _: True)

    async def deleting(self, key: str) -> None:
        """The workspace is about to be destroyed; its row takes what is declared along."""
        await self._end(key, "the workspace was deleted")
        self._declarations.forget_cached(key)

    async def aclose(self) -> None:
        """End all instances, and start no more. Idempotent."""
        await self._instances.aclose()

    async def _end(self, key: str, why: str) -> None:
        await self._instances.end(lambda other: other.workspace == key, lambda mcp: failures.ended(mcp, why))

    async def _purge(self, workspace: str, matches: Callable[[Pair], bool]) -> int:
        count = await self._declarations.forget(workspace, matches)
        await self._instances.end(lambda other: other.workspace == workspace and matches(other.pair), failures.purged)
        return count

    def _connect(self, item: Declaration, place: Place) -> Connection:
        from workspaced_server.mcps.connection import Connection
        from workspaced_server.mcps.http import Trust

        if self._trust is None:
            self._trust = Trust(self._settings.ca_file)
        return Connection(item, place, self._settings, self._trust)

    async def _declared(self, handle: Handle, pair: Pair) -> Declared:
        return await self._declarations.get(handle.key, pair, handle.spec)

    async def _store(self, handle: Handle, pair: Pair, added: Declaration, instance: Instance) -> bool:
        """Declare what is connected; whether it was declared meanwhile. What is not wanted any more is undone."""
        if instance.retired is not None:
            raise instance.retired
        stored = False
        try:
            stored = await self._declarations.add(handle.key, pair, added, handle.spec)
            if instance.retired is not None:
                raise instance.retired
        except asyncio.CancelledError:
            # A write that has begun is finished before the cancellation comes out of it.
            await self._declarations.remove(handle.key, pair, added.name, handle.spec)
            raise
        except WorkspacedError:
            if stored:
                await self._declarations.remove(handle.key, pair, added.name, handle.spec)
            raise
        return not stored

    async def _find(self, handle: Handle, pair: Pair, name: str) -> Declaration:
        item = (await self._declared(handle, pair)).find(name)
        if item is None:
            raise failures.not_found(name)
        if item.problem is not None:
            raise item.problem
        return item

    def _instance(self, handle: Handle, pair: Pair, declared: Declared, name: str) -> Instance:
        item = declared.find(name)
        assert item is not None
        return self._instances.get(InstanceKey(handle.key, pair, name), item, self._owner_of(handle.key))

    async def _opened(self, instance: Instance, handle: Handle) -> None:
        """Wait until it is connected. A failure is told as that of adding."""
        try:
            async with self._instances.use(instance, Place.of(handle)):
                return
        except WorkspacedError as error:
            if instance.failure is not None and error.reason == "MCP_UNAVAILABLE" and instance.retired is None:
                raise failures.not_added(instance.key.name, instance.failure) from error
            raise

    async def _request(
        self,
        handle: Handle,
        pair: Pair,
        item: Declaration,
        work: Callable[[Connection], Awaitable[T]],
        timeout: float | None = None,
    ) -> T:
        name = item.name
        key = InstanceKey(handle.key, pair, name)
        instance = self._instances.get(key, item, self._owner_of(handle.key))
        try:
            async with asyncio.timeout(timeout), self._instances.use(instance, Place.of(handle)) as connection:
                result = await work(connection)
        except TimeoutError:
            raise failures.timed_out(name, f"the call's time of {timeout or 0:g} s is over") from None
        except McpFailure as failure:
            if failure.reason == "MCP_TIMEOUT":
                raise failures.timed_out(name, failure.message) from failure
            raise failures.unavailable(name, failure, max(0.0, instance.retry_after)) from failure
        instance.worked()
        return result


def _allowed(item: Declaration, tools: Iterable[types.Tool]) -> Iterator[McpTool]:
    return (McpTool(item.name, tool) for tool in tools if allows(item.mcp, tool.name))


def _chosen(declared: Declared, only: str) -> list[Declaration]:
    if not only:
        return list(declared.mcps)
    item = declared.find(only)
    if item is None:
        raise failures.not_found(only)
    return [item]


def _tool_not_found(mcp: str, tool: str) -> WorkspacedError:
    return WorkspacedError(
        Code.NOT_FOUND,
        "TOOL_NOT_FOUND",
        f"MCP server {mcp!r} has no tool {tool!r} for this agent and session",
        {"mcp": mcp, "tool": tool[:256]},
        resource=("tool", tool[:256]),
    )


def prompt_argument_missing(name: str) -> WorkspacedError:
    """A prompt cannot be had without this argument."""
    return invalid(FieldViolation(f"arguments[{name[:64]!r}]", "is required by this prompt"))
