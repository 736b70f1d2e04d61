"""Written by generate_sync.py from workspaced.offload; do not edit."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable

from workspaced import offload as twin
from workspaced.content import (
    DataBlock,
    Message,
    MessageLike,
)
from workspaced.file_content import Data
from workspaced.offload import OffloadInfo, OffloadKind, ResultLike

from .portal import call
from .stream import Stream


class Offload:
    """Stores contexts, tool results and data, lists them and reads them back.

    What a method returned is durable. A call that fails or is cancelled before all was sent has stored nothing.
    """

    def __init__(self, asynchronous: twin.Offload) -> None:
        self._twin = asynchronous

    def context(
        self, session_id: str, messages: Iterable[MessageLike] | AsyncIterable[MessageLike], *, request_id: str = ""
    ) -> str:
        """Append messages to the context of a session; the path of the file that holds it, one message a line.

        Data blocks with bytes are moved to files of their own. With a ``request_id`` a repeated call appends once. A
        call whose connection breaks is made again, unless ``messages`` is an asynchronous iterator, which gives them
        once: then it is :class:`Unavailable`.
        """
        return call(self._twin.context(session_id, messages, request_id=request_id))

    def tool_result(self, session_id: str, result: ResultLike, *, request_id: str = "") -> str:
        """Store the output of a tool call; the path of the file."""
        return call(self._twin.tool_result(session_id, result, request_id=request_id))

    def data(self, data: Data, *, media_type: str = "", name: str = "", sha256: str = "") -> DataBlock:
        """Store bytes under their hash; a data block that refers to them."""
        return call(self._twin.data(data, media_type=media_type, name=name, sha256=sha256))

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of something stored, by its path or URL. Raises :class:`OffloadNotFound`."""
        return call(self._twin.read(path, offset=offset, length=length))

    def read_stream(self, path: str, *, offset: int = 0, length: int | None = None) -> Stream[bytes]:
        """The same in chunks."""
        return Stream(self._twin.read_stream(path, offset=offset, length=length))

    def messages(self, path: str, *, skip: int = 0, limit: int = 0) -> Stream[Message]:
        """The messages of a context, in order; ``limit`` 0 is up to the end."""
        return Stream(self._twin.messages(path, skip=skip, limit=limit))

    def list(self, session_id: str | None = None, *, kind: OffloadKind | None = None) -> list[OffloadInfo]:
        """What is stored, by path: everything, or the contexts and tool results of a session."""
        return call(self._twin.list(session_id, kind=kind))
