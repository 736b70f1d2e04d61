"""The status that a server gave a call, which grpc.aio loses when a write is under way.

A write that fails because the call has ended makes grpc.aio put ``INTERNAL: Internal error from Core`` in the place of
the status that has arrived just before. So it is taken down at the moment when it arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc

from . import errors
from .connection import Connection, ended, now

_HIDDEN = "Internal error from Core"
_PATIENCE = 20


class FirstStatus:
    """Watches one call; make it right after the call."""

    __slots__ = ("_call", "_error")

    def __init__(self, call: grpc.aio.Call) -> None:
        self._call = call
        self._error: errors.WorkspacedError | None = None
        call.add_done_callback(self._ended)

    def _ended(self, call: Any) -> None:
        code, message = now(call.code()), now(call.details()) or ""
        if code is not None and code is not grpc.StatusCode.OK and message != _HIDDEN and self._error is None:
            self._error = errors.from_status(code.name, message, dict(now(call.trailing_metadata()) or ()))

    async def error(self, raised: grpc.aio.AioRpcError) -> errors.WorkspacedError:
        """The error for what grpc raised, or for the status that it stands in the place of."""
        if raised.details() != _HIDDEN:
            return errors.from_rpc(raised)
        for _ in range(_PATIENCE):
            if self._error is None:
                self._ended(self._call)  # the status may also arrive just after the failed write
            if self._error is not None:
                return self._error
            await asyncio.sleep(0.005)
        return errors.Unavailable("the connection broke while data was being sent")


def leave(call: Any) -> None:
    """End a call, whatever state it is in; one that has ended stays as it is. For calls that requests are written to.

    After a failed write grpc.aio takes a call for done, and no longer cancels it. Its status has not come then, and
    cannot, as long as messages precede it that nobody reads any more: it would stay until the program ends.
    """
    if not call.cancel() and now(call.details()) == _HIDDEN:
        call._cython_call.cancel("the call was left")


async def upload(connection: Connection, call: Any, requests: AsyncGenerator[Any, None]) -> Any:
    """Send the requests of a client stream, and return its answer. Raises :class:`WorkspacedError`.

    Cancellation cancels the call on the server too, and so does an error of ``requests``.
    """
    status = FirstStatus(call)
    try:
        try:
            async with aclosing(requests):
                async for request in requests:
                    await call.write(request)
            await call.done_writing()
        except asyncio.InvalidStateError:
            pass  # the server has answered already; the answer says why
        await ended(call)
        response = await call
    except grpc.aio.AioRpcError as error:
        raise await status.error(error) from None
    finally:
        leave(call)
    connection.heard(call)
    return response
