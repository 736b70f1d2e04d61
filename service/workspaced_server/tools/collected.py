"""The beginning and the end of a text that may be long."""

from __future__ import annotations

from collections import deque


class Collected:
    """Keeps the first and the last half of `limit` characters of what is added."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head: list[str] = []
        self._room = self._half
        self._tail: deque[str] = deque()
        self._tail_length = 0
        self.left_out = 0

    def add(self, text: str) -> None:
        """The text goes on."""
        if self._room:
            head = text[: self._room]
            self._head.append(head)
            self._room -= len(head)
            text = text[len(head) :]
        if not text:
            return
        self._tail.append(text)
        self._tail_length += len(text)
        while self._tail_length - len(self._tail[0]) >= self._half:
            self._drop(len(self._tail[0]))

    def _drop(self, count: int) -> None:
        self.left_out += count
        self._tail_length -= count
        first = self._tail.popleft()
        if count < len(first):
            self._tail.appendleft(first[count:])

    def text(self) -> str:
        """What was kept; where the middle is missing a line says so."""
        if self._tail_length > self._half:
            self._drop(self._tail_length - self._half)
        head, tail = "".join(self._head), "".join(self._tail)
        if not self.left_out:
            return head + tail
        return f"{head}\n[{self.left_out} characters left out here]\n{tail}"
