"""Replacing the guest's program by exec: same pid, so children, pipes, journals and the listening socket stay."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import stat
import sys

from . import log
from . import params as read
from .digest import sha256
from .fault import Fault, invalid
from .guest import Configuration, Guest
from .output import Output
from .process import Process
from .processes import exit_order
from .server import Listener, run
from .spawn import Child, SpawnError, spawn
from .spec import Spec
from .stdin import Stdin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .stream import Stream

    Params = dict[str, Any]

# Changes when the handover does, unless each program can do without what the other does not know of; one that reads
# another number is refused before anything happens.
HANDOVER = 2
_CHECK_SECONDS = 10.0
_MAX_BUNDLE_BYTES = 8 << 20
_MAX_ANSWER = 4096


def check() -> int:
    """`check`: proves that this program starts here, and says which handover it reads."""
    sys.stdout.write(json.dumps({"handover": HANDOVER}) + "\n")
    return 0


def upgrade(guest: Guest, stream: Stream, params: Params) -> None:
    """guest.upgrade: tries the new program first, then hands over to it. A failure leaves everything as it is."""
    path = read.text(params, "path", limit=4096)
    wanted = read.text(params, "bundle", limit=64)
    _Check(guest, stream, _take_over(guest.state_dir, path, wanted))


def _take_over(state_dir: str, path: str, wanted: str) -> str:
    """Moves the bundle to where nobody else writes; returns its path there.

    What is executed are the very bytes that were verified: the file itself may belong to another user of the workspace,
    who could change it between the two.
    """
    try:
        content = _read_bundle(path)
    except OSError as error:
        raise Fault("NOT_FOUND", "FILE_NOT_FOUND", f"{path}: {error.strerror}", path=path) from None
    found = sha256(content)
    if found != wanted:
        raise Fault(
            "FAILED_PRECONDITION", "BUNDLE_MISMATCH", "the bundle has another hash", expected=wanted, found=found
        )
    target = os.path.join(state_dir, f"guest-{found}.pyz")
    fresh = f"{target}.new"
    try:
        _write_anew(fresh, target, content)
        if os.path.realpath(path) != os.path.realpath(target):
            os.unlink(path)
    except OSError as error:
        raise _failed(str(error.strerror)) from None
    return target


def _write_anew(fresh: str, target: str, content: bytes) -> None:
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(fresh, target)
    except OSError:
        if os.path.lexists(fresh):
            os.unlink(fresh)
        raise


def _read_bundle(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise invalid("the bundle is no regular file", field="path")
        content = file.read(_MAX_BUNDLE_BYTES + 1)
    if len(content) > _MAX_BUNDLE_BYTES:
        raise invalid("the bundle is too large", field="path")
    return content


def _failed(why: str) -> Fault:
    return Fault("FAILED_PRECONDITION", "UPGRADE_FAILED", f"the new guest was not started: {why}")


class _Check:
    """Runs `check` of the new program, without blocking the loop."""

    def __init__(self, guest: Guest, stream: Stream, path: str) -> None:
        self._guest = guest
        self._stream = stream
        self._path = path
        reading, writing = os.pipe()
        child = Child([sys.executable, "-I", path, "check"], "/", guest.child_env)
        child.stdin = child.stderr = guest.null
        child.stdout = writing
        try:
            self._pid = spawn(child, guest.limits)
        except SpawnError as error:
            os.close(reading)
            raise _failed(str(error)) from None
        finally:
            os.close(writing)
        self._reading = reading
        self._timer = guest.loop.call_later(_CHECK_SECONDS, os.kill, self._pid, signal.SIGKILL)
        guest.processes.reaper.expect(self._pid, self._on_exit)

    def _on_exit(self, status: int, usage: object) -> None:
        self._timer.cancel()
        os.set_blocking(self._reading, False)
        try:
            answer = os.read(self._reading, _MAX_ANSWER)
        except BlockingIOError:
            answer = b""
        finally:
            os.close(self._reading)
        try:
            handover = json.loads(answer)["handover"]
        except (ValueError, TypeError, KeyError):
            handover = None
        if status != 0 or handover != HANDOVER:
            if os.path.basename(self._path) != f"guest-{self._guest.bundle}.pyz":
                os.unlink(self._path)
            self._stream.fail(_failed("it does not start here, or reads another handover"))
        else:
            self._stream.result({"restarting": True})
            self._guest.end("UPGRADE", lambda: replace(self._guest, self._path))


def replace(guest: Guest, path: str) -> None:
    """Becomes the new program; returns only when that failed, with everything as before."""
    assert guest.listener is not None
    keep: list[int] = []
    try:
        _execute(guest, path, keep)
    except Exception as error:  # noqa: BLE001  (whatever it is: a guest that accepts nobody would be lost)
        guest.limits.restore()
        for fd in keep:
            os.set_inheritable(fd, False)
        log.write(f"upgrade: {error!r}")
        guest.stopping = False
        guest.listener.unpause()


def _execute(guest: Guest, path: str, keep: list[int]) -> None:
    assert guest.listener is not None
    keep += [guest.listener.socket.fileno(), guest.lock]
    web = guest.listener.web
    if web is not None:
        keep.append(web.fileno())
    handover = {
        "configuration": vars(guest.configuration),
        "instance": guest.instance,
        "start_time": guest.start_time,
        "bounded_log": log.bounded(),
        "limits": guest.limits.inherited(),
        "listener": keep[0],
        "web_listener": None if web is None else web.fileno(),
        "lock": keep[1],
        "processes": [_snapshot(process, keep) for process in sorted(guest.processes.by_id.values(), key=exit_order)],
    }
    target = _handover_path(guest.state_dir)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(target, flags, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        json.dump(handover, file)
    for fd in keep:
        os.set_inheritable(fd, True)
    guest.limits.lower()
    os.execv(sys.executable, [sys.executable, "-I", path, "resume", "--state", guest.state_dir])


def resume(state_dir: str, bundle: str) -> int:
    """`resume`: what `replace` executes."""
    target = _handover_path(state_dir)
    with open(target, encoding="ascii") as file:
        handover = json.load(file)
    os.unlink(target)
    if handover["bounded_log"]:
        log.own_file()
    soft, hard = handover["limits"]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    guest = Guest(Configuration(**handover["configuration"]), bundle)
    guest.instance = handover["instance"]
    guest.start_time = handover["start_time"]
    os.set_inheritable(handover["lock"], False)
    os.set_inheritable(handover["listener"], False)
    for snapshot in handover["processes"]:
        _adopt(guest, snapshot)
    web = handover["web_listener"]
    if web is not None:
        os.set_inheritable(web, False)
    listener = Listener(
        guest,
        socket.socket(fileno=handover["listener"]),
        None if web is None else socket.socket(fileno=web),
    )
    # Children that ended between the two programs raised no signal in this one.
    guest.processes.reaper.reap()
    run(guest, listener, handover["lock"], lambda: None)
    return 0


def _handover_path(state_dir: str) -> str:
    return os.path.join(state_dir, "handover.json")


def _snapshot(process: Process, keep: list[int]) -> Params:
    outputs = [
        {"fd": output.fd, "tag": output.tag, "discard": output.discard}
        for output in process.outputs
        if not output.ended
    ]
    stdin = process.stdin.snapshot()
    keep.extend(output["fd"] for output in outputs)
    if stdin["fd"] >= 0:
        keep.append(stdin["fd"])
    disconnect = process.disconnect_timer
    return {
        "process": process.describe(),
        "spec": process.spec.raw,
        "start_ticks": process.start_ticks,
        "leader_exited": process.leader_exited,
        "session_left": process.session_left,
        "status": process.status,
        "usage": process.usage,
        "stop_reason": process.stop_reason,
        "killed_by_call": process.killed_by_call,
        "disconnect_due": None if disconnect is None else disconnect.when,
        "oom_before": process.oom_before,
        "output_incomplete": process.output_incomplete,
        "drained": process.drained,
        "recovered": process.recovered,
        "eofs": process.eofs,
        "outputs": outputs,
        "stdin": stdin,
        "journal": process.journal.snapshot(),
    }


def _adopt(guest: Guest, snapshot: Params) -> None:
    kept = snapshot["process"]
    owner = guest.processes
    process = Process(
        owner, kept["process_id"], Spec(snapshot["spec"]), kept["fingerprint"], kept["labels"], kept["kind"]
    )
    for name in ("pid", "cwd", "user", "start_time", "exit_time", "exit"):
        setattr(process, name, kept[name])
    for name in (
        "start_ticks",
        "leader_exited",
        "session_left",
        "status",
        "usage",
        "stop_reason",
        "killed_by_call",
        "oom_before",
        "output_incomplete",
        "drained",
        "recovered",
    ):
        setattr(process, name, snapshot[name])
    if kept["pty"] is not None:
        process.pty = (kept["pty"]["cols"], kept["pty"]["rows"])
    process.journal.restore(snapshot["journal"])
    process.eofs = [(tag, offset) for tag, offset in snapshot["eofs"]]
    for output in snapshot["outputs"]:
        os.set_inheritable(output["fd"], False)
        reading = Output(process, output["fd"], output["tag"])
        reading.discard = output["discard"]
        process.outputs.append(reading)
    fd = snapshot["stdin"]["fd"]
    if fd >= 0:
        os.set_inheritable(fd, False)
    process.stdin = Stdin(process, fd, process.pty is not None)
    process.stdin.restore(snapshot["stdin"])
    owner.add(process)
    # An older guest does not tell.
    process.adopt(snapshot.get("disconnect_due"))
    if process.exit is not None:
        owner.retained(process)
    elif process.kind == "pipe" or process.stop_reason is not None:
        # The stream of a pipe went with its channel.
        owner.stopper.stop(process, process.stop_reason or "CANCELLED", process.spec.kill_grace)
