"""The steps between a workspace's states, each durable before the next, so that a server killed anywhere can go on.

The row is written before the provider is asked, and removed after the provider has forgotten. Whatever state a row is
found in, :meth:`Transitions.resume` drives it to a defined one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import structlog

from workspaced_server.drivers.base import Driver, DriverError, Phase, SandboxGone, SandboxRef, SandboxState
from workspaced_server.errors import Code, WorkspacedError, unreachable
from workspaced_server.workspaces import faults
from workspaced_server.workspaces.channels import Connect, SharedChannel, connect_guest
from workspaced_server.workspaces.entries import Entries, Entry, Flight
from workspaced_server.workspaces.failpoints import reach
from workspaced_server.workspaces.record import State
from workspaced_server.workspaces.settings import WorkspaceSettings
from workspaced_server.workspaces.spec import to_sandbox
from workspaced_server.workspaces.tasks import Tasks
from workspaced_server.workspaces.watch import Progress

if TYPE_CHECKING:
    from workspaced_server.guest.channel import GuestChannel

_log = structlog.stdlib.get_logger("workspaced.workspaces")
_REPORT_SECONDS = 0.1
_PING_SECONDS = 5.0
_SUSPEND_SECONDS = 300.0
_NEVER_READY = (None, State.FAILED)
"""What ``restore`` is of a workspace that never was READY."""
_RESET_PATHS = ("skills", "sessions", "data", ".mcp")
# What a reset removes has this name meanwhile.
_ASIDE = ".workspaced-reset"
_REMOVE_ATTEMPTS = 20


class Observer(Protocol):
    """A part of the server that keeps something for a workspace. All methods are idempotent, because a step that was
    interrupted is done again; an error ends the step as a failure.
    """

    async def closing(self, key: str) -> None:
        """The workspace is about to be suspended: end what runs for it in this server."""
        ...

    async def resetting(self, key: str) -> None:
        """The workspace goes back to its beginning: end what runs for it, and forget what was declared."""
        ...

    async def deleting(self, key: str) -> None:
        """The workspace is about to be destroyed: end what runs for it, and forget everything."""
        ...


class Transitions:
    """Knows the drivers and how to bring a workspace from one state to another. The caller serialises those of one
    workspace.
    """

    def __init__(
        self,
        entries: Entries,
        drivers: Mapping[str, Driver],
        settings: WorkspaceSettings,
        tasks: Tasks,
        connect: Connect = connect_guest,
    ) -> None:
        self._entries = entries
        self._drivers = drivers
        self._settings = settings
        self._tasks = tasks
        self._connect = connect
        self._slots = {name: asyncio.Semaphore(settings.provision_concurrency) for name in drivers}
        self._verifying = asyncio.Semaphore(8)
        self.observers: list[Observer] = []
        # Each is awaited before a workspace is READY for the first time, to take over what its directory holds already.
        # Idempotent, as an observer's methods are; an error fails the initialization.
        self.arrivals: list[Callable[[str, GuestChannel], Awaitable[None]]] = []
        self.stopping = False

    def driver(self, entry: Entry) -> Driver:
        """The driver of this workspace. Raises FAILED_PRECONDITION, BACKEND_UNAVAILABLE when it is not configured
        (any more).
        """
        driver = self._drivers.get(entry.record.backend)
        if driver is None:
            raise faults.from_driver(
                DriverError("BACKEND_UNAVAILABLE", f"backend {entry.record.backend} is not configured on this server"),
                entry.record,
            )
        return driver

    async def channel(self, entry: Entry) -> GuestChannel:
        """The workspace's open channel. Raises WorkspacedError; a sandbox that is gone makes the workspace DEGRADED."""
        ref = entry.record.sandbox
        if ref is None:
            raise faults.not_ready(entry.record)
        try:
            return await self._shared(entry).get(ref)
        except SandboxGone as error:
            await self._degrade(entry, error.message)
            raise unreachable(entry.record.workspace_id, error.message) from error
        except DriverError as error:
            raise faults.from_driver(error, entry.record) from error

    async def initialize(self, entry: Entry, flight: Flight) -> None:
        """Bring it to READY. On failure: nothing is left of what is created here, and what existed goes back to its
        state.
        """
        if entry.record.state is State.READY and await self._answers(entry):
            return
        ref: SandboxRef | None = None
        try:
            driver = self.driver(entry)
            if not (flight.creates and entry.record.state is State.INITIALIZING):
                restore = entry.record.restore if entry.record.state is State.INITIALIZING else entry.record.state
                restore = State.DEGRADED if restore is State.READY else restore
                await self._entries.save(entry, state=State.INITIALIZING, state_reason="", restore=restore)
            await self._drop_channel(entry)
            channel = None
            spare = entry.record.sandbox if flight.creates and entry.record.sandbox_key else None
            if spare is not None:
                ref = spare
                channel = await self._take_over(entry, spare)
            if channel is None:
                async with self._slot(entry):
                    reach("initialize.provision")
                    ref = await driver.provision(to_sandbox(entry.record, entry.spec), self._reporter(entry))
                    reach("initialize.provisioned")
                    await self._entries.save(
                        entry, ref=dict(ref.data), workdir=ref.workdir, token=ref.token, persistent=ref.persistent
                    )
                    reach("initialize.stored")
                    self._report(entry, Phase.CONNECTING)
                    channel = await self._shared(entry).get(ref)
            reach("initialize.connected")
            if entry.record.restore in _NEVER_READY:
                await self._take_over_contents(entry, channel)
            entry.progress = None
            await self._entries.save(
                entry,
                state=State.READY,
                state_reason="",
                restore=None,
                disposable=False,
                workdir=channel.hello.workdir or entry.record.workdir,
            )
        except (Exception, asyncio.CancelledError) as error:
            if self.stopping:  # the row stays INITIALIZING, and the next server goes on from there
                raise
            await self._undo_initialize(entry, flight, ref, error)
            if isinstance(error, DriverError):
                raise faults.from_driver(error, entry.record) from error
            raise
        finally:
            entry.progress = None

    async def _take_over(self, entry: Entry, ref: SandboxRef) -> GuestChannel | None:
        """The channel to a sandbox that waited in a pool; None, and it is destroyed, when its guest does not answer."""
        self._report(entry, Phase.CONNECTING)
        try:
            channel = await self._shared(entry).get(ref)
            await channel.ping(_PING_SECONDS)
            return channel
        except (SandboxGone, DriverError, WorkspacedError, OSError, TimeoutError) as error:
            _log.warning("spare does not answer", workspace_id=entry.record.workspace_id, error=repr(error))
        await self._drop_channel(entry)
        await self.driver(entry).destroy(ref)
        return None

    async def _take_over_contents(self, entry: Entry, channel: GuestChannel) -> None:
        try:
            for arrive in self.arrivals:
                await arrive(entry.record.key, channel)
        except OSError as lost:
            raise unreachable(entry.record.workspace_id, "the connection to its guest broke") from lost

    async def _answers(self, entry: Entry) -> bool:
        """Whether the guest of a READY workspace can be reached, opening the channel if need be."""
        try:
            await self.channel(entry)
        except WorkspacedError as error:
            _log.info("recovering", workspace_id=entry.record.workspace_id, cause=error.message)
            return False
        return True

    async def close(self, entry: Entry, grace: float) -> None:
        """Bring it to CLOSED. When the provider refuses it is DEGRADED, and closing again continues."""
        if entry.record.state is not State.CLOSING:
            await self._entries.save(entry, state=State.CLOSING, state_reason="")
        reach("close.begun")
        for observer in self.observers:
            await observer.closing(entry.record.key)
        try:
            await self._stop_guest(entry, grace)
            reach("close.stopped")
            ref = entry.record.sandbox
            if ref is not None:
                await self._suspend(entry, ref)
            reach("close.suspended")
        except (DriverError, WorkspacedError) as error:
            if self.stopping:
                raise
            fault = faults.from_driver(error, entry.record) if isinstance(error, DriverError) else error
            await self._entries.save(entry, state=State.DEGRADED, state_reason=f"closing failed: {fault.message}")
            raise fault from error
        await self._entries.save(entry, state=State.CLOSED, state_reason="", restore=None)

    async def reset(self, entry: Entry, *, wipe_files: bool, kill_processes: bool) -> None:
        """Remove what agents left behind. Idempotent; stopped in the middle, the rest is removed by the next one."""
        channel = await self.channel(entry)
        try:
            for observer in self.observers:
                await observer.resetting(entry.record.key)
            if kill_processes:
                await channel.call("process.stop_all", {"reason": "WORKSPACE_STOPPED", "grace": 5.0})
            await _set_aside_and_remove(channel, _RESET_PATHS)
            if wipe_files:
                await _wipe(channel)
        except OSError as lost:
            raise unreachable(entry.record.workspace_id, "the connection to its guest broke") from lost
        await self._entries.save(entry)

    async def delete(self, entry: Entry) -> None:
        """Destroy the sandbox, then forget the workspace. When that fails it stays DELETING, and is tried again."""
        if entry.record.state is not State.DELETING:
            await self._entries.save(entry, state=State.DELETING, state_reason="")
        reach("delete.begun")
        for observer in self.observers:
            await observer.deleting(entry.record.key)
        try:
            await self._stop_guest(entry, 1.0)
            reach("delete.stopped")
            await self._destroy(entry)
        except (DriverError, WorkspacedError) as error:
            if self.stopping:
                raise
            fault = faults.from_driver(error, entry.record) if isinstance(error, DriverError) else error
            await self._entries.save(entry, state_reason=f"deleting failed: {fault.message}")
            raise fault from error
        reach("delete.destroyed")
        await self._entries.remove(entry)

    async def verify(self, entry: Entry) -> None:
        """Ask the provider about a workspace whose channel broke, so that watchers learn of a sandbox that is gone."""
        ref = entry.record.sandbox
        if ref is None or entry.flight is not None or entry.record.state is not State.READY:
            return
        async with self._verifying:
            try:
                status = await self.driver(entry).status(ref)
            except (DriverError, WorkspacedError) as error:
                _log.warning("status unknown", workspace_id=entry.record.workspace_id, error=str(error))
                return
        if status.state is not SandboxState.RUNNING:
            await self._degrade(entry, status.detail or f"its sandbox is {status.state.value}")

    async def drop_channels(self) -> None:
        """Close every channel; guests go on."""
        for entry in self._entries.all():
            await self._drop_channel(entry)

    def _shared(self, entry: Entry) -> SharedChannel:
        if entry.channel is None:

            def on_loss() -> None:
                if not self.stopping:
                    self._tasks.start(self.verify(entry), f"verify-{entry.record.key}")

            entry.channel = SharedChannel(
                entry.record, self.driver(entry), self._settings.channel, self._tasks, on_loss, self._connect
            )
        return entry.channel

    async def _degrade(self, entry: Entry, reason: str) -> None:
        if entry.record.state is State.READY and entry.flight is None:
            _log.warning("workspace degraded", workspace_id=entry.record.workspace_id, cause=reason)
            await self._entries.save(entry, state=State.DEGRADED, state_reason=reason)
            if entry.flight is None:  # else it has a channel of its own by now
                await self._drop_channel(entry)

    async def _drop_channel(self, entry: Entry) -> None:
        if entry.channel is not None:
            await entry.channel.drop()

    async def _stop_guest(self, entry: Entry, grace: float) -> None:
        """End all processes and tell their readers, when the sandbox runs and its guest answers."""
        ref = entry.record.sandbox
        if ref is None:
            return
        shared = self._shared(entry)
        try:
            if shared.open is None and (await self.driver(entry).status(ref)).state is not SandboxState.RUNNING:
                return
            channel = await shared.get(ref)
            async with asyncio.timeout(grace + 10):
                await channel.call("guest.shutdown", {"reason": "WORKSPACE_STOPPED", "grace": grace})
        except (DriverError, WorkspacedError, OSError, TimeoutError) as error:
            # The provider's own stop follows and ends whatever is left.
            _log.warning("guest not stopped", workspace_id=entry.record.workspace_id, error=repr(error))
        finally:
            await shared.drop()

    async def _suspend(self, entry: Entry, ref: SandboxRef) -> None:
        try:
            async with asyncio.timeout(_SUSPEND_SECONDS):
                await self.driver(entry).suspend(ref)
        except TimeoutError as error:
            text = f"backend {entry.record.backend} did not suspend the sandbox in {_SUSPEND_SECONDS:g} s"
            raise DriverError("PROVIDER_UNAVAILABLE", text, retryable=True) from error

    async def _destroy(self, entry: Entry) -> None:
        """Remove the sandbox, also one that was made in the moment when a server was killed."""
        driver, ref = self.driver(entry), entry.record.sandbox
        if ref is not None:
            await driver.destroy(ref)
            return
        async for found in driver.list():
            if found.key == entry.record.provider_key:
                await driver.destroy(found)

    async def _undo_initialize(
        self, entry: Entry, flight: Flight, ref: SandboxRef | None, error: BaseException
    ) -> None:
        reason = _reason(error)
        _log.warning("initialize failed", workspace_id=entry.record.workspace_id, cause=reason, error=repr(error))
        await self._drop_channel(entry)
        restore = entry.record.restore
        fresh = restore in _NEVER_READY
        try:
            if ref is not None and fresh:
                await self.driver(entry).destroy(ref)
            elif ref is not None and restore is State.CLOSED:
                await self._suspend(entry, ref)
        except (DriverError, WorkspacedError) as failure:
            # What is left is known: a row in DELETING is tried again, a DEGRADED one can be closed or recovered.
            state = State.DELETING if flight.creates and not flight.keep else State.DEGRADED
            await self._entries.save(entry, state=state, state_reason=f"{reason}; undoing it failed: {failure}")
            return
        if flight.creates and not flight.keep:
            await self._entries.remove(entry, reason)
        elif fresh:
            await self._entries.save(
                entry, state=State.FAILED, state_reason=reason, restore=None, disposable=False, ref=None
            )
        else:
            assert restore is not None
            await self._entries.save(entry, state=restore, state_reason=reason, restore=None)

    @asynccontextmanager
    async def _slot(self, entry: Entry) -> AsyncIterator[None]:
        slot = self._slots[entry.record.backend]
        if slot.locked():
            self._report(entry, Phase.QUEUED)
        async with slot:
            yield

    def _report(self, entry: Entry, phase: Phase, fraction: float | None = None, message: str = "") -> None:
        self._entries.report(entry, Progress(phase, -1.0 if fraction is None else fraction, message))

    def _reporter(self, entry: Entry) -> _Reporter:
        return _Reporter(self, entry)


class _Reporter:
    """Passes progress on: each new phase, and at most ten lines a second within one."""

    def __init__(self, transitions: Transitions, entry: Entry) -> None:
        self._transitions = transitions
        self._entry = entry
        self._phase: Phase | None = None
        self._at = 0.0

    def __call__(self, phase: Phase, fraction: float | None = None, message: str = "") -> None:
        now = time.monotonic()
        if phase is not self._phase or fraction == 1.0 or now - self._at >= _REPORT_SECONDS:
            self._phase, self._at = phase, now
            self._transitions._report(self._entry, phase, fraction, message[:256])


async def _set_aside_and_remove(channel: GuestChannel, paths: Iterable[str]) -> None:
    """Remove each after giving it another name: agents that go on working would fill a directory as fast as it is
    emptied.
    """
    await _remove(channel, [_ASIDE])  # of a reset that was interrupted
    for path in paths:
        reach("reset.remove")
        try:
            await channel.call("file.move", {"path": path, "to": _ASIDE, "root": "."})
        except WorkspacedError as error:
            if error.reason == "FILE_NOT_FOUND":
                continue
            if error.reason != "FILE_BUSY":  # a mount point keeps its name
                raise
            await _remove(channel, [path])
        else:
            await _remove(channel, [_ASIDE])


async def _remove(channel: GuestChannel, paths: Iterable[str]) -> None:
    for path in paths:
        for attempt in range(1, _REMOVE_ATTEMPTS + 1):
            try:
                await channel.call("file.remove", {"path": path, "root": ".", "recursive": True, "allow_missing": True})
                break
            except WorkspacedError as error:
                # An operation that had begun before has made something there meanwhile.
                if error.reason not in ("DIRECTORY_NOT_EMPTY", "TREE_CHANGED") or attempt == _REMOVE_ATTEMPTS:
                    raise


async def _wipe(channel: GuestChannel) -> None:
    """Remove everything directly in the workdir, page by page: a guest could send pages for ever."""
    token = ""
    while True:
        params = {"path": ".", "recursive": False, "page_size": 1000, "page_token": token}
        answer = await channel.call("file.list", params)
        entries, token = answer.get("entries"), answer.get("next_page_token") or ""
        if not isinstance(entries, list) or not isinstance(token, str):
            raise _malformed()
        paths: list[str] = []
        for entry in entries:
            path = entry.get("path") if isinstance(entry, dict) else None
            if not isinstance(path, str):
                raise _malformed()
            paths.append(path)
        await _remove(channel, paths)
        if not token:
            return


def _malformed() -> WorkspacedError:
    return WorkspacedError(Code.INTERNAL, "GUEST_ERROR", "the workspace's guest gave a list that makes no sense")


def _reason(error: BaseException) -> str:
    """The failure in words for people, without anything internal."""
    if isinstance(error, WorkspacedError | DriverError):
        return error.message
    if isinstance(error, asyncio.CancelledError):
        return "initialization was cancelled"
    return "an internal error; the server's log says more"
