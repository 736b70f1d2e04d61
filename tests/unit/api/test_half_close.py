"""The end of a client's stream, when the call is given up just then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from workspaced_server.api.half_close import confirm_half_close

pytestmark = pytest.mark.anyio


class Context:
    """A call whose initial metadata takes its time."""

    def __init__(self) -> None:
        self.sending = asyncio.Event()
        self.may_end = asyncio.Event()
        self.noted = False

    async def send_initial_metadata(self, metadata: Any) -> None:
        self.sending.set()
        await self.may_end.wait()
        self.noted = True


async def test_metadata_under_way_is_noted_before_a_cancellation_goes_on() -> None:
    context = Context()
    confirming = asyncio.create_task(confirm_half_close(context))  # type: ignore[arg-type]
    await context.sending.wait()
    confirming.cancel()
    await asyncio.sleep(0)
    context.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await confirming
    assert context.noted, "the status would bring the metadata a second time, and never arrive"
