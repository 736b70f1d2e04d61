"""A `BlockingStream` without a channel: what the client sends is a list, and it can go away at any step.

stream = ScriptedStream([b"some", b"bytes"])
result = stream.run(write_file, guest, path="a.txt")
stream.sent, stream.messages
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workspaced_guest.stream import StreamCancelled

Handler = Callable[[Any, Any, dict[str, Any]], dict[str, Any]]


@dataclass
class ScriptedGuest:
    """As much of a guest as a file operation sees."""

    workdir: str
    state_dir: str

    @classmethod
    def at(cls, directory: Path) -> ScriptedGuest:
        """A guest with `work` and `state` below a directory."""
        (directory / "work").mkdir()
        (directory / "state").mkdir()
        return cls(str(directory / "work"), str(directory / "state"))


@dataclass
class ScriptedStream:
    """Every call of the operation is a step; at step `cancel_at` the client has gone. `on_step` sees each number."""

    data: Iterable[bytes | dict[str, Any]] = ()
    cancel_at: int | None = None
    on_step: Callable[[int], None] | None = None
    sent: bytearray = field(default_factory=bytearray)
    messages: list[dict[str, Any]] = field(default_factory=list)
    steps: int = 0

    def __post_init__(self) -> None:
        self._incoming = deque(self.data)

    def run(self, handler: Handler, guest: ScriptedGuest, **params: Any) -> dict[str, Any]:
        """Call the operation."""
        return handler(guest, self, params)

    @property
    def cancelled(self) -> bool:
        return self.cancel_at is not None and self.steps >= self.cancel_at

    def check(self) -> None:
        self.steps += 1
        if self.on_step is not None:
            self.on_step(self.steps)
        if self.cancelled:
            raise StreamCancelled

    def send(self, data: bytes) -> None:
        self.check()
        self.sent += data

    def message(self, message: dict[str, Any]) -> None:
        self.check()
        self.messages.append(message)

    def receive(self) -> bytes | None:
        item = self.receive_item()
        assert not isinstance(item, dict)
        return item

    def receive_item(self) -> bytes | dict[str, Any] | None:
        self.check()
        return self._incoming.popleft() if self._incoming else None

    def reuse(self, data: bytes | bytearray) -> None:
        if isinstance(data, bytearray):
            data[:] = bytes(len(data))  # as the next payload would
