"""The one channel that all calls of a workspace share: opened at first use, watched, and opened again after a loss."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import structlog

from workspaced_server.drivers.base import ByteStream, Driver, DriverError, SandboxGone, SandboxRef
from workspaced_server.errors import WorkspacedError, unreachable
from workspaced_server.workspaces.record import Record
from workspaced_server.workspaces.settings import ChannelSettings
from workspaced_server.workspaces.tasks import Tasks

if TYPE_CHECKING:
    from workspaced_server.guest.channel import GuestChannel

_log = structlog.stdlib.get_logger("workspaced.channels")

_UPGRADES = 2
Connect = Callable[[ByteStream, str], Awaitable["GuestChannel | None"]]


async def connect_guest(stream: ByteStream, token: str) -> GuestChannel | None:
    """Shake hands with the guest at the other end. None: it restarts with this server's bundle, connect once more.

    Raises OSError or WorkspacedError; ``stream`` is closed then.
    """
    from workspaced_server.guest.channel import GuestChannel
    from workspaced_server.guest.upgrade import upgrade_if_older

    channel = await GuestChannel.connect(stream, token)
    try:
        if not await upgrade_if_older(channel):
            return channel
    except BaseException:
        await channel.aclose()
        raise
    await channel.aclose()
    return None


class SharedChannel:
    """A workspace's channel. ``on_loss`` is called when it broke without being dropped."""

    def __init__(
        self,
        record: Record,
        driver: Driver,
        settings: ChannelSettings,
        tasks: Tasks,
        on_loss: Callable[[], None],
        connect: Connect = connect_guest,
    ) -> None:
        self._workspace_id = record.workspace_id
        self._driver = driver
        self._settings = settings
        self._tasks = tasks
        self._on_loss = on_loss
        self._connect = connect
        self._channel: GuestChannel | None = None
        self._opening: asyncio.Task[GuestChannel] | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._last_failure: WorkspacedError | None = None
        self._uses = 0
        self._used_at = time.monotonic()
        self._alive_at = 0.0
        self._wake = asyncio.Event()

    @property
    def open(self) -> GuestChannel | None:
        """The channel when it is open now."""
        return self._channel if self._channel is not None and not self._channel.closed else None

    @property
    def _idle_seconds(self) -> float:
        return time.monotonic() - self._used_at

    def enter(self) -> None:
        """Count a use: while there is one the guest is pinged more often."""
        self._uses += 1
        if self._uses == 1 and time.monotonic() - self._alive_at > self._settings.ping_active_seconds:
            self._wake.set()

    def leave(self) -> None:
        """End a use."""
        self._uses -= 1
        self._used_at = time.monotonic()

    async def get(self, ref: SandboxRef) -> GuestChannel:
        """The open channel, opened if need be; concurrent calls open it once, and their cancellation does not undo
        that.

        Raises SandboxGone when the sandbox does not run, DriverError or WorkspacedError UNAVAILABLE when it cannot be
        reached. After a failure the next attempt is made only after a back-off; until then the same error is raised
        at once.
        """
        channel = self._channel
        if channel is not None and not channel.closed:
            return channel
        if self._opening is None:
            wait = self._retry_at - time.monotonic()
            if wait > 0 and self._last_failure is not None:
                self._last_failure.retry_after = round(wait, 3)
                raise self._last_failure
            self._opening = self._tasks.start(self._open(ref), f"open-channel-{ref.key}")
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if opening.cancelled() and me is not None and not me.cancelling():
                # Dropped while it was opened; nobody cancelled the call.
                raise unreachable(self._workspace_id, "its sandbox stopped meanwhile") from None
            raise

    async def drop(self) -> None:
        """Close the channel, because the sandbox stops or the server does. Idempotent."""
        opening, channel = self._opening, self._channel
        self._opening = self._channel = None
        self._failures, self._retry_at, self._last_failure = 0, 0.0, None
        if opening is not None and not opening.done():
            opening.cancel()
            await asyncio.wait([opening])
        if opening is not None and opening.done() and not opening.cancelled() and opening.exception() is None:
            await opening.result().aclose()
        if channel is not None:
            await channel.aclose()

    async def _open(self, ref: SandboxRef) -> GuestChannel:
        me = asyncio.current_task()
        try:
            async with asyncio.timeout(self._settings.open_timeout_seconds):
                channel = await self._dial(ref)
        except SandboxGone:
            raise
        except (DriverError, WorkspacedError, OSError, TimeoutError) as error:
            self._failures += 1
            pause = self._settings.retry_first_seconds * 2 ** min(self._failures - 1, 16)
            self._retry_at = time.monotonic() + min(pause, self._settings.retry_most_seconds)
            if isinstance(error, DriverError) and not error.retryable:
                raise
            detail = error.message if isinstance(error, DriverError | WorkspacedError) else "its guest does not answer"
            _log.warning(
                "channel not opened", workspace_id=self._workspace_id, attempt=self._failures, error=repr(error)
            )
            self._last_failure = unreachable(self._workspace_id, detail)
            raise self._last_failure from error
        finally:
            if self._opening is me:
                self._opening = None
        self._failures, self._retry_at, self._last_failure = 0, 0.0, None
        self._channel = channel
        self._used_at = self._alive_at = time.monotonic()
        self._tasks.start(self._watch(channel), f"watch-channel-{ref.key}")
        return channel

    async def _dial(self, ref: SandboxRef) -> GuestChannel:
        """Open a channel to a guest that runs our bundle."""
        for _ in range(_UPGRADES + 1):
            stream = await self._driver.open_channel(ref)
            try:
                channel = await self._connect(stream, ref.token)
            except BaseException:
                await stream.aclose()
                raise
            if channel is not None:
                return channel
        raise OSError("the guest does not come back with the bundle that it was given")

    async def _watch(self, channel: GuestChannel) -> None:
        """Ping until the channel breaks or is not wanted any more."""
        settings = self._settings
        closed = asyncio.ensure_future(channel.wait_closed())
        cause: object = None
        try:
            while cause is None and not channel.closed:
                pause = settings.ping_active_seconds if self._uses else settings.ping_idle_seconds
                self._wake.clear()
                wake = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait([closed, wake], timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                wake.cancel()
                if closed.done():
                    cause = closed.result()
                elif not self._uses and not channel.streams and self._idle_seconds > settings.idle_close_seconds:
                    if self._channel is channel:
                        self._channel = None
                    return
                else:
                    try:
                        await channel.ping(settings.ping_timeout_seconds)
                        self._alive_at = time.monotonic()
                    except (OSError, TimeoutError) as error:
                        cause = error
        finally:
            closed.cancel()
            await channel.aclose()
        if self._channel is channel:
            self._channel = None
            _log.warning("channel lost", workspace_id=self._workspace_id, cause=repr(cause))
            self._on_loss()
