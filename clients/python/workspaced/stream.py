"""Streams of messages that end, and own the call behind them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class Stream(Generic[T]):
    """An async iterator that is best used as a context manager too: leaving it ends the call on the server.

    ::

        async with ws.files.watch("src") as changes:
            async for change in changes: ...

    Used without one, the call ends with the iteration, or when the stream is collected.
    """

    def __init__(self, source: AsyncGenerator[T, None]) -> None:
        self._source = source

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        return await self._source.__anext__()

    async def aclose(self) -> None:
        """End the call. Idempotent."""
        await self._source.aclose()
