"""Reading what a process writes, into its journal."""

from __future__ import annotations

import errno
import os

from .loop import READ
from .pipesize import PIPE_BYTES, grow
from .wire import TAG_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .process import Process

_READ_BYTES = 64 * 1024
_READ_MORE_BYTES = 256 * 1024
# After the leader's exit this much may go past a full journal, so that its last words are kept.
_LAST_WORDS_BYTES = 4 << 20


class Output:
    """One pipe, or the terminal. Reads when there is something, pauses when the journal is full."""

    def __init__(self, process: Process, fd: int, tag: int, grown: bool = False) -> None:
        self.process = process
        self.fd = fd
        self.tag = tag
        self.ended = False
        self.paused = False
        self.discard = False
        self._size = _READ_BYTES
        self._grown = grown or TAG_NAMES[tag] == "pty"
        self._last_words = _LAST_WORDS_BYTES
        os.set_blocking(fd, False)

    def start(self) -> None:
        """Begins to read."""
        self.process.loop.add(self.fd, READ, self._on_ready)

    def resume(self) -> None:
        """Reads on after a pause."""
        if self.paused and not self.ended:
            self.paused = False
            self.process.loop.add(self.fd, READ, self._on_ready)

    def drain(self) -> None:
        """Reads what is in the pipe now, then drops all that comes later."""
        # Who writes faster than it is read must not hold up everybody; a pipe never holds more than this.
        left = PIPE_BYTES
        while left > 0 and not self.ended and not self.discard:
            count = self._read()
            if not count:
                break
            left -= count
        self.discard = True
        self.resume()

    def close(self) -> None:
        """Gives up the pipe."""
        if not self.ended:
            self.ended = True
            self.process.loop.remove(self.fd)
            os.close(self.fd)

    def _on_ready(self, events: int) -> None:
        self._read()

    def _read(self) -> int:
        process = self.process
        if not self.discard and process.journal.full and not self._may_overflow():
            if not self.paused:
                self.paused = True
                process.loop.remove(self.fd)
            return 0
        try:
            data = os.read(self.fd, self._size)
        except BlockingIOError:
            return 0
        except OSError as error:
            # A terminal reports the end by EIO; anything else ends it too, and is not hidden.
            if error.errno != errno.EIO:
                process.output_incomplete = True
            data = b""
        if not data:
            self.close()
            process.output_ended(self)
            return 0
        count = len(data)
        if count < _READ_BYTES:
            self._size = _READ_BYTES
        else:
            self._size = _READ_MORE_BYTES
            if not self._grown:
                self._grown = True
                grow(self.fd)
        if self.discard:
            return count
        if process.leader_exited and process.journal.full:
            self._last_words -= count
        process.journal.append(self.tag, data)
        process.output_arrived()
        return count

    def _may_overflow(self) -> bool:
        if not self.process.leader_exited:
            return False
        if self._last_words <= 0:
            self.discard = True
            self.process.output_incomplete = True
        return True
