"""RunProcess: a process from its start to its end, with capped output, in one round trip to the guest."""

from __future__ import annotations

import asyncio

from workspaced.v1 import execution_pb2, process_pb2
from workspaced_guest import wire
from workspaced_server.api import answers
from workspaced_server.api.access import Handle
from workspaced_server.api.limits import MAX_RUN_OUTPUT_BYTES
from workspaced_server.api.stdin import write_all
from workspaced_server.companion import companion
from workspaced_server.errors import WorkspacedError
from workspaced_server.guest.stream import GuestStream, Nothing
from workspaced_server.processes import exit_of, process, start_params


async def run_process(
    handle: Handle, process_id: str, request: execution_pb2.RunProcessRequest
) -> execution_pb2.RunProcessResponse:
    """Run it. Raises WorkspacedError, ChannelLost. Cancellation detaches; stopping the process is the caller's."""
    params = await start_params(handle, process_id, request.spec, block=True, kill=True, stdin=request.stdin)
    wake = asyncio.Event()
    async with handle.guest.open("process.start", params, wake=wake) as output:
        started = process(answers.record(answers.message(await output.receive()), "started"))
        reader = _Reader(output, wake, request.max_output_bytes or MAX_RUN_OUTPUT_BYTES)
        if request.stdin:
            async with companion(_write_input(handle, process_id, request.stdin), reader.fail):
                await reader.run()
        else:
            await reader.run()
        exited = exit_of(answers.record(output.result, "exit"))
        started.next_offset = answers.integer(output.result, "next_offset")
    exited.output_incomplete = exited.output_incomplete or reader.gap
    started.state = process_pb2.PROCESS_STATE_EXITED
    started.stdin_open = False
    started.exit.CopyFrom(exited)
    return execution_pb2.RunProcessResponse(
        process=started,
        stdout=b"".join(reader.stdout),
        stderr=b"".join(reader.stderr),
        truncated=reader.truncated,
    )


async def _write_input(handle: Handle, process_id: str, data: bytes) -> None:
    try:
        async with handle.guest.open("process.stdin", {"process_id": process_id, "offset": 0}) as stream:
            await write_all(stream, data, close=True)
    except WorkspacedError as error:
        # A process need not read what it is given; how it ends is the answer.
        if error.reason not in ("STDIN_CLOSED", "PROCESS_EXITED"):
            raise


class _Reader:
    """Reads an attachment to its end and keeps the first `cap` bytes of each stream."""

    def __init__(self, output: GuestStream, wake: asyncio.Event, cap: int) -> None:
        self.stdout: list[bytes] = []
        self.stderr: list[bytes] = []
        self.truncated = False
        self.gap = False
        self._output = output
        self._wake = wake
        self._room = {wire.STDERR: cap, wire.STDOUT: cap}
        self._failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Make `run` raise `error`."""
        self._failure = error
        self._wake.set()

    async def run(self) -> None:
        """Read to the end. Raises WorkspacedError, ChannelLost, and what `fail` was given."""
        while True:
            self._wake.clear()
            if self._failure is not None:
                raise self._failure
            item = self._output.receive_nowait()
            if isinstance(item, Nothing):
                await self._wake.wait()
            elif item is None:
                return
            elif isinstance(item, bytes):
                self._keep(item)
            elif "gap" in item:
                self.gap = self.truncated = True
            elif "eof" not in item:
                raise answers.malformed()

    def _keep(self, record: bytes) -> None:
        if len(record) < wire.RECORD.size or record[0] not in wire.TAG_NAMES:
            raise answers.malformed()
        tag = wire.STDERR if record[0] == wire.STDERR else wire.STDOUT
        data = record[wire.RECORD.size : wire.RECORD.size + self._room[tag]]
        if len(data) < len(record) - wire.RECORD.size:
            self.truncated = True
        if data:
            self._room[tag] -= len(data)
            (self.stderr if tag == wire.STDERR else self.stdout).append(data)
