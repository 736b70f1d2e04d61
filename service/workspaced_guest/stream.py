"""Streams: one operation each, multiplexed over a channel.

Handlers on the loop get a `Stream` and never block. Handlers that block (files) are wrapped by `blocking` and get a
`BlockingStream` in a thread of their own:

    def read_file(guest, stream, params):
        stream.message({"stat": ...})
        stream.send(data)               # waits for the client's credit
        return {"bytes": n}             # the RESULT

    FILE_OPS = {"file.read": blocking(read_file)}
"""

from __future__ import annotations

import sys
import threading
from collections import deque

from . import wire
from .fault import Fault, from_os_error, invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Union

    from .channel import Channel
    from .guest import Guest
    from .receiver import Payload
    from .wire import Buffer

    Params = dict[str, Any]
    Handler = Callable[[Guest, "Stream", Params], None]
    BlockingHandler = Callable[[Guest, "BlockingStream", Params], dict[str, Any]]
    Item = Union[Buffer, dict[str, Any]]

# What a blocking handler may have handed to the loop and the loop not yet to the channel.
_IN_FLIGHT_BYTES = 512 * 1024
# Grants smaller than this wait for more, so that small frames do not double the traffic.
_GRANT_BYTES = wire.WINDOW // 2
_MAX_THREADS = 256


class StreamCancelled(Exception):
    """The client has forgotten the stream, or its channel is gone: undo what is half done and return."""


class Stream:
    """One operation on the loop's side. Every method returns at once; callbacks run on the loop.

    The handler sets the `on_...` attributes it needs before it returns. `on_close` is called at most once, when the
    stream ends by CANCEL or loss of the channel (`lost` tells which), never after `result` or `fail`.
    """

    __slots__ = (
        "_pending",
        "_ungranted",
        "channel",
        "closed",
        "credit",
        "ended",
        "id",
        "lost",
        "on_close",
        "on_data",
        "on_end",
        "on_message",
        "on_writable",
        "receivable",
    )

    def __init__(self, channel: Channel, stream_id: int, window: int) -> None:
        self.channel = channel
        self.id = stream_id
        self.credit = window
        self.receivable = wire.WINDOW
        self.closed = False
        self.ended = False
        self.lost = False
        self.on_data: Callable[[Payload], None] | None = None
        self.on_message: Callable[[Params], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self.on_close: Callable[[], None] | None = None
        self._pending: deque[tuple[int, list[Buffer]]] = deque()
        self._ungranted = 0

    @property
    def writable(self) -> bool:
        """Whether `send` would go out now: there is credit, and the channel isn't behind. Else see `on_writable`."""
        return self.credit > 0 and not self._pending and not self.closed and not self.channel.congested

    def send(self, *buffers: Buffer) -> None:
        """Sends one DATA frame of at most `wire.MAX_PAYLOAD` bytes; kept until there is credit when not `writable`."""
        self._emit(wire.DATA, list(buffers))

    def message(self, message: Params) -> None:
        """Sends one MESSAGE, after everything sent before."""
        self._emit(wire.MESSAGE, [wire.encode_json(message)])

    def end(self) -> None:
        """Half closes: no more DATA or MESSAGE from this side."""
        self._emit(wire.END, [])

    def result(self, result: Params) -> None:
        """Ends the stream with success, after everything sent before. Does nothing on a closed stream."""
        payload = wire.encode_json(result)
        if len(payload) > wire.MAX_PAYLOAD:
            # A frame too long would end the channel of everybody.
            self.fail(Fault("INTERNAL", "GUEST_ERROR", f"the answer has {len(payload)} bytes, too many for a frame"))
            return
        self._emit(wire.RESULT, [payload])

    def fail(self, fault: Fault) -> None:
        """Ends the stream with an error; what still waits for credit is dropped. Does nothing on a closed stream."""
        self._pending.clear()
        self._emit(wire.ERROR, [wire.encode_json(fault.payload())])

    def grant(self, count: int) -> None:
        """Lets the client send `count` bytes more; call it when that many have been consumed."""
        self._ungranted += count
        if self._ungranted >= _GRANT_BYTES and not self.closed and not self.ended:
            self.receivable += self._ungranted
            self.channel.write(wire.CREDIT, self.id, [wire.encode_credit(self._ungranted)])
            self._ungranted = 0

    def _emit(self, kind: int, buffers: list[Buffer]) -> None:
        if self.closed:
            return
        if self._pending or (self.credit <= 0 and kind in (wire.DATA, wire.MESSAGE)):
            self._pending.append((kind, buffers))
            return
        self._write(kind, buffers)

    def _write(self, kind: int, buffers: list[Buffer]) -> None:
        if kind in (wire.DATA, wire.MESSAGE):
            self.credit -= sum(map(len, buffers))
        self.channel.write(kind, self.id, buffers)
        if kind in (wire.RESULT, wire.ERROR):
            self._forget()

    def add_credit(self, count: int) -> None:
        """The client's CREDIT frame."""
        self.credit = min(self.credit + count, wire.MAX_CREDIT)
        while self._pending and (self.credit > 0 or self._pending[0][0] not in (wire.DATA, wire.MESSAGE)):
            self._write(*self._pending.popleft())
        self.wake()

    def wake(self) -> None:
        """Calls `on_writable` if there is something to be gained."""
        if self.on_writable is not None and self.writable:
            self.on_writable()

    def abort(self, lost: bool) -> None:
        """The client's CANCEL (`lost` false) or the end of the channel."""
        if self.closed:
            return
        callback = self.on_close
        self.lost = lost
        self._forget()
        if callback is not None:
            callback()

    def _forget(self) -> None:
        self.closed = True
        self._pending.clear()
        self.on_data = self.on_message = self.on_end = self.on_writable = self.on_close = None
        self.channel.forget(self.id)


class BlockingStream:
    """A stream for a handler that runs in a thread. Methods block; each raises StreamCancelled after cancellation."""

    def __init__(self, stream: Stream, messages: bool = False) -> None:
        self._stream = stream
        self._messages = messages
        self._loop = stream.channel.loop
        self._changed = threading.Condition(threading.Lock())
        self._outgoing: deque[Item] = deque()
        self._outgoing_bytes = 0
        self._pump_scheduled = False
        self._incoming: deque[Payload | Params] = deque()
        self._consumed = 0  # and not yet granted anew
        self._ended = False
        self._cancelled = False
        self._cancel_callback: Callable[[], None] | None = None
        stream.on_data = self._on_data
        stream.on_end = self._on_end
        stream.on_message = self._on_message
        stream.on_writable = self._pump
        stream.on_close = self._on_close

    @property
    def cancelled(self) -> bool:
        """Whether the client has gone; long work that neither sends nor receives asks from time to time."""
        return self._cancelled

    def check(self) -> None:
        """Raises StreamCancelled when the client has gone."""
        if self._cancelled:
            raise StreamCancelled

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Calls `callback` when the client has gone, at once if it has already; for a handler that waits for something
        else than this stream. It runs on the loop or here, and must not block."""
        with self._changed:
            self._cancel_callback = callback
            cancelled = self._cancelled
        if cancelled:
            callback()

    def send(self, data: Buffer) -> None:
        """Sends one DATA frame of at most 256 KiB; blocks while the client or the channel is behind."""
        if len(data) > wire.MAX_DATA:
            raise ValueError("a DATA frame holds at most 256 KiB")
        self._put(data, len(data))

    def message(self, message: Params) -> None:
        """Sends one MESSAGE in order with `send`."""
        self._put(message, 256)

    def receive(self) -> Payload | None:
        """The next DATA of the client as it came (1 byte to 256 KiB), or None after its END. Its memory may be given
        back to `reuse`."""
        item = self.receive_item()
        if isinstance(item, dict):
            raise invalid("data was expected, and no message")
        return item

    def receive_item(self) -> Payload | Params | None:
        """As `receive`, or a MESSAGE of the client, where the operation takes messages."""
        with self._changed:
            while not self._incoming and not self._ended and not self._cancelled:
                self._changed.wait()
            if self._cancelled:
                raise StreamCancelled
            if not self._incoming:
                return None
            data = self._incoming.popleft()
        if isinstance(data, dict):
            return data
        self._consumed += len(data)
        if self._consumed >= _GRANT_BYTES:
            # Less would be kept back by the stream as well, and each call wakes the loop.
            self._loop.call_threadsafe(self._stream.grant, self._consumed)
            self._consumed = 0
        return data

    def reuse(self, data: Payload) -> None:
        """Gives what was received back, to be written over."""
        self._stream.channel.reuse(data)

    def _put(self, item: Item, size: int) -> None:
        with self._changed:
            while self._outgoing_bytes >= _IN_FLIGHT_BYTES and not self._cancelled:
                self._changed.wait()
            if self._cancelled:
                raise StreamCancelled
            self._outgoing.append(item)
            self._outgoing_bytes += size
            if self._pump_scheduled:
                return
            self._pump_scheduled = True
        self._loop.call_threadsafe(self._pump)

    def finish(self, outcome: Params | Fault) -> None:
        """Ends the stream, on the loop: RESULT after all that was sent, or ERROR."""
        if isinstance(outcome, Fault):
            self._stream.fail(outcome)
            return
        while self._outgoing:
            self._emit(self._outgoing.popleft())
        self._stream.result(outcome)

    def _emit(self, item: Item) -> None:
        if isinstance(item, dict):
            self._stream.message(item)
        else:
            self._stream.send(item)

    def _pump(self) -> None:
        with self._changed:
            self._pump_scheduled = False
            while self._outgoing and self._stream.writable:
                item = self._outgoing.popleft()
                self._outgoing_bytes -= 256 if isinstance(item, dict) else len(item)
                self._emit(item)
            self._changed.notify()

    def _on_data(self, data: Payload) -> None:
        with self._changed:
            self._incoming.append(data)
            self._changed.notify()

    def _on_end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _on_message(self, message: Params) -> None:
        if self._messages:
            with self._changed:
                self._incoming.append(message)
                self._changed.notify()
            return
        self._on_close()
        self._stream.fail(invalid("this operation takes no messages"))

    def _on_close(self) -> None:
        with self._changed:
            self._cancelled = True
            self._outgoing.clear()
            self._incoming.clear()
            self._changed.notify()
            callback = self._cancel_callback
        if callback is not None:
            callback()


def blocking(handler: BlockingHandler, messages: bool = False) -> Handler:
    """Makes a handler that may block: it runs in a thread, its return value is the RESULT.

    `messages` says that it takes MESSAGE frames, by `receive_item`.
    Raise `Fault` for an error; an `OSError` that escapes becomes the fault `from_os_error` makes of it.
    """

    def start(guest: Guest, stream: Stream, params: Params) -> None:
        if guest.threads >= _MAX_THREADS:
            raise Fault("RESOURCE_EXHAUSTED", "LIMIT_REACHED", "too many file operations at once", limit=_MAX_THREADS)
        waiting = BlockingStream(stream, messages)
        thread = threading.Thread(target=_run, args=(handler, guest, waiting, params), daemon=True)
        guest.threads += 1
        try:
            thread.start()
        except RuntimeError:
            guest.threads -= 1
            raise Fault("RESOURCE_EXHAUSTED", "LIMIT_REACHED", "no thread could be started") from None

    return start


def _run(handler: BlockingHandler, guest: Guest, stream: BlockingStream, params: Params) -> None:
    outcome: Params | Fault | None = None
    try:
        outcome = handler(guest, stream, params)
    except StreamCancelled:
        outcome = None
    except Fault as fault:
        outcome = fault
    except OSError as error:
        outcome = from_os_error(error)
    except BaseException:  # noqa: BLE001  (reported, and told to the client as INTERNAL)
        sys.excepthook(*sys.exc_info())
        outcome = Fault("INTERNAL", "GUEST_ERROR", "the guest failed; its log says why")
    guest.loop.call_threadsafe(_settle, guest, stream, outcome)


def _settle(guest: Guest, stream: BlockingStream, outcome: Params | Fault | None) -> None:
    guest.threads -= 1
    if outcome is not None:
        stream.finish(outcome)
