"""ExecutionService: processes of a workspace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc

from workspaced.v1 import execution_pb2
from workspaced_server.api import answers
from workspaced_server.api.access import Access, Handle, use
from workspaced_server.api.attachment import Attachment, Event
from workspaced_server.api.run import run_process
from workspaced_server.api.stdin import StdinWriter, write_all
from workspaced_server.api.validation import check, check_size, page_size, seconds, signal_name
from workspaced_server.companion import companion
from workspaced_server.errors import FieldViolation, WorkspacedError, invalid
from workspaced_server.guest.channel import ChannelLost
from workspaced_server.processes import STATE_NAMES, new_process_id, process, start_params

Context = grpc.aio.ServicerContext[Any, Any]

# A process that closes its standard input is most often about to end; its exit then says more than the error.
_STDIN_CLOSED_WAIT_SECONDS: Final = 1.0

_SCOPES: Final = {execution_pb2.SIGNAL_SCOPE_LEADER: "leader"}


class ExecutionServicer:
    """The RPCs of ``workspaced.v1.ExecutionService``; guarantees and errors are in the proto's comments."""

    def __init__(self, workspaces: Access) -> None:
        self._workspaces = workspaces

    async def Exec(  # noqa: N802
        self, requests: AsyncIterator[execution_pb2.ExecRequest], context: Context
    ) -> None:
        iterator = aiter(requests)
        first = await anext(iterator, None)
        kind = None if first is None else first.WhichOneof("request")
        if first is None or kind not in ("start", "attach"):
            raise invalid(FieldViolation("request", "the first message must be start or attach"))
        head = first.start if kind == "start" else first.attach
        check(head)
        wake = asyncio.Event()
        async with use(self._workspaces, head.workspace_id) as handle:
            if isinstance(head, execution_pb2.ExecStart):
                process_id, offset = head.process_id or new_process_id(), 0
                params = await start_params(handle, process_id, head.spec, block=True)
                output = handle.guest.open("process.start", params, wake=wake)
            else:
                process_id, offset = head.process_id, head.offset
                attach: dict[str, object] = {"process_id": process_id, "offset": offset}
                output = handle.guest.open("process.attach", attach, wake=wake)
            async with output:
                attachment = Attachment(context, _exec_response, output, wake, offset)
                started = await attachment.start()
                stdin_offset = answers.integer(started, "stdin_offset")

                def failed(error: BaseException) -> None:
                    _fail(attachment, error)

                stdin = StdinWriter(handle.guest, process_id, stdin_offset, attachment.acknowledge, failed)
                try:
                    async with companion(_follow_requests(iterator, handle, process_id, stdin), failed):
                        await attachment.run()
                finally:
                    await stdin.aclose()

    async def StartProcess(  # noqa: N802
        self, request: execution_pb2.StartProcessRequest, context: Context
    ) -> execution_pb2.StartProcessResponse:
        check(request)
        process_id = request.process_id or new_process_id()
        async with use(self._workspaces, request.workspace_id) as handle:
            params = await start_params(handle, process_id, request.spec, block=False, attach=False)
            result = await handle.guest.call("process.start", params)
        return execution_pb2.StartProcessResponse(
            process=process(answers.record(result, "started")), existing=answers.flag(result, "existing")
        )

    async def AttachProcess(  # noqa: N802
        self, request: execution_pb2.AttachProcessRequest, context: Context
    ) -> None:
        check(request)
        wake = asyncio.Event()
        params: dict[str, object] = {
            "process_id": request.process_id,
            "offset": request.offset,
            "follow": not request.no_follow,
        }
        async with (
            use(self._workspaces, request.workspace_id) as handle,
            handle.guest.open("process.attach", params, wake=wake) as output,
        ):
            attachment = Attachment(
                context, _attach_response, output, wake, request.offset, follow=not request.no_follow
            )
            await attachment.start()
            await attachment.run()

    async def RunProcess(  # noqa: N802
        self, request: execution_pb2.RunProcessRequest, context: Context
    ) -> execution_pb2.RunProcessResponse:
        check(request)
        process_id = request.process_id or new_process_id()
        async with use(self._workspaces, request.workspace_id) as handle:
            # A call that ends early detaches: a broken connection looks like a cancellation, and may be followed by the
            # same call. The guest's disconnect policy ends the process if none follows.
            return await run_process(handle, process_id, request)

    async def GetProcess(  # noqa: N802
        self, request: execution_pb2.GetProcessRequest, context: Context
    ) -> execution_pb2.GetProcessResponse:
        check(request)
        async with use(self._workspaces, request.workspace_id) as handle:
            result = await handle.guest.call("process.get", {"process_id": request.process_id})
        return execution_pb2.GetProcessResponse(process=process(answers.record(result, "process")))

    async def ListProcesses(  # noqa: N802
        self, request: execution_pb2.ListProcessesRequest, context: Context
    ) -> execution_pb2.ListProcessesResponse:
        check(request)
        params: dict[str, object] = {
            "page_size": page_size(request.page_size),
            "page_token": answers.guest_page_token(request.page_token),
        }
        if request.state:
            params["state"] = STATE_NAMES[request.state]
        async with use(self._workspaces, request.workspace_id) as handle:
            result = await handle.guest.call("process.list", params)
        return execution_pb2.ListProcessesResponse(
            processes=[process(item) for item in answers.records(result, "processes")],
            next_page_token=answers.page_token(result),
        )

    async def SignalProcess(  # noqa: N802
        self, request: execution_pb2.SignalProcessRequest, context: Context
    ) -> execution_pb2.SignalProcessResponse:
        check(request)
        async with use(self._workspaces, request.workspace_id) as handle:
            signaled = await _signal(handle, request.process_id, signal_name(request.signal), request.scope)
        return execution_pb2.SignalProcessResponse(signaled=signaled)

    async def WriteStdin(  # noqa: N802
        self, request: execution_pb2.WriteStdinRequest, context: Context
    ) -> execution_pb2.WriteStdinResponse:
        check(request)
        params: dict[str, object] = {"process_id": request.process_id, "offset": request.offset}
        async with (
            use(self._workspaces, request.workspace_id) as handle,
            handle.guest.open("process.stdin", params) as stream,
        ):
            next_offset = await write_all(stream, request.data, close=request.close)
        return execution_pb2.WriteStdinResponse(next_offset=next_offset)

    async def WaitProcess(  # noqa: N802
        self, request: execution_pb2.WaitProcessRequest, context: Context
    ) -> execution_pb2.WaitProcessResponse:
        check(request)
        limit = seconds(request.timeout) if request.HasField("timeout") else None
        params = {"process_id": request.process_id}
        async with use(self._workspaces, request.workspace_id) as handle:
            try:
                async with asyncio.timeout(limit):
                    result = await handle.guest.call("process.wait", params)
            except TimeoutError:
                result = await handle.guest.call("process.get", params)
        response = execution_pb2.WaitProcessResponse(process=process(answers.record(result, "process")))
        if response.process.HasField("exit"):
            response.exit.CopyFrom(response.process.exit)
        return response


async def _follow_requests(
    requests: AsyncIterator[execution_pb2.ExecRequest], handle: Handle, process_id: str, stdin: StdinWriter
) -> None:
    """Carry out what the client asks on an Exec call, one after the other.

    Input that the process does not read holds up what comes after it, once the guest's window is full; SignalProcess
    does not wait.
    """
    async for request in requests:
        match request.WhichOneof("request"):
            case "stdin":
                await stdin.write(request.stdin)
            case "close_stdin":
                await stdin.close(request.close_stdin)
            case "resize":
                check_size(request.resize)
                params = {"process_id": process_id, "cols": request.resize.cols, "rows": request.resize.rows}
                await handle.guest.call("process.resize", params)
            case "signal":
                name = signal_name(request.signal.name, "signal.name")
                await _signal(handle, process_id, name, request.signal.scope)
            case "start" | "attach" as name:
                raise invalid(FieldViolation(name, "may only be the first message of the stream"))
            case _:
                raise invalid(FieldViolation("request", "must be set to a kind of message that this server knows"))


async def _signal(handle: Handle, process_id: str, name: str, scope: execution_pb2.SignalScope.ValueType) -> int:
    params: dict[str, object] = {"process_id": process_id, "signal": name, "scope": _SCOPES.get(scope, "tree")}
    result = await handle.guest.call("process.signal", params)
    return answers.integer(result, "signaled", high=0x7FFFFFFF)


def _fail(attachment: Attachment, error: BaseException) -> None:
    """A request on an Exec call went wrong. Where the reason is that the process ends, its exit is what the caller
    gets.
    """
    reason = error.reason if isinstance(error, WorkspacedError) else ""
    if reason in ("STDIN_CLOSED", "PROCESS_EXITED"):
        attachment.fail_unless_exited(error, _STDIN_CLOSED_WAIT_SECONDS)
    elif not isinstance(error, ChannelLost):
        attachment.fail(error)  # a lost channel ends the output too, after what came before


def _exec_response(event: Event) -> execution_pb2.ExecResponse:
    return execution_pb2.ExecResponse(event=event)


def _attach_response(event: Event) -> execution_pb2.AttachProcessResponse:
    return execution_pb2.AttachProcessResponse(event=event)
