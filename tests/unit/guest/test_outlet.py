"""Output that goes straight into the bridge's standard output, and pipes that a guest must not take."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.support.guest_client import TOKEN, GuestClient, RunningGuest
from workspaced_guest import wire

SECONDS = 20
MIB = 1 << 20


class _Streams:
    """What a `GuestClient` needs of a connection, over the standard streams of a bridge."""

    def __init__(self, guest: RunningGuest) -> None:
        program = [*guest.program, "connect", "--socket", str(guest.socket_path)]
        self.bridge = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def sendall(self, data: bytes) -> None:
        assert self.bridge.stdin is not None
        while data:
            data = data[self.bridge.stdin.write(data) or 0 :]

    def recv(self, size: int) -> bytes:
        assert self.bridge.stdout is not None
        return self.bridge.stdout.read(size) or b""

    def close(self) -> None:
        for stream in (self.bridge.stdin, self.bridge.stdout):
            if stream is not None:
                stream.close()
        self.bridge.wait(SECONDS)


@pytest.fixture
def streams(guest: RunningGuest) -> Iterator[_Streams]:
    running = _Streams(guest)
    yield running
    running.bridge.kill()
    running.close()


@pytest.fixture
def bridged(streams: _Streams) -> GuestClient:
    """A channel through a bridge."""
    client = GuestClient(cast("socket.socket", streams))
    client.greet()
    return client


def _pipe_of(streams: _Streams) -> str:
    assert streams.bridge.stdout is not None
    return os.readlink(f"/proc/self/fd/{streams.bridge.stdout.fileno()}")


def _held(guest: RunningGuest) -> list[str]:
    """What the guest's descriptors are."""
    found = []
    for entry in Path(f"/proc/{guest.pid}/fd").iterdir():
        try:
            found.append(os.readlink(entry))
        except FileNotFoundError:
            continue  # closed since
    return found


def _wait(condition: Callable[[], bool]) -> None:
    """For what a guest does by itself and tells nobody."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _start(client: GuestClient, shell: str) -> None:
    client.call("process.start", {"spec": {"shell": shell}})


def test_every_byte_goes_through_the_bridges_own_pipe(
    guest: RunningGuest, streams: _Streams, bridged: GuestClient
) -> None:
    assert _pipe_of(streams) in _held(guest)
    data = os.urandom(16 * MIB)
    (guest.directory / "work" / "data").write_bytes(data)
    stream = bridged.open("process.start", {"spec": {"argv": ["cat", "data"]}, "attach": {"offset": 0}})
    attached = stream.records()
    assert hashlib.sha256(attached.stdout).digest() == hashlib.sha256(data).digest()
    assert attached.exit["code"] == 0


def test_a_reader_that_stalls_holds_up_nobody_and_loses_nothing(guest: RunningGuest, bridged: GuestClient) -> None:
    stream = bridged.open(
        "process.start", {"spec": {"shell": "seq 1000000; sleep 0.1; seq 10"}, "attach": {"offset": 0}}
    )
    with guest.connect() as other:
        for _ in range(20):
            assert other.call("guest.info")["channels"] == 2
        process = other.call("process.list")["processes"][0]
        other.open("process.attach", {"process_id": process["process_id"], "offset": 0}).records()
    expected = b"".join(b"%d\n" % number for number in (*range(1, 1_000_001), *range(1, 11)))
    assert stream.records().stdout == expected


def test_a_killed_bridge_is_a_lost_channel(guest: RunningGuest, streams: _Streams, bridged: GuestClient) -> None:
    # Enough that the guest waits for the pipe.
    bridged.open("process.start", {"spec": {"shell": "yes"}, "attach": {"offset": 0}}).until("started")
    streams.bridge.kill()
    while streams.recv(MIB):
        pass  # it ends only when the guest has given the pipe up as well
    with guest.connect() as other:
        assert other.call("guest.info")["channels"] == 1


@pytest.mark.parametrize("shell", ["sleep 60", "yes"])
def test_a_reader_that_goes_ends_the_channel_and_the_bridge(
    guest: RunningGuest, streams: _Streams, bridged: GuestClient, shell: str
) -> None:
    bridged.open("process.start", {"spec": {"shell": shell}, "attach": {"offset": 0}}).until("started")
    pipe = _pipe_of(streams)
    assert streams.bridge.stdout is not None
    streams.bridge.stdout.close()
    with guest.connect() as other:
        if shell == "sleep 60":
            bridged.send(wire.PING, 0, bytes(8))  # nobody hears the answer
        assert streams.bridge.wait(SECONDS) == 0
        _wait(lambda: pipe not in _held(guest))
        assert other.call("guest.info")["channels"] == 1


def test_a_guest_that_ends_says_so_through_the_pipe(streams: _Streams, bridged: GuestClient) -> None:
    assert bridged.call("guest.shutdown", {"reason": "STOPPED"}) is not None
    kind, payload = bridged.channel_frame()
    assert (kind, wire.decode_json(payload)["reason"]) == (wire.GOAWAY, "STOPPED")
    assert streams.recv(1) == b""
    assert streams.bridge.wait(SECONDS) == 0


def test_a_process_does_not_inherit_the_pipe(guest: RunningGuest, streams: _Streams, bridged: GuestClient) -> None:
    _start(bridged, "ls -l /proc/self/fd > fds; echo done > over")
    _wait((guest.directory / "work" / "over").exists)
    assert _pipe_of(streams) not in (guest.directory / "work" / "fds").read_text()


def _greeting(token: str = TOKEN) -> bytes:
    return wire.encode(wire.HELLO, 0, wire.encode_json({"version": wire.VERSION, "token": token, "client": "tests"}))


def _read_end(directory: Path) -> list[int]:
    read, write = os.pipe()
    os.close(write)
    return [read]


def _file(directory: Path) -> list[int]:
    return [os.open(directory / "offered", os.O_RDWR | os.O_CREAT)]


def _device(directory: Path) -> list[int]:
    return [os.open("/dev/null", os.O_RDWR)]


def _socket(directory: Path) -> list[int]:
    return [socket.socket(socket.AF_UNIX).detach()]


def _directory(directory: Path) -> list[int]:
    return [os.open(directory, os.O_RDONLY)]


def _many_files(directory: Path) -> list[int]:
    return [os.open("/dev/null", os.O_RDWR) for _ in range(200)]


@pytest.mark.parametrize("offer", [_read_end, _file, _device, _socket, _directory, _many_files])
def test_what_is_no_pipe_to_write_to_is_not_taken(
    guest: RunningGuest, tmp_path: Path, offer: Callable[[Path], list[int]]
) -> None:
    with guest.connect() as other:
        before = sorted(_held(guest))
        fds = offer(tmp_path)
        with guest.dial() as client:
            socket.send_fds(client.connection, [_greeting()], fds)
            assert client.channel_frame()[0] == wire.HELLO  # over the socket
            assert len(_held(guest)) == len(before) + 1
            assert client.call("guest.info")["channels"] == 2
        for fd in fds:
            os.close(fd)
        _wait(lambda: other.call("guest.info")["channels"] == 1)
        assert sorted(_held(guest)) == before


def test_a_pipe_is_not_used_before_the_token_is_proved(guest: RunningGuest) -> None:
    read, write = os.pipe()
    with guest.dial() as client:
        socket.send_fds(client.connection, [_greeting("wrong")], [write])
        os.close(write)
        assert client.channel_frame()[0] == wire.GOAWAY  # over the socket
        with os.fdopen(read, "rb") as pipe:
            assert pipe.read() == b""


def test_only_the_last_pipe_offered_in_time_is_kept(guest: RunningGuest) -> None:
    pipes = [os.pipe() for _ in range(4)]
    greeting = _greeting()
    with guest.dial() as client:
        for (_, write), part in zip(pipes, (greeting[:5], greeting[5:20], greeting[20:]), strict=False):
            socket.send_fds(client.connection, [part], [write])
            os.close(write)
        parser = wire.Parser("guest")
        frames: list[wire.Frame] = []
        while not frames:
            frames = parser.feed(os.read(pipes[2][0], 4096))
        assert frames[0][0] == wire.HELLO
        # One that comes after the handshake is not looked at.
        socket.send_fds(client.connection, [wire.encode(wire.PING, 0, bytes(8))], [pipes[3][1]])
        os.close(pipes[3][1])
        while not (frames := parser.feed(os.read(pipes[2][0], 4096))):
            pass
        assert frames[0][0] == wire.PONG
        for read, _ in (pipes[0], pipes[1], pipes[3]):
            assert os.read(read, 1) == b""
    assert os.read(pipes[2][0], 1) == b""
    for read, _ in pipes:
        os.close(read)
