"""Faults on a byte stream, from a seed: cuts, stalls, delays and splits at random points.

Two users: :class:`FaultProxy` sits on TCP between client and server; :class:`FaultyDriver` wraps a driver, so that the
streams between server and guest suffer on every backend. A seed decides the same for the same sequence of chunks.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import anyio
import anyio.abc

from workspaced_server.drivers.base import (
    Availability,
    ByteStream,
    Driver,
    Progress,
    SandboxRef,
    SandboxSpec,
    SandboxStatus,
)


@dataclass(frozen=True)
class FaultRates:
    """Probabilities for each chunk, and how long a fault lasts. ``budget`` bounds the cuts, so that a test ends."""

    cut: float = 0.01
    stall: float = 0.005
    delay: float = 0.05
    split: float = 0.3
    stall_seconds: float = 0.3
    delay_seconds: float = 0.01
    budget: int = 12


@dataclass
class FaultPlan:
    """Decisions drawn from one seed, shared by all streams of a test; counts what it did, for the test to assert on."""

    seed: int
    rates: FaultRates = field(default_factory=FaultRates)
    cuts: int = 0
    stalls: int = 0
    delays: int = 0
    splits: int = 0
    enabled: bool = True

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def __str__(self) -> str:
        return f"seed={self.seed} cuts={self.cuts} stalls={self.stalls} delays={self.delays} splits={self.splits}"

    def _hit(self, probability: float) -> bool:
        return self.enabled and self._random.random() < probability

    async def apply(self, data: bytes) -> list[bytes] | None:
        """The pieces to pass on, after waiting as long as the fault says; None means: cut here."""
        if self._hit(self.rates.cut) and self.cuts < self.rates.budget:
            self.cuts += 1
            return None
        if self._hit(self.rates.stall) and self.stalls < self.rates.budget:
            self.stalls += 1
            await anyio.sleep(self.rates.stall_seconds)
        elif self._hit(self.rates.delay) and self.delays < 20 * self.rates.budget:
            self.delays += 1
            await anyio.sleep(self.rates.delay_seconds * self._random.random())
        if len(data) > 1 and self._hit(self.rates.split):
            self.splits += 1
            at = self._random.randrange(1, len(data))
            return [data[:at], data[at:]]
        return [data]


class FaultProxy:
    """A TCP proxy on a port of its own that damages what passes by a plan.

    ``cut_all`` breaks every connection at once; ``freeze`` stops forwarding without closing; ``refuse`` closes new
    connections at once; ``cut_after`` breaks the connection that carries a given byte. A cut connection is reset in
    both directions after the bytes before the cut have passed.
    """

    def __init__(self, target_host: str, target_port: int, plan: FaultPlan | None = None) -> None:
        self.target = (target_host, target_port)
        self.plan = plan
        self.refuse = False
        self.connections = 0
        self.forwarded = 0
        self._thaw = anyio.Event()
        self._thaw.set()
        self._scopes: set[anyio.CancelScope] = set()
        self._due: dict[str, list[int]] = {"up": [], "down": []}
        self.port = 0

    async def serve(self, *, task_status: anyio.abc.TaskStatus[int] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; reports the port."""
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        self.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        task_status.started(self.port)
        async with listener:
            await listener.serve(self._handle)

    def cut_all(self) -> None:
        """Break every connection now."""
        for scope in list(self._scopes):
            scope.cancel()

    def cut_after(self, sizes: list[int], direction: str) -> None:
        """Cut after so many bytes of all connections in a direction ("up" to the server, "down" to the client); each
        further size counts from the cut before it. Replaces what was due there."""
        self._due[direction] = list(sizes)

    @property
    def due(self) -> int:
        """How many of these cuts are still to come."""
        return sum(map(len, self._due.values()))

    def freeze(self) -> None:
        """Stop forwarding, keep the connections open."""
        self._thaw = anyio.Event()

    def thaw(self) -> None:
        """Forward again."""
        self._thaw.set()

    async def _handle(self, client: anyio.abc.SocketStream) -> None:
        self.connections += 1
        async with client:
            if self.refuse:
                return
            with anyio.CancelScope() as scope:
                self._scopes.add(scope)
                try:
                    async with await anyio.connect_tcp(*self.target) as server, anyio.create_task_group() as group:
                        group.start_soon(self._pump, client, server, scope, "up")
                        group.start_soon(self._pump, server, client, scope, "down")
                except OSError:
                    pass  # nobody serves: the client sees its connection close
                finally:
                    self._scopes.discard(scope)

    async def _pump(
        self,
        source: anyio.abc.SocketStream,
        sink: anyio.abc.SocketStream,
        scope: anyio.CancelScope,
        direction: str,
    ) -> None:
        due = self._due
        try:
            while True:
                data = await source.receive(262144)
                await self._thaw.wait()
                if due[direction]:
                    if len(data) >= due[direction][0]:
                        await sink.send(data[: due[direction].pop(0)])
                        scope.cancel()
                        return
                    due[direction][0] -= len(data)
                pieces = [data] if self.plan is None else await self.plan.apply(data)
                if pieces is None:
                    scope.cancel()
                    return
                for piece in pieces:
                    await sink.send(piece)
                self.forwarded += len(data)
        except anyio.EndOfStream:
            await sink.send_eof()
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            scope.cancel()


class FaultyStream:
    """A ByteStream that suffers by a plan.

    A cut closes the inner stream and raises ConnectionResetError on both halves.
    """

    def __init__(self, inner: ByteStream, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan
        self._cut = False
        self._pending = b""

    async def _break(self) -> None:
        self._cut = True
        await self._inner.aclose()
        raise ConnectionResetError("cut by the test")

    async def send(self, data: bytes | bytearray | memoryview) -> None:
        if self._cut:
            raise ConnectionResetError("cut by the test")
        pieces = await self._plan.apply(bytes(data))
        if pieces is None:
            await self._break()
            return
        for piece in pieces:
            await self._inner.send(piece)

    async def receive(self, max_bytes: int = 262144) -> bytes:
        if self._cut:
            raise ConnectionResetError("cut by the test")
        if self._pending:
            data, self._pending = self._pending, b""
            return data
        data = await self._inner.receive(max_bytes)
        if not data:
            return data
        pieces = await self._plan.apply(data)
        if pieces is None:
            await self._break()
            return b""
        if len(pieces) > 1:
            self._pending = pieces[1]
        return pieces[0]

    async def aclose(self) -> None:
        await self._inner.aclose()


class FaultyDriver:
    """Any driver, with faults on the streams to its guests."""

    def __init__(self, inner: Driver, plan: FaultPlan) -> None:
        self._inner = inner
        self.plan = plan
        self.name = inner.name

    async def probe(self) -> Availability:
        return await self._inner.probe()

    async def provision(self, spec: SandboxSpec, report: Progress) -> SandboxRef:
        return await self._inner.provision(spec, report)

    async def open_channel(self, ref: SandboxRef) -> ByteStream:
        return FaultyStream(await self._inner.open_channel(ref), self.plan)

    async def status(self, ref: SandboxRef) -> SandboxStatus:
        return await self._inner.status(ref)

    async def renew(self, ref: SandboxRef, until: datetime) -> None:
        await self._inner.renew(ref, until)

    async def suspend(self, ref: SandboxRef) -> None:
        await self._inner.suspend(ref)

    async def destroy(self, ref: SandboxRef) -> None:
        await self._inner.destroy(ref)

    def list(self) -> AsyncIterator[SandboxRef]:
        return self._inner.list()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
