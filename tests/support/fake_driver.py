"""A backend and its guests in memory, to fail at each step as real ones do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from workspaced_guest import wire
from workspaced_server.drivers.base import (
    Availability,
    Capabilities,
    DriverError,
    Phase,
    Progress,
    SandboxGone,
    SandboxRef,
    SandboxSpec,
    SandboxState,
    SandboxStatus,
)
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.guest.channel import ChannelLost
from workspaced_server.guest.hello import GuestHello

WORKDIR = "/workspace"


@dataclass(eq=False)
class FakeSandbox:
    """What a provider holds for one key."""

    key: str
    token: str
    running: bool = True
    files: set[str] = field(default_factory=set)
    processes: set[str] = field(default_factory=set)
    channels: list[FakeChannel] = field(default_factory=list)
    frozen: bool = False

    def break_channels(self) -> None:
        """Cut every connection to the guest, as a provider that restarts does."""
        for channel in self.channels:
            channel.lose("cut by the test")
        self.channels.clear()


class FakeStream:
    """Carries nothing: the channel talks to its sandbox directly."""

    def __init__(self, sandbox: FakeSandbox) -> None:
        self.sandbox = sandbox
        self.closed = False

    async def send(self, data: bytes | bytearray | memoryview) -> None:
        raise OSError("a fake stream carries nothing")

    async def receive(self, max_bytes: int = 262144) -> bytes:
        return b""

    async def aclose(self) -> None:
        self.closed = True


class FakeChannel:
    """Stands for a GuestChannel: as much of it as lifecycle needs."""

    def __init__(self, stream: FakeStream) -> None:
        self._stream = stream
        self._sandbox = stream.sandbox
        self._lost: asyncio.Future[ChannelLost] = asyncio.get_running_loop().create_future()
        self._sandbox.channels.append(self)
        self.pings = 0
        self.hello = GuestHello(
            version=wire.VERSION,
            instance="fake",
            bundle="fake",
            python="3.11.2",
            pid=7,
            uid=0,
            user="root",
            home="/root",
            workdir=WORKDIR,
            window=1 << 20,
            capabilities=frozenset(),
            start_time=0.0,
        )

    @property
    def closed(self) -> bool:
        return self._lost.done()

    def lose(self, cause: str) -> None:
        if not self._lost.done():
            self._lost.set_result(ChannelLost(cause))

    async def wait_closed(self) -> ChannelLost:
        return await asyncio.shield(self._lost)

    async def aclose(self) -> None:
        self.lose("the channel was closed")
        await self._stream.aclose()
        if self in self._sandbox.channels:
            self._sandbox.channels.remove(self)

    async def ping(self, timeout: float) -> None:
        self.pings += 1
        if self._sandbox.frozen:
            raise TimeoutError

    def open(self, op: str, params: Mapping[str, object]) -> Any:
        """Reading files only, of which there are none."""
        assert op == "file.read", op
        path = str(params["path"])
        raise WorkspacedError(Code.NOT_FOUND, "FILE_NOT_FOUND", f"{path}: there is no such file", {"path": path})

    async def call(self, op: str, params: Mapping[str, object]) -> dict[str, Any]:
        if self.closed:
            raise ChannelLost("closed")
        sandbox = self._sandbox
        if op == "guest.shutdown":
            sandbox.processes.clear()
            return {}
        if op == "process.stop_all":
            stopped = len(sandbox.processes)
            sandbox.processes.clear()
            return {"stopped": stopped}
        if op == "process.list":
            processes = [
                {"process_id": name, "kind": "pipe" if name.startswith("mcp-") else "process"}
                for name in sorted(sandbox.processes)
            ]
            return {"processes": processes, "next_page_token": ""}
        if op == "file.list":
            return {"entries": [{"path": path} for path in sorted(sandbox.files)], "next_page_token": ""}
        if op == "file.move":
            path = str(params["path"])
            if path not in sandbox.files:
                raise WorkspacedError(
                    Code.NOT_FOUND, "FILE_NOT_FOUND", f"{path}: there is no such file", {"path": path}
                )
            sandbox.files.discard(path)
            sandbox.files.add(str(params["to"]))
            return {}
        if op == "file.remove":
            sandbox.files.discard(str(params["path"]))
            return {"removed": 1}
        raise AssertionError(f"unexpected operation {op}")


async def fake_connect(stream: Any, token: str) -> Any:
    """Shake hands with a fake guest."""
    if stream.sandbox.token != token:
        raise ChannelLost("the guest said good-bye: TOKEN", "TOKEN")
    return FakeChannel(stream)


class FakeDriver:
    """Sandboxes in memory. ``fail`` maps a method's name to what it raises, ``hold`` to what it waits for first."""

    def __init__(self, name: str = "local") -> None:
        self.name = name
        self.sandboxes: dict[str, FakeSandbox] = {}
        self.fail: dict[str, BaseException] = {}
        self.hold: dict[str, asyncio.Event] = {}
        self.reached: dict[str, asyncio.Event] = {}
        self.calls: list[str] = []

    async def probe(self) -> Availability:
        return Availability(True, version="fake", capabilities=Capabilities(persistence=True))

    async def provision(self, spec: SandboxSpec, report: Progress) -> SandboxRef:
        report(Phase.CREATING, 0.5)
        await self._step("provision")
        sandbox = self.sandboxes.get(spec.key)
        if sandbox is None:
            sandbox = self.sandboxes[spec.key] = FakeSandbox(spec.key, spec.token)
        sandbox.running, sandbox.token = True, spec.token
        return SandboxRef(spec.key, spec.token, WORKDIR, {"fake": spec.key})

    async def open_channel(self, ref: SandboxRef) -> FakeStream:
        await self._step("open_channel")
        sandbox = self.sandboxes.get(ref.key)
        if sandbox is None or not sandbox.running:
            raise SandboxGone("the sandbox does not run")
        return FakeStream(sandbox)

    async def status(self, ref: SandboxRef) -> SandboxStatus:
        await self._step("status")
        sandbox = self.sandboxes.get(ref.key)
        if sandbox is None:
            return SandboxStatus(SandboxState.GONE, "removed behind our back")
        return SandboxStatus(SandboxState.RUNNING if sandbox.running else SandboxState.SUSPENDED)

    async def renew(self, ref: SandboxRef, until: datetime) -> None:
        await self._step("renew")

    async def suspend(self, ref: SandboxRef) -> None:
        await self._step("suspend")
        sandbox = self.sandboxes.get(ref.key)
        if sandbox is not None:
            sandbox.running = False
            sandbox.break_channels()

    async def destroy(self, ref: SandboxRef) -> None:
        await self._step("destroy")
        sandbox = self.sandboxes.pop(ref.key, None)
        if sandbox is not None:
            sandbox.break_channels()

    async def list(self) -> AsyncIterator[SandboxRef]:
        await self._step("list")
        for sandbox in list(self.sandboxes.values()):
            yield SandboxRef(sandbox.key, "", WORKDIR, {"fake": sandbox.key})

    async def aclose(self) -> None:
        self.calls.append("aclose")

    def remove_behind_our_back(self, key: str) -> None:
        """The sandbox disappears, and so do its channels."""
        self.sandboxes.pop(key).break_channels()

    async def _step(self, name: str) -> None:
        self.calls.append(name)
        if name in self.reached:
            self.reached[name].set()
        if name in self.hold:
            await self.hold[name].wait()
        if name in self.fail:
            raise self.fail[name]


def refused(reason: str = "IMAGE_NOT_FOUND", *, retryable: bool = False) -> DriverError:
    """What a backend says when it refuses."""
    return DriverError(reason, "the fake backend refuses", retryable=retryable)
