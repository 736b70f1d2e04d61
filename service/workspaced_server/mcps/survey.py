"""Asking many MCP servers at the same time: those that answer are heard, and one that does not costs its time once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workspaced.v1 import mcp_pb2
from workspaced_server.errors import WorkspacedError
from workspaced_server.guest.channel import ChannelLost
from workspaced_server.mcps import failures
from workspaced_server.mcps.declarations import Declaration
from workspaced_server.mcps.failures import McpFailure
from workspaced_server.mcps.instance import Instance, InstanceKey
from workspaced_server.mcps.place import Handle, Place
from workspaced_server.partitions import Pair
from workspaced_server.workspaces.record import now_us

if TYPE_CHECKING:
    import mcp_types as types

    from workspaced_server.mcps.connection import Connection
    from workspaced_server.mcps.instances import Instances

Read = Callable[["Connection"], Awaitable[Any]]

# What an instance offered when it was closed for idleness is told for so long without starting it again.
_REMEMBERED_SECONDS = 600.0
_FOR_EVER = 365 * 86_400.0
# Who waited in vain for a server that goes on may ask again after so long.
_AGAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Found:
    """What asking one server gave: a value, or why there is none, as lists tell it and as a call does."""

    declaration: Declaration
    value: Any = None
    error: mcp_pb2.McpError | None = None
    cause: WorkspacedError | None = None


class Survey:
    """Asks instances. ``owner_of`` tells the owner of a workspace by its key."""

    def __init__(self, instances: Instances, owner_of: Callable[[str], str], list_wait_seconds: float) -> None:
        self._instances = instances
        self._owner_of = owner_of
        self._list_wait_seconds = list_wait_seconds

    async def ask(
        self,
        handle: Handle,
        pair: Pair,
        declared: Sequence[Declaration],
        wait: float | None,
        read: Read,
        *,
        patient: bool = False,
    ) -> list[Found]:
        """Ask each server at the same time. One that does not answer in time costs its time once, unless the caller is
        ``patient``: then it is waited for as long as the caller can, however long it has been starting.
        """
        place = Place.of(handle)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._ask_one(handle, pair, item, place, wait, read, patient))
                    for item in declared
                ]
        except* ChannelLost as lost:
            raise ChannelLost(str(lost.exceptions[0])) from lost
        return [task.result() for task in tasks]

    async def _ask_one(
        self,
        handle: Handle,
        pair: Pair,
        item: Declaration,
        place: Place,
        wait: float | None,
        read: Read,
        patient: bool,
    ) -> Found:
        if item.problem is not None:
            return Found(item, error=unreadable(item, item.problem), cause=item.problem)
        key = InstanceKey(handle.key, pair, item.name)
        instance = self._instances.get(key, item, self._owner_of(handle.key))
        patience = self._patience(instance, wait, patient)
        if patience <= 0:
            return _late(item, instance)
        try:
            async with asyncio.timeout(patience), self._instances.use(instance, place) as connection:
                value = await read(connection)
                instance.learn()
                return Found(item, value)
        except TimeoutError:
            return _late(item, instance)
        except McpFailure as failure:
            cause = failures.unavailable(item.name, failure, max(0.0, instance.retry_after))
            return Found(item, error=failure.to_message(item.name, time_us=now_us(), attempts=1), cause=cause)
        except WorkspacedError as error:
            if error.reason == "MCP_UNAVAILABLE" and instance.failure is not None:
                return Found(item, error=instance.error(), cause=error)
            return Found(item, error=_error(item.name, error.reason, error.message), cause=error)

    def _patience(self, instance: Instance, wait: float | None, patient: bool) -> float:
        """For how long a listing waits for this server: less than the caller does, and not again and again."""
        most = 0.0 if patient else self._list_wait_seconds
        age = 0.0
        if instance.starting:
            age = instance.start_age
        elif instance.live and instance.connection is not None:
            age = instance.connection.listings.age
        if most and age >= most:
            return 0.0
        if wait is not None:
            return wait - min(1.0, max(0.1, wait / 20))
        return most - age if most else _FOR_EVER


def remembers(instance: Instance) -> bool:
    """Whether what it offered is told without starting it: it was closed because nobody used it, not long ago."""
    return (
        instance.about is not None
        and not instance.live
        and instance.failure is None
        and time.monotonic() - instance.left_at < _REMEMBERED_SECONDS
    )


async def nothing(connection: Connection) -> None:
    return None


async def read_tools(connection: Connection) -> list[types.Tool]:
    from workspaced_server.mcps import requests

    return await requests.load(connection.listings.tools)


async def read_resources(connection: Connection) -> list[types.Resource | types.ResourceTemplate]:
    from workspaced_server.mcps import requests

    return await requests.load(connection.listings.resources)


async def read_prompts(connection: Connection) -> list[types.Prompt]:
    from workspaced_server.mcps import requests

    return await requests.load(connection.listings.prompts)


def flat(found: list[Found]) -> tuple[list[tuple[str, Any]], list[mcp_pb2.McpError]]:
    items = [(answer.declaration.name, item) for answer in found for item in answer.value or ()]
    return items, [answer.error for answer in found if answer.error is not None]


def _error(name: str, reason: str, message: str) -> mcp_pb2.McpError:
    error = mcp_pb2.McpError(mcp=name, reason=reason, message=message, attempts=1)
    error.time.FromMicroseconds(now_us())
    return error


def unreadable(item: Declaration, problem: WorkspacedError) -> mcp_pb2.McpError:
    return _error(item.name, problem.reason, problem.message)


def _late(item: Declaration, instance: Instance) -> Found:
    failure = McpFailure("MCP_TIMEOUT", _waiting(instance))
    cause = failures.unavailable(item.name, failure, _AGAIN_SECONDS)
    return Found(item, error=_error(item.name, failure.reason, failure.message), cause=cause)


def _waiting(instance: Instance) -> str:
    if instance.starting:
        return f"it has been starting for {instance.start_age:.0f} s, and goes on; ask again later"
    return "it did not answer in time"
