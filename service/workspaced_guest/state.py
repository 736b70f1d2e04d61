"""What survives the guest: one small file per process. Whatever else lies there is survived."""

from __future__ import annotations

import json
import os
import stat

from . import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_MAX_RECORD = 8 << 20
_MAX_DIGITS = 20


class Record:
    """The file of one process: a JSON object a line, of which the last whole one counts.

    It is only added to, so a write that fails half-way, or ends with the guest, leaves what was there.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, content: dict[str, Any]) -> None:
        """Replaces the record by one `write`. Raises OSError, and the record is the former one."""
        data = b"\n" + json.dumps(content, separators=(",", ":")).encode("ascii")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(self.path, flags, 0o600)
        written = 0
        try:
            while written < len(data):
                written += os.write(descriptor, data[written:])
        except OSError:
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
            raise
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Idempotent. What can't be removed is logged."""
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            log.write(f"{self.path} stays: {error.strerror}")


class State:
    """The `processes` directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        make_directory(directory)

    def record(self, process_id: str) -> Record:
        """The record of a process, with a checked id."""
        return Record(os.path.join(self._directory, process_id + ".json"))

    def load(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What an earlier guest left. What is no record tells nothing, and is discarded."""
        for name in sorted(os.listdir(self._directory)):
            content = self._read(name)
            if content is not None:
                yield name[: -len(".json")], content

    def discard(self, name: str, why: object) -> None:
        """Removes what is no record, as far as that is possible, and logs it."""
        path = os.path.join(self._directory, name)
        log.write(f"{path} is no record of a process: {why}")
        Record(path).remove()

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            if not name.endswith(".json"):
                raise ValueError("it has another name")
            return _last_object(read_regular(os.path.join(self._directory, name), _MAX_RECORD))
        except (OSError, ValueError, RecursionError) as error:
            self.discard(name, error)
            return None


def make_directory(path: str) -> None:
    """A directory at `path`; what lies there instead is removed. Raises OSError."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            log.write(f"{path} is no directory")
            os.unlink(path)
            os.mkdir(path, 0o700)


def read_regular(path: str, limit: int) -> bytes:
    """The content of a file of at most `limit` bytes.

    Raises OSError, or ValueError when it is larger or no regular file: that could block, or lead elsewhere.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            raise ValueError(f"no regular file of at most {limit} bytes")
        return os.read(descriptor, limit)
    finally:
        os.close(descriptor)


def _last_object(content: bytes) -> dict[str, Any]:
    # Only the last line can be torn.
    for line in content.rsplit(b"\n", 2)[:-3:-1]:
        try:
            found = json.loads(line, parse_int=_integer)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    raise ValueError("it holds none")


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        # To convert millions of them takes minutes.
        raise ValueError("a number is too large")
    return int(digits)
