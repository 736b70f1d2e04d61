"""What survives the guest: one small file per process, written in place by one `write` each time."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_MAX_RECORD = 8 << 20


class Record:
    """The file of one process. It only grows, so a write that replaces it is never half old and half new."""

    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, content: dict[str, Any]) -> None:
        """Replaces the record. Raises OSError."""
        data = json.dumps(content, separators=(",", ":")).encode("ascii")
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            data = data.ljust(os.fstat(descriptor).st_size)
            while data:
                data = data[os.write(descriptor, data) :]
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Idempotent."""
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            return


class State:
    """The `processes` directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        os.makedirs(directory, mode=0o700, exist_ok=True)

    def record(self, process_id: str) -> Record:
        """The record of a process, with a checked id."""
        return Record(os.path.join(self._directory, process_id + ".json"))

    def load(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What an earlier guest left. A record that can't be read is removed: it tells nothing."""
        for name in sorted(os.listdir(self._directory)):
            path = os.path.join(self._directory, name)
            try:
                with open(path, "rb") as file:
                    content = json.loads(file.read(_MAX_RECORD))
                if not name.endswith(".json") or not isinstance(content, dict):
                    raise ValueError("not a record")
            except (OSError, ValueError):
                os.unlink(path)
                continue
            yield name[: -len(".json")], content
