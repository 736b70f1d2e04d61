"""The end of a client's stream: whether the client ended it, or the call broke."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from workspaced_server.api.revision import answer_metadata
from workspaced_server.principal import current_call


async def confirm_half_close(context: grpc.aio.ServicerContext[Any, Any]) -> None:
    """Call it when a client's stream has ended, before what was sent takes effect.

    A call that was cancelled, or whose connection broke, ends its requests just as a half-close does, and the handler
    is cancelled only a moment later: half a file would be taken for a whole one. Only on a call that lives can
    something be sent, so this sends the initial metadata, which the interceptor leaves to handlers of client streams.
    Raises, or is cancelled, on a dead call. Once a call.
    """
    call = current_call()
    metadata = answer_metadata(call.request_id) if call is not None else ()
    sending: asyncio.Future[None] = asyncio.ensure_future(context.send_initial_metadata(metadata))
    try:
        await asyncio.shield(sending)
    except asyncio.CancelledError:
        # grpc takes note of the metadata only when the sending has ended; given up before, the status would bring it a
        # second time, which the core refuses, and the client would wait for a status forever.
        await asyncio.wait((sending,))
        if not sending.cancelled():
            sending.exception()
        raise
