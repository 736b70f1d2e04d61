"""A guest of its own for a test, and the smallest client that speaks its protocol over a Unix socket.

with RunningGuest(tmp_path) as guest, guest.connect() as client:
    stream = client.open("process.start", {"spec": {"shell": "echo hi"}, "attach": {"offset": 0}})
    outcome = stream.collect()
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any, Self

from workspaced_guest import wire

TOKEN = "t" * 32
SERVICE = Path(wire.__file__).parent.parent
_RUN = (
    "import sys; sys.path.insert(0, {service!r}); "
    "from workspaced_guest.__main__ import main; sys.exit(main(sys.argv[1:]))"
)
_SECONDS = 20.0


class RunningGuest:
    """A guest in a child process; `directory` holds its socket, state and workdir."""

    def __init__(self, directory: Path, python: Path | None = None, options: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.state = directory / "state"
        self.workdir = directory / "work"
        self.socket_path = directory / "guest.sock"
        self.python = python or Path(sys.executable)
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(_SECONDS)

    @property
    def program(self) -> list[str]:
        """The command line up to the guest's own arguments."""
        return [str(self.python), "-I", "-c", _RUN.format(service=str(SERVICE))]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Start it and return when it accepts."""
        self.state.mkdir(mode=0o700, exist_ok=True)
        (self.state / "token").write_text(TOKEN)
        with (self.directory / "guest.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.program, "serve", "--foreground", *self.arguments()], stdout=subprocess.PIPE, stderr=log
            )
        assert self.process.stdout is not None
        with self.process.stdout as ready:
            line = ready.readline()
        if line != b"ready\n":
            raise RuntimeError((self.directory / "guest.log").read_text())

    def arguments(self) -> list[str]:
        return [
            *("--socket", str(self.socket_path), "--state", str(self.state), "--workdir", str(self.workdir)),
            *self.options,
        ]

    def kill(self) -> None:
        """End it as the kernel would: no clean-up."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(_SECONDS)

    def connect(self, token: str = TOKEN) -> GuestClient:
        client = self.dial()
        client.greet(token)
        return client

    def dial(self) -> GuestClient:
        """A connection without a handshake."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_SECONDS)
        connection.connect(str(self.socket_path))
        return GuestClient(connection)


class GuestError(Exception):
    """The guest answered ERROR."""

    def __init__(self, payload: dict[str, Any]) -> None:
        super().__init__(payload["message"])
        self.code: str = payload["code"]
        self.reason: str = payload["reason"]
        self.metadata: dict[str, str] = payload["metadata"]


class GuestClient:
    """One channel. Reads block, for at most 20 s."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.hello: dict[str, Any] = {}
        self._parser = wire.Parser("guest")
        self._streams: dict[int, GuestStream] = {}
        self._last = 0
        self.channel_frames: deque[wire.Frame] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    def greet(self, token: str = TOKEN) -> None:
        self.send(wire.HELLO, 0, {"version": wire.VERSION, "token": token, "client": "tests"})
        kind, payload = self.channel_frame()
        if kind != wire.HELLO:
            raise GuestError({"code": "UNAUTHENTICATED", "reason": "GOAWAY", "message": str(payload), "metadata": {}})
        self.hello = wire.decode_json(payload)

    def send(self, kind: int, stream: int, payload: wire.Buffer | dict[str, Any] = b"") -> None:
        content = wire.encode_json(payload) if isinstance(payload, dict) else payload
        self.connection.sendall(wire.encode(kind, stream, content))

    def open(self, operation: str, params: dict[str, Any] | None = None, window: int = 1 << 30) -> GuestStream:
        self._last += 1
        stream = GuestStream(self, self._last)
        self._streams[self._last] = stream
        self.send(wire.OPEN, self._last, {"op": operation, "params": params or {}, "window": window})
        return stream

    def call(self, operation: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The RESULT of an operation without data. Raises GuestError."""
        return self.open(operation, params).result()

    def channel_frame(self) -> tuple[int, bytes]:
        """The next frame of the channel itself."""
        while not self.channel_frames:
            self.receive()
        kind, _, payload = self.channel_frames.popleft()
        return kind, payload

    def receive(self) -> None:
        """Read once and hand the frames to their streams. Raises EOFError at the end."""
        data = self.connection.recv(1 << 18)
        if not data:
            raise EOFError("the guest closed the channel")
        for frame in self._parser.feed(data):
            if frame[1] == 0:
                self.channel_frames.append(frame)
            else:
                self._streams[frame[1]].frames.append(frame)


class GuestStream:
    """One operation."""

    def __init__(self, client: GuestClient, stream_id: int) -> None:
        self.client = client
        self.id = stream_id
        self.frames: deque[wire.Frame] = deque()

    def frame(self) -> tuple[int, bytes]:
        """The next frame: type and payload. Raises GuestError for ERROR."""
        while not self.frames:
            self.client.receive()
        kind, _, payload = self.frames.popleft()
        if kind == wire.ERROR:
            raise GuestError(wire.decode_json(payload))
        return kind, payload

    def message(self) -> dict[str, Any]:
        """The next frame, which must be a MESSAGE."""
        kind, payload = self.frame()
        assert kind == wire.MESSAGE, (wire.NAMES[kind], payload)
        return wire.decode_json(payload)

    def until(self, key: str) -> dict[str, Any]:
        """The next MESSAGE with this key; what comes before is skipped, CREDIT too."""
        while True:
            kind, payload = self.frame()
            if kind == wire.MESSAGE:
                message = wire.decode_json(payload)
                if key in message:
                    return message
            assert kind in (wire.MESSAGE, wire.DATA, wire.CREDIT), (wire.NAMES[kind], payload)

    def result(self) -> dict[str, Any]:
        """The RESULT, after whatever comes before it."""
        while True:
            kind, payload = self.frame()
            if kind == wire.RESULT:
                return wire.decode_json(payload)

    def send(self, payload: bytes) -> None:
        self.client.send(wire.DATA, self.id, payload)

    def end(self) -> None:
        self.client.send(wire.END, self.id)

    def cancel(self) -> None:
        self.client.send(wire.CANCEL, self.id)

    def grant(self, count: int) -> None:
        self.client.send(wire.CREDIT, self.id, wire.encode_credit(count))

    def records(self, until: bytes | None = None) -> Attached:
        """Read an attachment to its RESULT, or until its output contains `until`."""
        return Attached(self, until)


class Attached:
    """What one attachment delivered. Asserts what holds for each: ordered, unique, reliable, terminal once."""

    def __init__(self, stream: GuestStream, until: bytes | None = None) -> None:
        self.started: dict[str, Any] = {}
        self.output = {"stdout": bytearray(), "stderr": bytearray(), "pty": bytearray()}
        self.eofs: list[str] = []
        self.gaps: list[tuple[int, int]] = []
        self.result: dict[str, Any] | None = None
        self.first_offset = -1
        self.offset = -1
        while self.result is None and not (until is not None and until in self.all()):
            kind, payload = stream.frame()
            if kind == wire.DATA:
                self._record(payload)
            elif kind == wire.MESSAGE:
                self._message(wire.decode_json(payload))
            elif kind == wire.RESULT:
                self.result = wire.decode_json(payload)

    def all(self) -> bytes:
        return b"".join(map(bytes, self.output.values()))

    @property
    def stdout(self) -> bytes:
        return bytes(self.output["stdout"])

    @property
    def exit(self) -> dict[str, Any]:
        assert self.result is not None
        found = self.result["exit"]
        assert isinstance(found, dict)
        return found

    def _record(self, payload: bytes) -> None:
        tag, offset = wire.RECORD.unpack_from(payload)
        data = payload[wire.RECORD.size :]
        assert data, "an empty record"
        if self.offset < 0:
            self.first_offset = offset
        else:
            assert offset == self.offset, (offset, self.offset)
        assert wire.TAG_NAMES[tag] not in self.eofs, "output after its eof"
        self.offset = offset + len(data)
        self.output[wire.TAG_NAMES[tag]] += data

    def _message(self, message: dict[str, Any]) -> None:
        if "started" in message:
            assert not self.started
            self.started = message
        elif "eof" in message:
            assert message["eof"] not in self.eofs
            self.eofs.append(message["eof"])
        else:
            gap = message["gap"]
            assert self.offset in (-1, gap["from"])
            self.gaps.append((gap["from"], gap["to"]))
            self.offset = gap["to"]


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_gone(pid: int) -> None:
    """Block until a process has gone, for at most 20 s."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        assert poll.poll(_SECONDS * 1000), f"process {pid} still runs"
    finally:
        os.close(descriptor)


def vectors() -> list[dict[str, Any]]:
    """The test vectors of the protocol."""
    path = Path(__file__).parents[1] / "unit" / "guest" / "vectors.json"
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found
