"""Written by generate_sync.py from workspaced.tunnel; do not edit."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING

from workspaced import tunnel as twin

from .portal import call

if TYPE_CHECKING:
    from typing_extensions import Self


class Tunnel:
    """A TCP connection to a port inside a workspace, made by ``Workspace.tunnel``. Use it as a context manager.

    A tunnel is not resumed: a broken connection is :class:`Unavailable`, as with any socket.
    """

    def __init__(self, asynchronous: twin.Tunnel) -> None:
        self._twin = asynchronous

    def __enter__(self) -> Self:
        """Connect. Raises :class:`PortRefused` when nothing listens."""
        call(self._twin.__aenter__())
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        call(self._twin.__aexit__(exc_type, exc, traceback))

    def close(self) -> None:
        """Close both directions at once. Idempotent."""
        call(self._twin.aclose())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        with contextlib.suppress(StopAsyncIteration):
            return call(self._twin.__anext__())
        raise StopIteration

    def receive(self) -> bytes:
        """The next bytes; empty when the other side has closed. Cancellation closes the tunnel."""
        return call(self._twin.receive())

    def send(self, data: bytes) -> None:
        """Send bytes. Waits while the other side does not read. Cancellation closes the tunnel."""
        call(self._twin.send(data))

    def send_eof(self) -> None:
        """Close this direction: the other side reads its end. Receiving goes on."""
        call(self._twin.send_eof())


class Forward:
    """A local TCP port that leads to a port inside a workspace, made by ``Workspace.forward``. A context manager."""

    def __init__(self, asynchronous: twin.Forward) -> None:
        self._twin = asynchronous

    def __enter__(self) -> Self:
        """Listen. Raises :class:`OSError` when the local port is taken."""
        call(self._twin.__aenter__())
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        call(self._twin.__aexit__(exc_type, exc, traceback))

    def close(self) -> None:
        """Stop listening and close every connection. Idempotent."""
        call(self._twin.aclose())

    @property
    def local_port(self) -> int:
        """The local port that listens."""
        return self._twin.local_port
