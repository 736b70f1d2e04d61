"""One operation on a channel, as the server sees it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from workspaced_guest import wire
from workspaced_server.errors import FieldViolation, invalid
from workspaced_server.guest.faults import fault_from_guest

if TYPE_CHECKING:
    from workspaced_server.guest.channel import GuestChannel

# A guest that fills a window of the usual size with the smallest frames makes so many at most; more are no honest
# traffic: a record has 10 bytes, a message more.
_MAX_QUEUED_FRAMES = 131_072
# The window of a stream whose reader keeps up with the guest, so that the way between them is never empty.
WIDE_WINDOW_BYTES = 4 * wire.WINDOW
_GRANTS_TO_WIDEN = 8
# Frames of fewer payload bytes than this are not counted by their payload alone against memory.
_COUNTED = frozenset((wire.DATA, wire.MESSAGE))


class ChannelLost(OSError):
    """The channel broke while it was used. Its text may be shown to callers.

    ``goaway`` is the guest's reason (``TOKEN``, ``VERSION``, ``UPGRADE``, ``STOPPED`` ...) when it said good-bye,
    else empty.
    """

    def __init__(self, message: str, goaway: str = "") -> None:
        super().__init__(message)
        self.goaway = goaway


class Nothing:
    """The type of `NOTHING`."""


NOTHING: Final = Nothing()
"""What `GuestStream.receive_nowait` returns when there is nothing yet."""


def open_payload(op: str, params: Mapping[str, object], window: int) -> bytes:
    """The payload of OPEN. Raises WorkspacedError when it does not fit into a frame."""
    payload = wire.encode_json({"op": op, "params": dict(params), "window": window})
    if len(payload) > wire.MAX_PAYLOAD:
        raise invalid(
            FieldViolation(
                "spec" if op == "process.start" else "request",
                f"is {len(payload)} bytes long in transit, at most {wire.MAX_PAYLOAD} are possible: "
                "pass large values in a file or by standard input",
            )
        )
    return payload


class GuestStream:
    """A stream between OPEN and its end. One task may send while one other receives.

    As an async context manager it is opened on entering; leaving it before its end sends CANCEL, and the guest undoes
    or stops the operation as the protocol says.
    """

    __slots__ = (
        "_channel",
        "_credit",
        "_credit_wake",
        "_failure",
        "_finished",
        "_kept_up",
        "_lost",
        "_open_payload",
        "_queue",
        "_receivable",
        "_result",
        "_ungranted",
        "_unreleased",
        "_wake",
        "_window",
        "id",
    )

    def __init__(self, channel: GuestChannel, payload: bytes, window: int, wake: asyncio.Event | None) -> None:
        self.id = 0
        self._channel = channel
        self._open_payload = payload
        self._window = window
        self._receivable = window
        self._ungranted = 0
        self._unreleased = 0
        self._kept_up = 0  # grants in a row at which nothing waited for the reader
        self._credit = channel.hello.window
        self._credit_wake = asyncio.Event()
        self._wake = wake or asyncio.Event()
        self._queue: deque[tuple[int, bytes]] = deque()
        self._finished = False  # RESULT or ERROR has come
        self._result: dict[str, Any] | None = None
        self._lost: ChannelLost | None = None
        self._failure: BaseException | None = None

    async def __aenter__(self) -> Self:
        channel = self._channel
        while channel.congested:
            await channel.drained()
        self.id = channel.register(self)
        channel.enqueue(wire.OPEN, self.id, self._open_payload)
        self._open_payload = b""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    @property
    def wide(self) -> bool:
        """Whether its reader has kept up with the guest for so long that it may have more on the way at once."""
        return self._window >= WIDE_WINDOW_BYTES

    @property
    def result(self) -> dict[str, Any]:
        """The RESULT, once `receive` has returned None."""
        if self._result is None:
            raise RuntimeError("the stream has no result yet")
        return self._result

    def fail(self, error: BaseException) -> None:
        """Cancel the stream from our side: the task that receives gets `error`."""
        if self._failure is None:
            self._failure = error
        self.cancel()
        self._credit_wake.set()
        self._wake.set()

    def cancel(self) -> None:
        """Forget the stream: CANCEL to the guest unless it has ended. Idempotent."""
        if not self._finished and self._lost is None and self.id:
            self._channel.enqueue(wire.CANCEL, self.id)
        self._finished = True
        self._queue.clear()
        self._channel.forget(self.id)

    async def receive(self) -> bytes | dict[str, Any] | None:
        """The next DATA (as bytes) or MESSAGE (as dict); ``b""`` when the guest half-closed; None after the RESULT.

        Asking for the next grants the guest the credit of the one before, so a consumer that awaits its own output
        between two calls passes its pace on. Raises WorkspacedError for the guest's ERROR (after all that came before
        it), ChannelLost. Cancellation loses nothing.
        """
        while True:
            item = self.receive_nowait()
            if not isinstance(item, Nothing):
                return item
            self._wake.clear()
            await self._wake.wait()

    def receive_nowait(self, *, release: bool = True) -> bytes | dict[str, Any] | Nothing | None:
        """As `receive`, `NOTHING` instead of waiting. Without `release` no credit is granted yet, so that a consumer
        can take several items before it has passed the first on."""
        if release:
            self._release()
        if self._failure is not None:
            raise self._failure
        if not self._queue:
            if self._lost is not None:
                raise ChannelLost(str(self._lost), self._lost.goaway)
            return None if self._result is not None else NOTHING
        kind, payload = self._queue.popleft()
        if kind == wire.DATA:
            self._unreleased += len(payload)
            return payload
        if kind == wire.END:
            return b""
        try:
            value = wire.decode_json(payload)
            if kind == wire.ERROR:
                raise fault_from_guest(value)
        except wire.ProtocolError as error:
            raise self._channel.protocol_error(error) from None
        if kind == wire.MESSAGE:
            self._unreleased += len(payload)
            return value
        self._result = value
        return None

    async def send(self, data: bytes | memoryview) -> None:
        """Send bytes of any length as DATA, waiting for the guest's credit. `data` may be changed again afterwards.

        After the guest has ended the stream this does nothing: `receive` tells how. Raises ChannelLost. Cancellation
        leaves the frames that were sent before.
        """
        if len(data) <= wire.MAX_DATA:
            await self._emit(wire.DATA, data)
            return
        view = memoryview(data)
        for start in range(0, len(view), wire.MAX_DATA):
            await self._emit(wire.DATA, view[start : start + wire.MAX_DATA])

    async def message(self, value: Mapping[str, object]) -> None:
        """Send one MESSAGE after everything sent before; waits and raises as `send`."""
        await self._emit(wire.MESSAGE, wire.encode_json(dict(value)))

    def end(self) -> None:
        """Half close: no more DATA or MESSAGE from this side. Never waits."""
        if not self._finished and self._lost is None:
            self._channel.enqueue(wire.END, self.id)

    async def _emit(self, kind: int, payload: bytes | memoryview) -> None:
        channel = self._channel
        while not self._finished and (self._credit <= 0 or channel.congested):
            if self._lost is not None:
                raise ChannelLost(str(self._lost), self._lost.goaway)
            if self._credit <= 0:
                self._credit_wake.clear()
                await self._credit_wake.wait()
            else:
                await channel.drained()
        if self._finished:
            return
        if self._lost is not None:
            raise ChannelLost(str(self._lost), self._lost.goaway)
        self._credit -= len(payload)
        channel.enqueue(kind, self.id, payload)

    def _release(self) -> None:
        """Grant credit for what was consumed, in portions of a quarter of the window."""
        if not self._unreleased:
            return
        self._ungranted += self._unreleased
        self._unreleased = 0
        if self._ungranted * 4 >= self._window and not self._finished:
            self._kept_up = 0 if self._queue else self._kept_up + 1
            if self._kept_up >= _GRANTS_TO_WIDEN and self._window == wire.WINDOW and self._channel.widen(self.id):
                self._window = WIDE_WINDOW_BYTES
                self._ungranted += WIDE_WINDOW_BYTES - wire.WINDOW
            self._receivable += self._ungranted
            self._channel.enqueue(wire.CREDIT, self.id, wire.encode_credit(self._ungranted))
            self._ungranted = 0

    # What the channel calls.

    def feed(self, kind: int, payload: bytes) -> None:
        """A frame for this stream. Raises ProtocolError when it is not allowed now."""
        if kind == wire.CREDIT:
            self._credit = min(self._credit + wire.decode_credit(payload), wire.MAX_CREDIT)
            self._credit_wake.set()
            return
        if kind in _COUNTED:
            if self._receivable <= 0:
                raise wire.ProtocolError("the guest sent more than it was granted")
            self._receivable -= len(payload)
            if not payload:
                return
        if len(self._queue) >= _MAX_QUEUED_FRAMES * max(1, self._window // wire.WINDOW):
            raise wire.ProtocolError("the guest floods a stream with tiny frames")
        self._queue.append((kind, payload))
        if kind in (wire.RESULT, wire.ERROR):
            self._finished = True
            self._channel.forget(self.id)
            self._credit_wake.set()
        self._wake.set()

    def lose(self, cause: ChannelLost) -> None:
        """The channel broke. What came before is still delivered."""
        self._lost = cause
        self._credit_wake.set()
        self._wake.set()
