"""Processes between the API and the guest: what to run on the way in, what there is on the way out."""

from __future__ import annotations

import hashlib
import secrets
from base64 import b32encode, b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError

from workspaced.v1 import process_pb2
from workspaced_guest import wire
from workspaced_server.guest import answers
from workspaced_server.workspaces.handle import Handle

REDACTED: Final = "[redacted]"

# The label under which the guest keeps, for us, what of a spec it has no field for.
_SPEC_LABEL: Final = "workspaced.spec"
# Larger rests of specs are not kept; what is read back then is what the guest itself knows.
_SPEC_LABEL_LIMIT: Final = 16_384

STREAMS: Final[Mapping[int, process_pb2.Stream.ValueType]] = {
    wire.STDOUT: process_pb2.STREAM_STDOUT,
    wire.STDERR: process_pb2.STREAM_STDERR,
    wire.PTY: process_pb2.STREAM_PTY,
}
STREAM_NAMES: Final[Mapping[str, process_pb2.Stream.ValueType]] = {
    wire.TAG_NAMES[tag]: stream for tag, stream in STREAMS.items()
}

_STATES: Final = {"running": process_pb2.PROCESS_STATE_RUNNING, "exited": process_pb2.PROCESS_STATE_EXITED}
STATE_NAMES: Final = {state: name for name, state in _STATES.items()}

_REASONS: Final = {
    name: getattr(process_pb2, f"EXIT_REASON_{name}")
    for name in ("EXITED", "SIGNALED", "TIMED_OUT", "OOM_KILLED", "CANCELLED", "WORKSPACE_STOPPED", "LOST")
}


def new_process_id() -> str:
    """A process id that nobody has."""
    return "p-" + b32encode(secrets.token_bytes(10)).decode("ascii").lower()


def fingerprint(spec: process_pb2.ProcessSpec, stdin: bytes = b"") -> str:
    """What two starts under one id must have in common: SHA-256 of the spec, and of the input given with it."""
    digest = hashlib.sha256(spec.SerializeToString(deterministic=True))
    if stdin:
        digest = hashlib.sha256(digest.digest() + stdin)
    return digest.hexdigest()


async def start_params(
    handle: Handle,
    process_id: str,
    spec: process_pb2.ProcessSpec,
    *,
    block: bool,
    kill: bool = False,
    stdin: bytes | None = None,
    attach: bool = True,
) -> dict[str, object]:
    """Parameters of ``process.start``, with the room that the owner's quota leaves.

    `block` and `kill` are the call's defaults of the two policies; `stdin` is the input of RunProcess, whose spec's own
    mode does not count.
    """
    policy = spec.disconnect_policy
    kill = policy == process_pb2.DISCONNECT_POLICY_KILL or (kill and policy != process_pb2.DISCONNECT_POLICY_KEEP)
    overflow = spec.overflow_policy
    block = overflow == process_pb2.OVERFLOW_POLICY_BLOCK or (
        block and overflow != process_pb2.OVERFLOW_POLICY_DROP_OLDEST
    )
    guest_spec: dict[str, object] = {
        "env": {**handle.env, **spec.env},
        "stdin": spec.stdin == process_pb2.STDIN_MODE_OPEN if stdin is None else bool(stdin),
        "disconnect_policy": "kill" if kill else "keep",
        "overflow": "block" if block else "drop",
    }
    if spec.WhichOneof("command") == "argv":
        guest_spec["argv"] = list(spec.argv.args)
    else:
        guest_spec["shell"] = spec.shell_command
    if spec.cwd:
        guest_spec["cwd"] = spec.cwd
    user = spec.user or _workspace_user(handle)
    if user:
        guest_spec["user"] = user
    if spec.HasField("pty"):
        guest_spec["pty"] = {"cols": spec.pty.cols, "rows": spec.pty.rows}
    if spec.HasField("timeout"):
        guest_spec["timeout"] = spec.timeout.ToNanoseconds() / 1e9
    if spec.HasField("kill_grace"):
        guest_spec["kill_grace"] = spec.kill_grace.ToNanoseconds() / 1e9
    if spec.journal_limit_bytes:
        guest_spec["journal_limit"] = spec.journal_limit_bytes
    if spec.nice:
        guest_spec["nice"] = spec.nice
    params: dict[str, object] = {
        "process_id": process_id,
        "spec": guest_spec,
        "fingerprint": fingerprint(spec, stdin or b""),
        "labels": _spec_label(spec),
    }
    if attach:
        params["attach"] = {"offset": 0}
    room = await handle.process_room()
    if room is not None:
        params["max_running"] = room
    return params


def _workspace_user(handle: Handle) -> str:
    """The workspace's user, where the guest does not run as it already and may switch."""
    hello = handle.guest.hello
    if hello.uid != 0 or handle.user in ("", hello.user, "0", "0:0"):
        return ""
    return handle.user


def _spec_label(spec: process_pb2.ProcessSpec) -> dict[str, str]:
    rest = process_pb2.ProcessSpec()
    rest.CopyFrom(spec)
    rest.ClearField("command")
    for name in list(rest.env):
        rest.env[name] = ""
    encoded = b64encode(rest.SerializeToString(deterministic=True)).decode("ascii")
    return {_SPEC_LABEL: encoded} if 0 < len(encoded) <= _SPEC_LABEL_LIMIT else {}


def process(answer: answers.Answer) -> process_pb2.Process:
    """The API's Process of the guest's. Raises WorkspacedError GUEST_ERROR when it is malformed."""
    result = process_pb2.Process(
        process_id=answers.text(answer, "process_id"),
        pid=answers.integer(answer, "pid", high=0x7FFFFFFF),
        state=_STATES.get(answers.text(answer, "state"), process_pb2.PROCESS_STATE_UNSPECIFIED),
        spec=_spec(answer),
        start_time=answers.time(answer, "start_time"),
        first_offset=answers.integer(answer, "first_offset"),
        next_offset=answers.integer(answer, "next_offset"),
        stdin_offset=answers.integer(answer, "stdin_offset"),
        stdin_open=answers.flag(answer, "stdin_open"),
    )
    if answer.get("exit") is not None:
        result.exit.CopyFrom(exit_of(answers.record(answer, "exit")))
    return result


def exit_of(answer: answers.Answer) -> process_pb2.ProcessExit:
    """The API's ProcessExit of the guest's. Raises WorkspacedError GUEST_ERROR when it is malformed."""
    reason = _REASONS.get(answers.text(answer, "reason"))
    if reason is None:
        raise answers.malformed()
    result = process_pb2.ProcessExit(
        reason=reason,
        output_incomplete=answers.flag(answer, "output_incomplete"),
        drained=answers.flag(answer, "drained"),
        exit_time=answers.time(answer, "time"),
    )
    if answer.get("signal") is not None:
        result.signal = answers.text(answer, "signal")
    elif answer.get("code") is not None:
        result.exit_code = answers.integer(answer, "code", high=255)
    elif reason != process_pb2.EXIT_REASON_LOST:
        raise answers.malformed()
    if answer.get("usage") is not None:
        usage = answers.record(answer, "usage")
        result.usage.CopyFrom(
            process_pb2.ResourceUsage(
                user_time=_duration(answers.real(usage, "user_seconds")),
                system_time=_duration(answers.real(usage, "system_seconds")),
                max_rss_bytes=answers.integer(usage, "max_rss_bytes"),
            )
        )
    return result


def _duration(value: float | None) -> Duration | None:
    if value is None:
        return None
    microseconds = max(0, round(value * 1e6))
    return Duration(seconds=microseconds // 1_000_000, nanos=microseconds % 1_000_000 * 1000)


def _spec(answer: answers.Answer) -> process_pb2.ProcessSpec:
    spec = _kept_spec(answer.get("labels"))
    argv = answer.get("argv")
    if isinstance(argv, list):
        if not all(isinstance(item, str) for item in argv):
            raise answers.malformed()
        spec.argv.args.extend(answers.printable(item) for item in argv)
    elif answer.get("shell") is not None:
        spec.shell_command = answers.text(answer, "shell")
    if not spec.cwd:
        spec.cwd = answers.text(answer, "cwd")
    if not spec.user:
        spec.user = answers.text(answer, "user")
    if answer.get("pty") is not None:
        size = answers.record(answer, "pty")
        spec.pty.cols = answers.integer(size, "cols", high=65_535)
        spec.pty.rows = answers.integer(size, "rows", high=65_535)
    for name in list(spec.env):  # a map must not be changed under its iterator
        spec.env[name] = REDACTED
    return spec


def _kept_spec(labels: Any) -> process_pb2.ProcessSpec:
    encoded = labels.get(_SPEC_LABEL) if isinstance(labels, dict) else None
    if not isinstance(encoded, str) or len(encoded) > _SPEC_LABEL_LIMIT:
        return process_pb2.ProcessSpec()
    try:
        spec = process_pb2.ProcessSpec.FromString(b64decode(encoded, validate=True))
    except (ValueError, DecodeError):
        raise answers.malformed() from None
    spec.ClearField("command")
    return spec
