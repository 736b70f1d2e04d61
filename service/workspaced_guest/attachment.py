"""One reader of a process: pulls records from the journal as fast as its client takes them."""

from __future__ import annotations

import time

from .wire import MAX_DATA, RECORD, TAG_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .loop import Timer
    from .process import Process
    from .stream import Stream

_GATHER_SECONDS = 0.003
_GATHER_BYTES = 64 * 1024
_JOIN_BYTES = 4096


class Attachment:
    """Holds an offset and nothing else of the journal."""

    def __init__(self, process: Process, stream: Stream, offset: int, follow: bool) -> None:
        self.process = process
        self.stream = stream
        self.offset = offset
        self.follow = follow
        self._stop = None if follow else process.journal.next_offset
        self._eofs = 0
        self._sent_at = 0.0
        self._timer: Timer | None = None
        stream.on_writable = self.pump
        stream.on_close = self._on_close

    def output_arrived(self) -> None:
        """There is more in the journal: sends it now after a quiet time, else gathers for a moment."""
        if self._timer is not None:
            if self.process.journal.next_offset - self.offset >= _GATHER_BYTES:
                self.pump()
            return
        if self.process.journal.next_offset - self.offset >= _GATHER_BYTES:
            self.pump()
            return
        wait = self._sent_at + _GATHER_SECONDS - time.monotonic()
        if wait <= 0:
            self.pump()
        else:
            self._timer = self.process.loop.call_later(wait, self.pump)

    def pump(self) -> None:
        """Sends what there is and what credit allows; the RESULT too when all has been sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        stream = self.stream
        journal = self.process.journal
        before = self.offset
        while stream.writable:
            end = journal.next_offset if self._stop is None else self._stop
            self._tell_eofs()
            if self.offset >= end or not stream.writable:
                break
            try:
                tag, count, buffers = journal.read(self.offset, min(self._until_eof(end), MAX_DATA))
            except LookupError as gap:
                to = gap.args[0]
                stream.message({"gap": {"from": self.offset, "to": to}})
                self.offset = to
                continue
            if len(buffers) > 1 and count < len(buffers) * _JOIN_BYTES:
                buffers = [b"".join(buffers)]
            stream.send(RECORD.pack(tag, self.offset), *buffers)
            self.offset += count
        if self.offset != before:
            self._sent_at = time.monotonic()
            self.process.reader_advanced()
        self._finish()

    def _until_eof(self, end: int) -> int:
        eofs = self.process.eofs
        if self._eofs < len(eofs):
            end = min(end, eofs[self._eofs][1])
        return end - self.offset

    def _tell_eofs(self) -> None:
        eofs = self.process.eofs
        while self._eofs < len(eofs) and eofs[self._eofs][1] <= self.offset:
            self.stream.message({"eof": TAG_NAMES[eofs[self._eofs][0]]})
            self._eofs += 1

    def _finish(self) -> None:
        process = self.process
        if self.stream.closed:
            return
        if self._stop is None:
            if process.exit is None or self.offset < process.journal.next_offset:
                return
        elif self.offset < self._stop:
            return
        if self._eofs < len(process.eofs) and process.eofs[self._eofs][1] <= self.offset:
            self._tell_eofs()
        process.detach(self, lost=False)
        self.stream.result({"exit": process.exit, "next_offset": self.offset})

    def _on_close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.process.detach(self, lost=True)
