"""tool.search: names or lines that match, found by a program of its own.

A regular expression can keep an interpreter busy for ever, and nothing else of it runs meanwhile: hence a child, which
is killed when its time is up or nobody waits for it. What it had found by then is the answer.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import deque

from . import params as read
from .fault import Fault
from .paths import check_path
from .spawn import Child, SpawnError, spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .guest import Guest
    from .stream import Stream

    Params = dict[str, Any]

_RUNNING = 4
_ANSWER_BYTES = 512 * 1024
_CHUNK_BYTES = 64 * 1024
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); from workspaced_guest.tools_scan import main; main(sys.argv[2])"
)

_running: set[_Search] = set()
_waiting: deque[_Search] = deque()


def search(guest: Guest, stream: Stream, params: Params) -> None:
    """DATA is the text found, RESULT what is to know of it; `stopped` says why it is not all there is.

    CANCEL ends the child.
    """
    check_path(params.get("path"))
    request = {
        "workdir": guest.workdir,
        "path": params["path"],
        "globs": _texts(params, "globs"),
        "pattern": read.optional_text(params, "pattern", limit=8192),
        "mode": read.text(params, "mode", "files"),
        "ignore_case": read.boolean(params, "ignore_case"),
        "multiline": read.boolean(params, "multiline"),
        "before": read.integer(params, "before", 0, high=100),
        "after": read.integer(params, "after", 0, high=100),
        "include_ignored": read.boolean(params, "include_ignored"),
        "limit": read.integer(params, "limit", 250, low=1, high=10_000),
        "seconds": read.number(params, "seconds", 20.0, low=0.1, high=600.0),
    }
    started = _Search(guest, stream, request)
    stream.on_close = started.cancel
    _waiting.append(started)
    _start_waiting()


def _texts(params: Params, name: str) -> list[str]:
    values = params.get(name) or []
    if not isinstance(values, list) or len(values) > 64:
        raise Fault("INVALID_ARGUMENT", "ARGUMENT_INVALID", f"{name} must be a list of at most 64", field=name)
    return [read.text({name: value}, name, limit=1024) for value in values]


def _start_waiting() -> None:
    while _waiting and len(_running) < _RUNNING:
        following = _waiting.popleft()
        if not following.stream.closed:
            following.start()


class _Search:
    """One child, from its start until its answer has been passed on."""

    def __init__(self, guest: Guest, stream: Stream, request: Params) -> None:
        self.guest = guest
        self.stream = stream
        self.request = request
        self.pid = 0
        self.output = bytearray()
        self.fd = -1
        self.killed = False

    def start(self) -> None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        # The archive or directory that this program itself comes from.
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        text = json.dumps(self.request)
        child = Child([sys.executable, "-I", "-S", "-c", _PROGRAM, package, text], "/", self.guest.child_env)
        child.stdin = child.stderr = self.guest.null
        child.stdout = writing
        try:
            self.pid = spawn(child, self.guest.limits)
        except (SpawnError, OSError) as error:
            os.close(reading)
            self.stream.fail(Fault("RESOURCE_EXHAUSTED", "LIMIT_REACHED", f"no program could be started: {error}"))
            return
        finally:
            os.close(writing)
        _running.add(self)
        self.fd = reading
        loop = self.guest.loop
        self.timer = loop.call_later(self.request["seconds"] + 1.0, self.kill)
        loop.add(reading, 1, self._on_ready)
        self.guest.processes.reaper.expect(self.pid, self._on_exit)

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        if self in _running:
            self.kill()

    def kill(self) -> None:
        self.killed = True
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)

    def _on_ready(self, events: int) -> None:
        try:
            data = os.read(self.fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.guest.loop.remove(self.fd)
        self.output += data
        if len(self.output) > _ANSWER_BYTES:
            self.kill()

    def _on_exit(self, status: int, usage: object) -> None:
        self.pid = 0
        self.timer.cancel()
        self.guest.loop.remove(self.fd)
        try:
            while data := os.read(self.fd, _CHUNK_BYTES):
                self.output += data
        except BlockingIOError:
            self.killed = True
        os.close(self.fd)
        _running.discard(self)
        self._answer(status)
        _start_waiting()

    def _answer(self, status: int) -> None:
        body, mark, end = bytes(self.output[:_ANSWER_BYTES]).rpartition(b"\0")
        if mark and status == 0:
            result = json.loads(end)
        elif self.killed or status == signal.SIGXCPU:
            body = b"".join((body, mark, end))
            result = {"stopped": "time"}
        else:
            self.stream.fail(Fault("INTERNAL", "GUEST_ERROR", f"the search ended with status {status}"))
            return
        for start in range(0, len(body), _CHUNK_BYTES):
            self.stream.send(body[start : start + _CHUNK_BYTES])
        self.stream.result(result)
