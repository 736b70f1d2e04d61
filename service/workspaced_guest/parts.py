"""Parts: the temporary files in which new content is gathered beside its target.

A part is named `.<name>.workspaced-<hash>.part`, so that it is on the target's file system and can replace it by a
rename. Each part is recorded in the state directory before it is made; what a killed guest or an abandoned upload
left is found by its record and removed when nobody wrote to it for an hour.
"""

from __future__ import annotations

import os
import threading
import time

from .fault import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .guest import Guest
    from .paths import Place
    from .receiver import Payload

KEPT_SECONDS = 3600.0
_SWEEP_SECONDS = 600.0
_SUFFIX = ".part"
_MARK = ".workspaced-"
_HASH_DIGITS = 24
# Names are at most 255 bytes; the mark, the hash and two dots need 43.
_NAME_BYTES = 200

_lock = threading.Lock()
_writers: dict[str, Part] = {}  # who writes to the part with this hash
_discarded: dict[str, None] = {}  # hashes of uploads that were given up, the latest last
_DISCARDED_KEPT = 1024
_last_sweep: dict[str, float] = {}  # by state directory, monotonic seconds


def is_part(name: str) -> bool:
    """Whether a file name is that of a part; listings and watches leave them out."""
    if not (name.startswith(".") and name.endswith(_SUFFIX)):
        return False
    mark = name.rfind(_MARK)
    digits = name[mark + len(_MARK) : -len(_SUFFIX)]
    return mark > 0 and len(digits) == _HASH_DIGITS and all(digit in "0123456789abcdef" for digit in digits)


class Part:
    """The part for one target, held by one writer. A later writer of the same upload takes it over."""

    def __init__(self, guest: Guest, place: Place, upload_id: str | None, claim: bool = True) -> None:
        """Claim the part (or with `claim` false only name it); makes no file yet.

        Without `upload_id` it is one of its own.
        """
        import hashlib

        status = os.fstat(place.directory)
        if upload_id is None:
            seed = os.urandom(16)
        else:
            seed = f"{status.st_dev}:{status.st_ino}:{upload_id}:".encode() + os.fsencode(place.name)
        self.resumable = upload_id is not None
        self.hash = hashlib.sha256(seed).hexdigest()[:_HASH_DIGITS]
        stem = os.fsencode(place.name)[:_NAME_BYTES].decode("utf-8", "ignore") or "file"
        self.name = f".{stem}{_MARK}{self.hash}{_SUFFIX}"
        self.directory = place.directory
        self._record = os.path.join(_records(guest), self.hash)
        self._writing = threading.Lock()
        if not claim:
            return
        with _lock:
            if self.hash in _discarded:
                raise Fault("ABORTED", "UPLOAD_SUPERSEDED", "this upload was given up; begin another one")
            earlier = _writers.get(self.hash)
            _writers[self.hash] = self
        if earlier is not None:
            # Its channel may be dead without knowing it. Wait for the write it may be in; it makes no other.
            with earlier._writing:
                pass

    @property
    def current(self) -> bool:
        """Whether no later writer has taken the upload over."""
        return _writers.get(self.hash) is self

    def write(self, descriptor: int, data: Payload, offset: int) -> None:
        """Write all of `data` at `offset`. Raises UPLOAD_SUPERSEDED when a later writer has the upload."""
        with self._writing:
            self.require_current()
            written = os.pwrite(descriptor, data, offset)
            while written < len(data):
                written += os.pwrite(descriptor, memoryview(data)[written:], offset + written)

    def require_current(self) -> None:
        """Raises UPLOAD_SUPERSEDED when a later writer has the upload."""
        if not self.current:
            raise Fault("ABORTED", "UPLOAD_SUPERSEDED", "another call has taken this upload over")

    def record(self) -> None:
        """Note in the state directory where the part is, before there is one."""
        path = os.path.join(os.readlink(f"/proc/self/fd/{self.directory}"), self.name)
        descriptor = os.open(self._record, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, os.fsencode(path))
        finally:
            os.close(descriptor)

    def open(self) -> int:
        """Open the part for writing and reading; made, for our eyes only, when it isn't there."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        if not self.resumable:
            flags |= os.O_EXCL
        with self._writing:
            self.require_current()
            self.record()
            return os.open(self.name, flags, 0o600, dir_fd=self.directory)

    def size(self) -> int:
        """Bytes there are already."""
        try:
            return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False).st_size
        except FileNotFoundError:
            return 0

    def leave(self) -> None:
        """Give up the claim and keep the part for a later writer."""
        with _lock:
            if self.current:
                del _writers[self.hash]

    def done(self) -> None:
        """The part has become the target: forget it."""
        _unlink(self._record)
        self.leave()

    def discard(self) -> None:
        """Remove the part whoever writes it, and refuse the writer that is on its way here: operations overtake."""
        with _lock:
            _discarded[self.hash] = None
            while len(_discarded) > _DISCARDED_KEPT:
                del _discarded[next(iter(_discarded))]
            earlier = _writers.pop(self.hash, None)
        if earlier is not None:
            with earlier._writing:
                pass
        _unlink(self.name, self.directory)
        _unlink(self._record)

    def remove(self) -> None:
        """Remove the part, unless a later writer has it."""
        with _lock:
            if not self.current:
                return
            del _writers[self.hash]
            _unlink(self.name, self.directory)
            _unlink(self._record)


def sweep(guest: Guest) -> None:
    """Remove parts that nobody wrote to for an hour. Looks at most every ten minutes; cheap otherwise.

    Called by every write, and by the guest when it starts.
    """
    now = time.monotonic()
    with _lock:
        last = _last_sweep.get(guest.state_dir)
        if last is not None and now - last < _SWEEP_SECONDS:
            return
        _last_sweep[guest.state_dir] = now
    remove_expired(guest, time.time() - KEPT_SECONDS)


def remove_expired(guest: Guest, before: float) -> int:
    """Remove the parts last written before `before` (seconds of the epoch); how many there were."""
    removed = 0
    records = _records(guest)
    for key in os.listdir(records):
        with _lock:
            if key not in _writers:
                removed += _remove_if_older(os.path.join(records, key), before)
    return removed


def _remove_if_older(record: str, before: float) -> int:
    try:
        with open(record, "rb") as file:
            path = os.fsdecode(file.read(8192))
    except FileNotFoundError:
        return 0
    # The record may have been cut short by a crash, and then names no part.
    if not is_part(os.path.basename(path)):
        _unlink(record)
        return 0
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        _unlink(record)
        return 0
    if status.st_mtime >= before:
        return 0
    try:
        os.unlink(path)
    except OSError:
        # Its directory has become read-only, say. That is no matter of whoever writes now; the next sweep tries again.
        return 0
    _unlink(record)
    return 1


def _records(guest: Guest) -> str:
    directory = os.path.join(guest.state_dir, "uploads")
    os.makedirs(directory, mode=0o700, exist_ok=True)
    return directory


def _unlink(path: str, directory: int | None = None) -> None:
    try:
        os.unlink(path, dir_fd=directory)
    except FileNotFoundError:
        return
