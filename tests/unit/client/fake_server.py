"""A server of processes in memory whose connections break where a test says. It keeps the contract otherwise."""

# ruff: noqa: N802 (methods are named as in the contract)

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from workspaced.v1 import execution_pb2 as pb
from workspaced.v1 import process_pb2
from workspaced.v1.execution_pb2_grpc import ExecutionServiceServicer, add_ExecutionServiceServicer_to_server


async def refuse(context: Any, code: grpc.StatusCode, reason: str, **metadata: str) -> None:
    """Abort as the server does."""
    status = status_pb2.Status(code=code.value[0], message=reason.lower())
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(domain="workspaced", reason=reason, metadata=metadata))
    status.details.append(detail)
    trailers = (("grpc-status-details-bin", status.SerializeToString()), ("x-request-id", "request-1"))
    await context.abort(code, reason.lower(), trailers)


@dataclass
class FakeProcess:
    """``cat``: writes what it reads, behind what it had to say, and exits with 0 at the end of its input."""

    process_id: str
    spec: process_pb2.ProcessSpec
    journal: bytearray = field(default_factory=bytearray)
    stdin: bytearray = field(default_factory=bytearray)
    first_offset: int = 0
    ended: bool = False
    stdin_broken: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def notify(self) -> None:
        """Wake everybody who waits for this state to change."""
        self.changed.set()
        self.changed = asyncio.Event()

    def message(self) -> process_pb2.Process:
        process = process_pb2.Process(
            process_id=self.process_id, pid=7, spec=self.spec, next_offset=len(self.journal),
            first_offset=self.first_offset, stdin_offset=len(self.stdin), stdin_open=not self.ended,
            state=process_pb2.PROCESS_STATE_EXITED if self.ended else process_pb2.PROCESS_STATE_RUNNING,
        )  # fmt: skip
        if self.ended:
            process.exit.reason, process.exit.exit_code = process_pb2.EXIT_REASON_EXITED, 0
        return process

    def feed(self, offset: int, data: bytes) -> bool:
        """False for an offset beyond what was accepted."""
        if offset > len(self.stdin):
            return False
        fresh = data[len(self.stdin) - offset :]
        self.stdin += fresh
        self.journal += fresh
        self.notify()
        return True

    def end(self) -> None:
        """Exit with 0."""
        self.ended = True
        self.notify()


class FakeExecution(ExecutionServiceServicer):
    """``cuts`` holds, for each coming stream, after how many messages it breaks; ``None`` or no entry: never."""

    def __init__(self) -> None:
        self.processes: dict[str, FakeProcess] = {}
        self.cuts: deque[int | None] = deque()
        self.unary_cuts: deque[str] = deque()
        self.output = b""
        self.started = 0
        self.streams = 0
        self.open_streams = 0
        self.overlap = 0
        self.mute = False
        self.all_closed = asyncio.Event()
        self.chunk = 8

    def _start(self, process_id: str, spec: process_pb2.ProcessSpec) -> FakeProcess:
        process = self.processes.get(process_id)
        if process is None:
            self.started += 1
            process = FakeProcess(process_id, spec, bytearray(self.output))
            process.ended = spec.stdin != process_pb2.STDIN_MODE_OPEN and spec.shell_command != "sleep"
            self.processes[process_id] = process
        return process

    async def Exec(self, request_iterator: Any, context: Any) -> AsyncIterator[pb.ExecResponse]:
        requests = aiter(request_iterator)
        first = await anext(requests)
        cut = self._next_cut()
        if first.WhichOneof("request") == "start":
            if first.start.spec.shell_command == "missing":
                await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "PROCESS_START_FAILED")
            process = self._start(first.start.process_id, first.start.spec)
            offset = 0
        else:
            known = self.processes.get(first.attach.process_id)
            if known is None:
                await refuse(context, grpc.StatusCode.NOT_FOUND, "PROCESS_NOT_FOUND")
                return
            process, offset = known, first.attach.offset
        acks: deque[int] = deque()
        reader = asyncio.create_task(self._input(requests, process, acks, context))
        try:
            async for event in self._events(process, offset, acks, cut, context):
                yield pb.ExecResponse(event=event)
        finally:
            reader.cancel()
            await asyncio.wait([reader])

    async def AttachProcess(self, request: Any, context: Any) -> AsyncIterator[pb.AttachProcessResponse]:
        process = self.processes[request.process_id]
        async for event in self._events(process, request.offset, deque(), self._next_cut(), context):
            yield pb.AttachProcessResponse(event=event)

    def _next_cut(self) -> int | None:
        self.streams += 1
        return self.cuts.popleft() if self.cuts else None

    async def _input(self, requests: Any, process: FakeProcess, acks: deque[int], context: Any) -> None:
        async for request in requests:
            kind = request.WhichOneof("request")
            if kind == "stdin":
                if process.stdin_broken:
                    acks.append(-1)
                elif not process.feed(request.stdin.offset, request.stdin.data):
                    acks.append(-2)
                else:
                    acks.append(len(process.stdin))
                process.notify()
            elif kind == "close_stdin" and request.close_stdin.offset <= len(process.stdin):
                process.end()

    async def _events(
        self, process: FakeProcess, offset: int, acks: deque[int], cut: int | None, context: Any
    ) -> AsyncIterator[pb.ProcessEvent]:
        self.open_streams += 1
        self.all_closed.clear()
        try:
            sent = 0
            async for event in self._uncut(process, offset, acks, context):
                if sent == cut:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "connection reset")
                sent += 1
                yield event
        finally:
            self.open_streams -= 1
            if not self.open_streams:
                self.all_closed.set()

    async def _uncut(
        self, process: FakeProcess, offset: int, acks: deque[int], context: Any
    ) -> AsyncIterator[pb.ProcessEvent]:
        yield pb.ProcessEvent(started=pb.ProcessStarted(process=process.message(), next_offset=offset))
        if self.mute:
            await asyncio.Event().wait()
        if offset < process.first_offset:
            yield pb.ProcessEvent(gap=pb.ProcessGap(**{"from": offset, "to": process.first_offset}))
            offset = process.first_offset
        while True:
            changed = process.changed
            while acks:
                ack = acks.popleft()
                if ack == -1:
                    await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "STDIN_CLOSED")
                if ack == -2:
                    await refuse(context, grpc.StatusCode.OUT_OF_RANGE, "STDIN_OFFSET_INVALID")
                yield pb.ProcessEvent(stdin_ack=pb.StdinAck(offset=ack))
            if offset < len(process.journal):
                start = max(0, offset - self.overlap)
                data = bytes(process.journal[start : offset + self.chunk])
                yield pb.ProcessEvent(
                    output=pb.ProcessOutput(stream=process_pb2.STREAM_STDOUT, offset=start, data=data)
                )
                offset = start + len(data)
            elif process.ended:
                yield pb.ProcessEvent(exited=process.message().exit)
                return
            else:
                await changed.wait()

    async def RunProcess(self, request: Any, context: Any) -> pb.RunProcessResponse:
        process = self._start(request.process_id, request.spec)
        process.ended = True
        await self._cut_unary(context)
        out = bytes(process.journal)
        cap = request.max_output_bytes
        return pb.RunProcessResponse(process=process.message(), stdout=out[:cap], truncated=len(out) > cap)

    async def GetProcess(self, request: Any, context: Any) -> pb.GetProcessResponse:
        await self._cut_unary(context)
        return pb.GetProcessResponse(process=self.processes[request.process_id].message())

    async def WaitProcess(self, request: Any, context: Any) -> pb.WaitProcessResponse:
        process = self.processes[request.process_id]
        while not process.ended:
            await process.changed.wait()
        return pb.WaitProcessResponse(process=process.message(), exit=process.message().exit)

    async def SignalProcess(self, request: Any, context: Any) -> pb.SignalProcessResponse:
        self.processes[request.process_id].end()
        await self._cut_unary(context)
        return pb.SignalProcessResponse(signaled=1)

    async def _cut_unary(self, context: Any) -> None:
        if self.unary_cuts:
            reason = self.unary_cuts.popleft()
            if not reason:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "connection reset")
            await refuse(context, grpc.StatusCode.UNAVAILABLE, reason)

    async def StartProcess(self, request: Any, context: Any) -> pb.StartProcessResponse:
        process = self._start(request.process_id, request.spec)
        await self._cut_unary(context)
        return pb.StartProcessResponse(process=process.message())

    async def ListProcesses(self, request: Any, context: Any) -> pb.ListProcessesResponse:
        return pb.ListProcessesResponse(processes=[process.message() for process in self.processes.values()])

    async def WriteStdin(self, request: Any, context: Any) -> pb.WriteStdinResponse:
        raise NotImplementedError

    async def CallTool(self, request: Any, context: Any) -> AsyncIterator[Any]:
        none: tuple[Any, ...] = ()
        for event in none:
            yield event


def serve(execution: FakeExecution) -> AbstractAsyncContextManager[str]:
    """The target of a running server."""
    return running(lambda server: add_ExecutionServiceServicer_to_server(execution, server))


@asynccontextmanager
async def running(add: Callable[[grpc.aio.Server], object]) -> AsyncIterator[str]:
    """The target of a server with what ``add`` gives it."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    add(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)
