"""pipe.spawn: a process whose standard input and output are one stream's DATA."""

from __future__ import annotations

import os
from collections import deque

from .loop import READ
from .pipesize import PIPE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .process import Process
    from .receiver import Payload
    from .stream import Stream

_READ_BYTES = 64 * 1024


class Pipe:
    """Reads the program's output only while the client takes it, so the pipe itself is the back pressure."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._process: Process | None = None
        self._fd = -1
        self._reading = False
        self._ungranted: deque[tuple[int, int]] = deque()

    def take_stdout(self, fd: int) -> None:
        """Called by the process once it has been started; the pipe owns `fd` from here on."""
        os.set_blocking(fd, False)
        self._fd = fd

    def connect(self, process: Process) -> None:
        """Begins to carry bytes."""
        self._process = process
        stream = self._stream
        stream.on_data = self._on_data
        stream.on_end = process.stdin.close
        stream.on_writable = self._read_if_writable
        stream.on_close = self._on_close
        process.stdin.listen(self._on_written)
        process.on_exit.append(self._on_exit)
        stream.message({"started": process.describe()})
        self._read_if_writable()

    def _on_data(self, data: Payload) -> None:
        assert self._process is not None
        stdin = self._process.stdin
        if not stdin.open:
            # What a program does not read is lost, as with a shell's pipe; its exit tells the rest.
            self._stream.grant(len(data))
            return
        self._ungranted.append((stdin.accepted + len(data), len(data)))
        stdin.write(stdin.accepted, data)

    def _on_written(self) -> None:
        assert self._process is not None
        stdin = self._process.stdin
        while self._ungranted and (self._ungranted[0][0] <= stdin.written or stdin.closed):
            self._stream.grant(self._ungranted.popleft()[1])

    def _read_if_writable(self) -> None:
        wanted = self._fd >= 0 and (self._stream.writable or self._stream.closed)
        if wanted is self._reading or self._process is None:
            return
        self._reading = wanted
        if wanted:
            self._process.loop.add(self._fd, READ, self._on_ready)
        else:
            self._process.loop.remove(self._fd)

    def _on_ready(self, events: int) -> None:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._stream.send(data)
            self._read_if_writable()
        else:
            self._close_stdout()

    def _close_stdout(self) -> None:
        if self._fd < 0:
            return
        assert self._process is not None
        fd, self._fd = self._fd, -1
        self._read_if_writable()
        self._process.loop.remove(fd)
        os.close(fd)
        self._process.stdout_ended()

    def _on_exit(self) -> None:
        assert self._process is not None
        self._send_rest()
        self._close_stdout()
        self._stream.result({"exit": self._process.exit})

    def _send_rest(self) -> None:
        # What a client without credit has left in the pipe; a pipe holds no more than this.
        left = PIPE_BYTES
        while self._fd >= 0 and left > 0:
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                return
            self._stream.send(data)
            left -= len(data)

    def _on_close(self) -> None:
        process = self._process
        assert process is not None
        self._read_if_writable()
        if process.exit is None:
            process.owner.stopper.stop(process, "CANCELLED", process.spec.kill_grace)
