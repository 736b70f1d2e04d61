"""A byte stream over the standard streams of a local program, such as ``ssh``."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import Process
from collections.abc import Sequence

from workspaced_server.drivers.streams import TransportStream

_BUFFER = 1 << 20


class ProgramStream(TransportStream):
    """Owns the program: closing the stream ends it."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        super().__init__(process.stdout, process.stdin)
        self._process = process

    @classmethod
    async def start(cls, argv: Sequence[str]) -> ProgramStream:
        """Start the program. Raises OSError when that cannot be done."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_BUFFER,
            start_new_session=True,
        )
        return cls(process)

    async def aclose(self) -> None:
        """Close both directions and end the program. Idempotent; never raises."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await super().aclose()
        await self._process.wait()
