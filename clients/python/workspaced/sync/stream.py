"""Written by generate_sync.py from workspaced.stream; do not edit."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from workspaced import stream as twin

from .portal import call

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class Stream(Generic[T]):
    """An iterator that is best used as a context manager too: leaving it ends the call on the server.

    ::

        with ws.files.watch("src") as changes:
            for change in changes: ...

    Used without one, the call ends with the iteration, or when the stream is collected.
    """

    def __init__(self, asynchronous: twin.Stream[T]) -> None:
        self._twin = asynchronous

    def __enter__(self) -> Self:
        call(self._twin.__aenter__())
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        call(self._twin.__aexit__(exc_type, exc, traceback))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        with contextlib.suppress(StopAsyncIteration):
            return call(self._twin.__anext__())
        raise StopIteration

    def close(self) -> None:
        """End the call. Idempotent."""
        call(self._twin.aclose())
