"""The event loop: epoll, timers, signals, and calls from threads. It sleeps as long as nothing happens."""

from __future__ import annotations

import heapq
import os
import select
import signal
import sys
import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

READ = select.EPOLLIN
WRITE = select.EPOLLOUT

_THREAD_CALL = b"\0"
_MIN_CANCELLED = 64


class Timer:
    """A call at a time; `cancel` may be called at any time, also after it ran."""

    __slots__ = ("args", "callback", "loop", "when")

    def __init__(self, loop: Loop, when: float, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.loop = loop
        self.when = when
        self.callback: Callable[..., None] | None = callback
        self.args = args

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self.args = ()
            self.loop.timer_cancelled()

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when


class Loop:
    """One thread runs it; everything but `call_threadsafe` belongs to that thread.

    A callback that raises does not end the loop: the error goes to `sys.excepthook`, which writes the guest's log.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._ready: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._timers: list[Timer] = []
        self._cancelled_timers = 0
        self._signals: dict[int, Callable[[], None]] = {}
        self._from_threads: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._stopped = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self.add(self._wake_read, READ, self._woken)

    def add(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Calls `callback(events)` whenever `fd` is ready. Raises OSError (EPERM) for what can't be polled."""
        self._epoll.register(fd, events)
        self._callbacks[fd] = callback

    def modify(self, fd: int, events: int) -> None:
        """Changes what is waited for; errors and hang-ups always are."""
        self._epoll.modify(fd, events)

    def remove(self, fd: int) -> None:
        """Forgets `fd`; call it before closing. Does nothing for one that is not registered."""
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def call_soon(self, callback: Callable[..., None], *args: Any) -> None:
        """Calls before the loop waits again."""
        self._ready.append((callback, args))

    def call_threadsafe(self, callback: Callable[..., None], *args: Any) -> None:
        """`call_soon` from another thread."""
        self._from_threads.append((callback, args))
        try:
            os.write(self._wake_write, _THREAD_CALL)
        except BlockingIOError:
            # The pipe is full of wake-ups, so the loop is going to look.
            return

    def call_later(self, seconds: float, callback: Callable[..., None], *args: Any) -> Timer:
        """Calls once, `seconds` from now."""
        timer = Timer(self, time.monotonic() + seconds, callback, args)
        heapq.heappush(self._timers, timer)
        return timer

    def timer_cancelled(self) -> None:
        """Keeps the heap free of timers that were cancelled long before their time."""
        self._cancelled_timers += 1
        if self._cancelled_timers > _MIN_CANCELLED and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [timer for timer in self._timers if timer.callback is not None]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def on_signal(self, number: int, callback: Callable[[], None]) -> None:
        """Calls on the loop after the signal; several signals may become one call."""
        self._signals[number] = callback
        # A handler and not SIG_IGN: a handler does not survive the exec of a child.
        signal.signal(number, _nothing)

    def stop(self) -> None:
        """Makes `run` return after the callbacks of this round."""
        self._stopped = True

    def run(self) -> None:
        """Runs until `stop`."""
        ready = self._ready
        callbacks = self._callbacks
        while not self._stopped:
            for fd, events in self._poll(self._wait_seconds()):
                callback = callbacks.get(fd)
                if callback is not None:
                    try:
                        callback(events)
                    except Exception:  # noqa: BLE001  (reported, and the loop serves the others)
                        sys.excepthook(*sys.exc_info())
            if self._timers:
                self._run_timers()
            while ready:
                function, args = ready.popleft()
                self._call(function, args)

    def _poll(self, timeout: float) -> list[tuple[int, int]]:
        try:
            return self._epoll.poll(timeout, 256)
        except InterruptedError:
            return []

    def _wait_seconds(self) -> float:
        if self._ready:
            return 0.0
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
            self._cancelled_timers = max(0, self._cancelled_timers - 1)
        if not self._timers:
            return -1.0
        return max(0.0, self._timers[0].when - time.monotonic())

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0].when <= now:
            timer = heapq.heappop(self._timers)
            callback, timer.callback = timer.callback, None
            if callback is None:
                self._cancelled_timers = max(0, self._cancelled_timers - 1)
            else:
                self._call(callback, timer.args)

    def _call(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        try:
            function(*args)
        except Exception:  # noqa: BLE001  (reported, and the loop serves the others)
            sys.excepthook(*sys.exc_info())

    def _woken(self, events: int) -> None:
        woken = os.read(self._wake_read, 4096)
        for number in set(woken):
            callback = self._signals.get(number)
            if callback is not None:
                self._call(callback, ())
        while self._from_threads:
            function, args = self._from_threads.popleft()
            self._call(function, args)

    def close(self) -> None:
        """Gives the file descriptors back."""
        signal.set_wakeup_fd(-1)
        self._epoll.close()
        os.close(self._wake_read)
        os.close(self._wake_write)


def _nothing(number: int, frame: object) -> None:
    """The wake-up file descriptor carries the number to the loop."""
