"""Running a command to its end."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Literal

from . import errors
from .backoff import Backoff
from .connection import MIB, Connection
from .enums import ExitReason
from .process import Process
from .process_info import Exit, Gap, ResourceUsage
from .v1 import execution_pb2, process_pb2

_TERMINATE_SECONDS = 5.0
_ANSWER_BYTES = MIB
"""What RunProcess takes as standard input, and gives of each stream, at most."""


@dataclass(frozen=True)
class Result:
    """How a command ended, and what it wrote."""

    process_id: str
    exit: Exit
    stdout: bytes
    """Standard output; with a pty, all output."""
    stderr: bytes
    truncated: bool
    """Whether ``stdout`` or ``stderr`` is only the beginning; ``Workspace.attach(process_id)`` reads all of it."""

    @property
    def exit_code(self) -> int | None:
        """Its exit code; ``None`` when a signal ended it or its end was not seen."""
        return self.exit.exit_code

    @property
    def signal(self) -> str | None:
        """The signal that ended it, without SIG."""
        return self.exit.signal

    @property
    def reason(self) -> ExitReason:
        """Why it ended."""
        return self.exit.reason

    @property
    def usage(self) -> ResourceUsage | None:
        """What it used, where that is known."""
        return self.exit.usage

    @property
    def ok(self) -> bool:
        """Whether it exited with 0."""
        return self.exit.ok

    def check(self) -> Result:
        """This result, or :class:`CommandFailed` when the command did not exit with 0."""
        if not self.ok:
            tail = self.stderr[-2000:].decode("utf-8", "replace").strip()
            raise errors.CommandFailed(self.exit.describe() + (f": {tail}" if tail else ""), self)
        return self


class _Capture:
    """Output of both streams, the first ``limit`` bytes of each."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._stdout = bytearray()
        self._stderr = bytearray()
        self.truncated = False

    def add(self, stream: str, data: bytes) -> None:
        target = self._stderr if stream == "stderr" else self._stdout
        room = self._limit - len(target)
        if len(data) > room:
            self.truncated = True
            data = data[:room]
        target += data

    @property
    def full(self) -> bool:
        return len(self._stdout) >= self._limit and len(self._stderr) >= self._limit and self.truncated

    def result(self, process_id: str, end: Exit) -> Result:
        return Result(process_id, end, bytes(self._stdout), bytes(self._stderr), self.truncated)


async def run(
    connection: Connection,
    workspace_id: str,
    process_id: str,
    spec: process_pb2.ProcessSpec,
    stdin: bytes,
    max_output_bytes: int,
) -> Result:
    """Run a process to its end; see ``Workspace.run``."""
    if max_output_bytes < 1:
        raise ValueError("max_output_bytes is at least 1")
    if len(stdin) > _ANSWER_BYTES:
        return await _feed(connection, workspace_id, process_id, spec, stdin, max_output_bytes)
    request = execution_pb2.RunProcessRequest(
        workspace_id=workspace_id,
        process_id=process_id,
        spec=spec,
        stdin=stdin,
        max_output_bytes=min(max_output_bytes, _ANSWER_BYTES),
    )
    response = await _call(connection, request)
    end = Exit.from_proto(response.process.exit)
    result = Result(process_id, end, response.stdout, response.stderr, response.truncated)
    if response.truncated and max_output_bytes > _ANSWER_BYTES:
        return await _read_all(connection, workspace_id, result, max_output_bytes)
    return result


async def _call(connection: Connection, request: execution_pb2.RunProcessRequest) -> execution_pb2.RunProcessResponse:
    try:
        return await _repeat(connection, request)
    except asyncio.CancelledError:
        if request.spec.disconnect_policy != process_pb2.DISCONNECT_POLICY_KEEP:
            # In the background: a cancelled caller does not wait.
            connection.background(_terminate(connection, request))
        raise


async def _terminate(connection: Connection, request: execution_pb2.RunProcessRequest) -> None:
    """Ask the process tree to end; what does not hear of it or does not care, the server kills 10 s after the call."""
    process = Process(connection, request.workspace_id, request.process_id)
    with contextlib.suppress(errors.WorkspacedError):
        await process.signal("TERM", timeout=_TERMINATE_SECONDS)


async def _repeat(connection: Connection, request: execution_pb2.RunProcessRequest) -> execution_pb2.RunProcessResponse:
    # Repeated as it is: the same id and spec attach to the process that the first attempt started.
    backoff = Backoff()
    lost_at: float | None = None
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        try:
            return await connection.once(connection.execution.RunProcess, request, timeout=None)
        except errors.WorkspacedError as error:
            now = loop.time()
            limit = connection.retry_limit(error, connection.resume_timeout)
            if lost_at is None or now - began > limit:
                lost_at = now  # this attempt stood for a while: the time without a connection begins anew
            delay = backoff.next(error.retry_after)
            if limit == 0 or now + delay > lost_at + limit:
                raise
        await asyncio.sleep(delay)


async def _read_all(connection: Connection, workspace_id: str, short: Result, limit: int) -> Result:
    capture = _Capture(limit)
    async with Process(connection, workspace_id, short.process_id, read_only=True, gaps="yield") as process:
        async for event in process:
            if isinstance(event, Gap):
                return short  # its beginning is no longer kept; what the answer held is
            capture.add(event.stream, event.data)
            if capture.full:
                break
    return capture.result(short.process_id, short.exit)


async def _feed(
    connection: Connection,
    workspace_id: str,
    process_id: str,
    spec: process_pb2.ProcessSpec,
    stdin: bytes,
    limit: int,
) -> Result:
    capture = _Capture(limit)
    streamed = process_pb2.ProcessSpec()
    streamed.CopyFrom(spec)
    streamed.stdin = process_pb2.STDIN_MODE_OPEN
    if streamed.disconnect_policy == process_pb2.DISCONNECT_POLICY_UNSPECIFIED:
        streamed.disconnect_policy = process_pb2.DISCONNECT_POLICY_KILL  # as RunProcess has it
    gaps: Literal["raise"] = "raise"
    async with Process(connection, workspace_id, process_id, start=streamed, gaps=gaps) as process:

        async def feed() -> None:
            # A command need not read all of its input.
            with contextlib.suppress(errors.StdinClosed):
                await process.write(stdin)
                await process.close_stdin()

        feeder = asyncio.create_task(feed())
        try:
            async for event in process:
                if isinstance(event, Gap):
                    raise errors.OutputLost(event.start, event.end)
                capture.add(event.stream, event.data)
            await feeder
        finally:
            feeder.cancel()
            await asyncio.wait([feeder])
        return capture.result(process_id, await process.wait())
