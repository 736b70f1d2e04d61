"""The bridge between standard streams and the guest's socket, against a guest that the test plays."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.support.interpreters import Interpreter

SERVICE = Path(__file__).resolve().parents[3] / "service"
SECONDS = 20
MIB = 1 << 20


class Bridge:
    """A bridge whose stdin, stdout and socket are held here."""

    def __init__(self, directory: Path, python: Path, stdout: int | IO[bytes] | None = None):
        path = directory / "guest.sock"
        code = (
            f"import sys; sys.path.insert(0, {str(SERVICE)!r}); "
            f"from workspaced_guest import bridge; sys.exit(bridge.connect({str(path)!r}))"
        )
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen()
            self.process = subprocess.Popen(
                [str(python), "-I", "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if stdout is None else stdout,
                bufsize=0,
            )
            listening.settimeout(SECONDS)
            self.guest, _ = listening.accept()
        self.guest.settimeout(SECONDS)

    @property
    def stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def close(self) -> None:
        self.guest.close()
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.process.wait(SECONDS)


def _send_for_ever(connection: socket.socket) -> None:
    while True:
        connection.sendall(bytes(65536))


@pytest.fixture
def bridge(tmp_path: Path, interpreter: Interpreter) -> Iterator[Bridge]:
    running = Bridge(tmp_path, interpreter.path)
    yield running
    running.close()


def test_output_comes_whole_whatever_its_portions(bridge: Bridge) -> None:
    portions = random.Random(7)
    data = portions.randbytes(8 * MIB)

    def send() -> None:
        rest = memoryview(data)
        while rest:
            size = portions.choice((1, 9, 100, 4096, 70_000, 300_000))
            bridge.guest.sendall(rest[:size])
            rest = rest[size:]
        bridge.guest.close()

    sender = threading.Thread(target=send)
    sender.start()
    received = hashlib.sha256()
    while piece := os.read(bridge.stdout.fileno(), 4096):
        received.update(piece)
    sender.join(SECONDS)
    assert received.digest() == hashlib.sha256(data).digest()
    assert bridge.process.wait(SECONDS) == 0


def test_input_comes_whole_and_ends(bridge: Bridge) -> None:
    data = os.urandom(4 * MIB)

    def send() -> None:
        bridge.stdin.write(data)
        bridge.stdin.close()

    sender = threading.Thread(target=send)
    sender.start()
    received = bytearray()
    while piece := bridge.guest.recv(65536):
        received += piece
    sender.join(SECONDS)
    assert received == data
    # A half close: the guest may still answer.
    bridge.guest.sendall(b"last")
    bridge.guest.close()
    assert bridge.stdout.read(10) == b"last"
    assert bridge.process.wait(SECONDS) == 0


def test_output_that_nobody_reads_does_not_hold_up_input(bridge: Bridge) -> None:
    sent = 0
    stuck = threading.Event()

    def fill() -> None:
        nonlocal sent
        bridge.guest.settimeout(0.5)
        try:
            while True:
                sent += bridge.guest.send(bytes(65536))
        except TimeoutError:
            stuck.set()

    filler = threading.Thread(target=fill)
    filler.start()
    assert stuck.wait(SECONDS)
    filler.join()
    assert sent < 16 * MIB
    bridge.guest.settimeout(SECONDS)
    bridge.stdin.write(b"hello")
    assert bridge.guest.recv(100) == b"hello"
    received = 0
    while received < sent:
        received += len(bridge.stdout.read(65536))
    assert received == sent


def test_input_that_the_guest_does_not_read_does_not_hold_up_output(bridge: Bridge) -> None:
    def fill() -> None:
        try:
            bridge.stdin.write(bytes(16 * MIB))
        except OSError:
            return  # the bridge was ended, as is meant

    filler = threading.Thread(target=fill)
    filler.start()
    for _ in range(64):
        bridge.guest.sendall(b"x" * 65536)
        received = 0
        while received < 65536:
            received += len(bridge.stdout.read(65536))
    bridge.process.kill()
    filler.join(SECONDS)
    assert not filler.is_alive()


def test_a_silent_guest_leaves_the_pipe_to_its_reader(bridge: Bridge) -> None:
    bridge.guest.sendall(b"first")
    assert bridge.stdout.read(10) == b"first"
    descriptor = bridge.stdout.fileno()
    os.set_blocking(descriptor, False)
    answers: list[str] = []

    def look() -> None:
        try:
            os.read(descriptor, 1)
        except BlockingIOError:
            answers.append("nothing yet")

    reader = threading.Thread(target=look)
    reader.start()
    reader.join(SECONDS)
    assert answers == ["nothing yet"]


def test_ends_when_its_reader_has_gone(bridge: Bridge) -> None:
    bridge.stdout.close()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        _send_for_ever(bridge.guest)
    assert bridge.process.wait(SECONDS) == 0


def test_a_reader_that_goes_while_the_pipe_is_full(bridge: Bridge) -> None:
    bridge.guest.settimeout(0.5)
    with pytest.raises(TimeoutError):
        _send_for_ever(bridge.guest)
    bridge.stdout.close()
    assert bridge.process.wait(SECONDS) == 0


def test_ends_with_the_guest(bridge: Bridge) -> None:
    bridge.guest.sendall(b"x")
    assert bridge.stdout.read(1) == b"x"
    bridge.guest.close()
    assert bridge.process.wait(SECONDS) == 0


def test_the_guest_sees_that_the_bridge_was_killed(bridge: Bridge) -> None:
    bridge.stdin.write(b"x")
    assert bridge.guest.recv(1) == b"x"
    bridge.process.send_signal(signal.SIGKILL)
    assert bridge.guest.recv(1) == b""


def test_standard_output_is_offered_once_with_the_first_bytes(bridge: Bridge) -> None:
    bridge.stdin.write(b"first")
    data, (pipe,), _, _ = socket.recv_fds(bridge.guest, 100, 4)
    assert data == b"first"
    with os.fdopen(pipe, "wb", buffering=0) as offered:
        offered.write(b"direct")
    assert bridge.stdout.read(10) == b"direct"
    bridge.stdin.write(b"second")
    assert socket.recv_fds(bridge.guest, 100, 4)[:2] == (b"second", [])


def test_output_to_a_file(tmp_path: Path, interpreter: Interpreter) -> None:
    data = os.urandom(MIB)
    with (tmp_path / "out").open("wb") as file:
        running = Bridge(tmp_path, interpreter.path, stdout=file)
    # A file could hold up the guest, so it is not offered.
    running.stdin.write(b"first")
    assert socket.recv_fds(running.guest, 100, 4)[:2] == (b"first", [])
    running.guest.sendall(data)
    running.guest.close()
    assert running.process.wait(SECONDS) == 0
    running.close()
    assert (tmp_path / "out").read_bytes() == data
