"""Bash: a command line as a process of the workspace."""

from __future__ import annotations

import asyncio
import codecs
from typing import Any, Final
from weakref import WeakKeyDictionary

from google.protobuf.duration_pb2 import Duration

from workspaced.v1 import content_pb2, process_pb2, tool_pb2
from workspaced_guest import wire
from workspaced_server.errors import WorkspacedError
from workspaced_server.guest import answers
from workspaced_server.guest.channel import GuestChannel
from workspaced_server.processes import exit_of, new_process_id, process, start_params
from workspaced_server.tools.collected import Collected
from workspaced_server.tools.guest import explain
from workspaced_server.tools.outcome import Call, Outcome, failed, text_block
from workspaced_server.workspaces.handle import Handle

DEFAULT_SECONDS: Final = 120.0
OUTPUT_CHARACTERS: Final = 30_000
# What is kept of an output that is stored when it overflows.
WHOLE_CHARACTERS: Final = 8 << 20
TOOL_LABEL: Final = "workspaced.tool"
CALL_LABEL: Final = "workspaced.call_id"

_KILL_GRACE_SECONDS: Final = 2
_SHELLS: Final = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")

_shells: WeakKeyDictionary[GuestChannel, str] = WeakKeyDictionary()


async def bash(call: Call) -> Outcome:
    """Run it to its end, or start it in the background."""
    process_id = new_process_id()
    background = bool(call.input.get("run_in_background"))
    limits = [value for value in (call.input.get("timeout"), call.timeout) if value is not None]
    timeout = min(limits) if limits else DEFAULT_SECONDS
    spec = process_pb2.ProcessSpec(kill_grace=Duration(seconds=_KILL_GRACE_SECONDS))
    if not background:
        spec.disconnect_policy = process_pb2.DISCONNECT_POLICY_KILL
        spec.timeout.FromNanoseconds(int(timeout * 1e9))
    elif "timeout" in call.input:
        spec.timeout.FromNanoseconds(int(call.input["timeout"] * 1e9))
    shell = await _shell(call.handle)
    if shell:
        # A command line that begins with a dash is no option.
        spec.argv.args.extend((shell, "-c", "--", call.input["command"]))
    else:
        spec.shell_command = call.input["command"]
    params = await start_params(call.handle, process_id, spec, block=not background, attach=not background)
    _merge(params, call)
    try:
        if background:
            return await _start(call, params)
        return await _run(call, process_id, params, timeout)
    except WorkspacedError as error:
        return failed(explain(error, "The command"))


def _merge(params: dict[str, Any], call: Call) -> None:
    params["spec"]["merge"] = True
    params["labels"] = {**params["labels"], TOOL_LABEL: "Bash", CALL_LABEL: call.call_id}


async def _shell(handle: Handle) -> str:
    """The path of bash in the workspace, or nothing; asked once a channel."""
    guest = handle.guest
    found = _shells.get(guest)
    if found is None:
        found = ""
        for path in _SHELLS:
            try:
                await guest.call("file.stat", {"path": path})
            except WorkspacedError as error:
                if error.reason not in ("FILE_NOT_FOUND", "NOT_A_DIRECTORY", "FILE_PERMISSION_DENIED", "LINK_LOOP"):
                    raise
            else:
                found = path
                break
        _shells[guest] = found
    return found


async def _tell_started(call: Call, started: process_pb2.Process) -> None:
    event = tool_pb2.ToolProcess(process_id=started.process_id, call_id=call.call_id, start_time=started.start_time)
    await call.emit(tool_pb2.CallToolResponse(process=event))


async def _start(call: Call, params: dict[str, Any]) -> Outcome:
    answer = await call.handle.guest.call("process.start", params)
    started = process(answers.record(answer, "started"))
    await _tell_started(call, started)
    name = started.process_id
    text = (
        f"The command runs in the background as process {name}.\n"
        f"Read its output, and whether it has ended, by Read with the file_path process:///{name}\n"
        f"Stop it by Bash with: kill -- -{started.pid}"
    )
    structured = {"exit_code": None, "signal": None, "timed_out": False, "truncated": False, "process_id": name}
    return Outcome([text_block(text)], structured=structured, background_process_id=name)


async def _run(call: Call, process_id: str, params: dict[str, Any], timeout: float) -> Outcome:
    kept = Collected(WHOLE_CHARACTERS if call.whole else OUTPUT_CHARACTERS)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def tell(data: bytes, *, last: bool = False) -> None:
        text = decoder.decode(data, last)
        if text:
            kept.add(text)
            await call.emit(tool_pb2.CallToolResponse(text=tool_pb2.ToolText(delta=text)))

    try:
        async with call.handle.guest.open("process.start", params) as output:
            await _tell_started(call, process(answers.record(answers.message(await output.receive()), "started")))
            while (item := await output.receive()) is not None:
                if isinstance(item, bytes):
                    if not wire.RECORD.size <= len(item) <= wire.RECORD.size + wire.MAX_DATA:
                        raise answers.malformed()
                    await tell(item[wire.RECORD.size :])
                elif "gap" in item:
                    await tell(b"\n[some output was lost]\n")
            await tell(b"", last=True)
            exited = exit_of(answers.record(output.result, "exit"))
    except asyncio.CancelledError:
        await call.stops.stop(call.handle, process_id, _KILL_GRACE_SECONDS)
        raise
    timed_out = exited.reason == process_pb2.EXIT_REASON_TIMED_OUT
    structured: dict[str, Any] = {
        "exit_code": exited.exit_code if exited.HasField("exit_code") else None,
        "signal": exited.signal or None,
        "timed_out": timed_out,
        "truncated": kept.left_out > 0,
        "process_id": process_id,
    }
    text = kept.text()
    if text and not text.endswith("\n"):
        text += "\n"
    outcome = Outcome([text_block(text + ending(exited, timeout))], structured=structured)
    outcome.is_error = structured["exit_code"] != 0 or timed_out
    if timed_out:
        outcome.state = content_pb2.TOOL_RESULT_STATE_INTERRUPTED
    return outcome


def ending(exited: process_pb2.ProcessExit, timeout: float | None = None) -> str:
    """How a process ended, as the last line of its output."""
    match exited.reason:
        case process_pb2.EXIT_REASON_TIMED_OUT:
            after = "" if timeout is None else f" after {timeout:g} s"
            text = f"[stopped{after}: the time was up]"
        case process_pb2.EXIT_REASON_OOM_KILLED:
            text = "[killed: out of memory]"
        case process_pb2.EXIT_REASON_CANCELLED:
            text = "[stopped: cancelled]"
        case process_pb2.EXIT_REASON_WORKSPACE_STOPPED:
            text = "[stopped with the workspace]"
        case process_pb2.EXIT_REASON_LOST:
            text = "[lost: nobody saw how it ended]"
        case _:
            text = f"[killed by {exited.signal}]" if exited.signal else f"[exit code {exited.exit_code}]"
    if exited.drained:
        text = f"[what it left running in the background is not waited for]\n{text}"
    return text
