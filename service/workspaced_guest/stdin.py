"""Standard input by offset: what was accepted once is never written twice."""

from __future__ import annotations

import errno
import os
from collections import deque

from . import params as read
from .fault import Fault, invalid
from .loop import WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .process import Process
    from .receiver import Payload
    from .stream import Stream
    from .wire import Buffer

    Params = dict[str, Any]

_MAX_IOV = 64


class Stdin:
    """The writing end of a process's standard input, or a duplicate of its terminal.

    Bytes wait here until the pipe takes them.
    """

    def __init__(self, process: Process, fd: int, terminal: bool) -> None:
        self._process = process
        self._fd = fd
        self._terminal = terminal
        self._queue: deque[Buffer] = deque()
        self._waiting = False
        self._last = b"\n"
        self.accepted = 0
        self.written = 0
        self.closing = False
        self.closed = fd < 0
        self._listeners: list[Callable[[], None]] = []
        if fd >= 0:
            os.set_blocking(fd, False)

    @property
    def open(self) -> bool:
        """Whether bytes can still be added."""
        return not self.closing and not self.closed

    def listen(self, listener: Callable[[], None]) -> None:
        """Calls after each write and at the end."""
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def write(self, offset: int, data: Payload) -> None:
        """Accepts what of `data` lies beyond what was accepted before. Raises OFFSET_INVALID or STDIN_CLOSED."""
        if offset > self.accepted:
            raise Fault(
                "OUT_OF_RANGE", "OFFSET_INVALID", "bytes before this offset are missing", expected=self.accepted
            )
        fresh = data[self.accepted - offset :] if offset < self.accepted else data
        if not fresh:
            return
        if not self.open:
            raise self.closed_fault()
        self.accepted += len(fresh)
        self._last = bytes(fresh[-1:])
        self._queue.append(fresh)
        self._flush()

    def close(self) -> None:
        """Closes after everything accepted has been written. Idempotent."""
        if self.open:
            self.closing = True
            if self._terminal:
                # The end-of-file character counts only at the start of a line; the first ends the line.
                self._queue.append(_eof_character(self._fd) * (1 if self._last == b"\n" else 2))
            self._flush()

    def abandon(self) -> None:
        """The process has gone, or never reads again: what waits is dropped."""
        if not self.closed:
            self.closed = True
            self._queue.clear()
            self._wait(False)
            os.close(self._fd)
            self._tell()

    def closed_fault(self) -> Fault:
        """Why nothing can be written."""
        if self._process.leader_exited:
            return Fault("FAILED_PRECONDITION", "PROCESS_EXITED", "the process has exited", ack=self.written)
        return Fault("FAILED_PRECONDITION", "STDIN_CLOSED", "standard input is closed", ack=self.written)

    def _on_ready(self, events: int) -> None:
        # The pipe takes bytes again, or nobody reads it any more.
        self._flush()

    def snapshot(self) -> dict[str, Any]:
        """For a guest that takes over."""
        return {
            "fd": -1 if self.closed else self._fd,
            "accepted": self.accepted,
            "written": self.written,
            "closing": self.closing,
            "last": self._last.hex(),
            "queue": b"".join(self._queue).hex(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Takes over; the file descriptor was given to the constructor."""
        self.accepted = snapshot["accepted"]
        self.written = snapshot["written"]
        self.closing = snapshot["closing"]
        self._last = bytes.fromhex(snapshot["last"])
        if snapshot["queue"]:
            self._queue.append(bytes.fromhex(snapshot["queue"]))
        if not self.closed:
            self._flush()

    def _flush(self) -> None:
        if self.closed:
            return
        before = self.written
        try:
            while self._queue:
                self._written(os.writev(self._fd, [self._queue[i] for i in range(min(_MAX_IOV, len(self._queue)))]))
        except BlockingIOError:
            self._wait(True)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                self._process.log(f"stdin: {error}")
            self.abandon()
            return
        else:
            self._wait(False)
            if self.closing:
                self.abandon()
                return
        if self.written != before:
            self._tell()

    def _written(self, count: int) -> None:
        # The end-of-file characters of a terminal are no bytes of the caller's.
        self.written = min(self.written + count, self.accepted)
        while count:
            first = self._queue.popleft()
            if count < len(first):
                self._queue.appendleft(memoryview(first)[count:])
                return
            count -= len(first)

    def _wait(self, wanted: bool) -> None:
        if wanted is self._waiting:
            return
        self._waiting = wanted
        if wanted:
            self._process.loop.add(self._fd, WRITE, self._on_ready)
        else:
            self._process.loop.remove(self._fd)

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener()


class StdinWriter:
    """One process.stdin stream."""

    def __init__(self, stdin: Stdin, stream: Stream, offset: int) -> None:
        if offset > stdin.accepted:
            raise Fault(
                "OUT_OF_RANGE", "OFFSET_INVALID", "bytes before this offset are missing", expected=stdin.accepted
            )
        self._stdin = stdin
        self._stream = stream
        self._position = offset
        self._acknowledged = -1
        self._ended = False
        # What of this stream is not in the pipe yet: (end offset, bytes to grant).
        self._ungranted: deque[tuple[int, int]] = deque()
        stream.on_data = self._on_data
        stream.on_message = self._on_message
        stream.on_end = self._on_end
        stream.on_close = self._on_close
        # An acknowledgement that had to wait for the channel goes out then: nothing else may ever happen.
        stream.on_writable = self._progress
        stdin.listen(self._progress)
        self._progress()

    def _on_data(self, data: Payload) -> None:
        self._ungranted.append((self._position + len(data), len(data)))
        start, self._position = self._position, self._position + len(data)
        try:
            self._stdin.write(start, data)
        except Fault:
            self._stdin.unlisten(self._progress)
            raise
        self._progress()

    def _on_message(self, message: Params) -> None:
        if not read.boolean(message, "close"):
            raise invalid("the only message is close")
        self._stdin.close()
        self._progress()

    def _on_end(self) -> None:
        self._ended = True
        self._progress()

    def _on_close(self) -> None:
        self._stdin.unlisten(self._progress)

    def _progress(self) -> None:
        stdin, stream = self._stdin, self._stream
        if stream.closed:
            return
        while self._ungranted and (self._ungranted[0][0] <= stdin.written or stdin.closed):
            stream.grant(self._ungranted.popleft()[1])
        if self._acknowledged < stdin.written and stream.writable:
            self._acknowledged = stdin.written
            stream.message({"ack": stdin.written})
        if self._position > stdin.written and stdin.closed:
            stdin.unlisten(self._progress)
            stream.fail(stdin.closed_fault())
        elif self._ended and (self._position <= stdin.written) and (stdin.closed or not stdin.closing):
            stdin.unlisten(self._progress)
            stream.result({"ack": stdin.written, "closed": not stdin.open})


def _eof_character(fd: int) -> bytes:
    import termios

    try:
        character = termios.tcgetattr(fd)[6][4]
    except termios.error:
        character = b"\x04"
    return character if isinstance(character, bytes) else bytes((character,))
