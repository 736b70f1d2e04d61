"""The guest's WebSocket listener: a real bundle under each interpreter, driven by a client of the library."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.sync.connection import Connection

from tests.support.guest_client import TOKEN, GuestClient, RunningGuest
from tests.support.interpreters import Interpreter
from workspaced_guest import wire
from workspaced_guest.loop import Loop
from workspaced_guest.websocket import WebSocketConnection
from workspaced_server.guest import bundle

_HELLO = wire.encode(wire.HELLO, 0, wire.encode_json({"version": 1, "token": TOKEN, "client": "tests"}))
_UPGRADE = (
    b"GET /v1/channel HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
)
_PING = b"\x89\xfd\0\0\0\0" + b"x" * 125


class ListeningGuest(RunningGuest):
    """Runs from the bundle, as in a sandbox; `address` is where it listens."""

    address: tuple[str, int]

    @property
    def program(self) -> list[str]:
        return [str(self.python), "-I", str(self.directory / "guest.pyz")]

    def start(self) -> None:
        (self.directory / "guest.pyz").write_bytes(bundle.build().data)
        super().start()
        with self.connect() as client:
            host, _, port = client.call("guest.info")["listen"].rpartition(":")
        self.address = (host, int(port))

    @property
    def url(self) -> str:
        return "ws://{}:{}/v1/channel".format(*self.address)

    def websocket(self) -> ClientConnection:
        return connect(self.url, compression=None, max_size=1 << 20)


class _Socket:
    """As much of a socket as `GuestClient` asks for, with messages of `size` bytes."""

    def __init__(self, connection: ClientConnection, size: int) -> None:
        self._connection = connection
        self._size = size

    def sendall(self, data: bytes) -> None:
        for start in range(0, len(data), self._size):
            self._connection.send(data[start : start + self._size])

    def recv(self, size: int) -> bytes:
        data = self._connection.recv(20)
        assert isinstance(data, bytes)
        assert 0 < len(data) <= 256 * 1024
        return data

    def close(self) -> None:
        self._connection.close()


def channel(guest: ListeningGuest, size: int = 1 << 18) -> GuestClient:
    client = GuestClient(_Socket(guest.websocket(), size))  # type: ignore[arg-type]
    client.greet()
    return client


@pytest.fixture
def listening(tmp_path: Path, interpreter: Interpreter) -> Iterator[ListeningGuest]:
    with ListeningGuest(tmp_path, interpreter.path, ("--listen", "127.0.0.1:0")) as running:
        assert isinstance(running, ListeningGuest)
        yield running


@pytest.mark.parametrize("size", [1, 1000, 1 << 18])
def test_a_channel(listening: ListeningGuest, size: int) -> None:
    with channel(listening, size) as client:
        assert client.hello["bundle"] == bundle.build().sha256
        spec = {"shell": "echo hi; cat", "stdin": True}
        stream = client.open("process.start", {"process_id": "p", "spec": spec, "attach": {"offset": 0}})
        stdin = client.open("process.stdin", {"process_id": "p", "offset": 0})
        data = os.urandom(20_000 if size == 1 else 200_000)
        stdin.send(data)
        client.send(wire.MESSAGE, stdin.id, {"close": True})
        assert stream.records().stdout == b"hi\n" + data


def test_a_message_in_fragments(listening: ListeningGuest) -> None:
    with listening.websocket() as connection:
        connection.send([_HELLO[:5], b"", _HELLO[5:20], _HELLO[20:]])
        (frame,) = wire.Parser("guest").feed(_bytes(connection))
        assert frame[0] == wire.HELLO
        assert connection.ping().wait(10)


def test_a_slow_reader_holds_back_its_channel_only(listening: ListeningGuest) -> None:
    with channel(listening) as slow, channel(listening) as quick:
        stream = slow.open(
            "process.start",
            {"process_id": "p", "spec": {"shell": "head -c 60000000 /dev/zero"}, "attach": {"offset": 0}},
        )
        stream.message()
        quick.call("process.wait", {"process_id": "p"})
        # More than buffers hold is waiting in the journal, and not in the guest's memory.
        assert quick.call("guest.info")["rss_bytes"] < 60 << 20
        assert len(stream.records().stdout) == 60_000_000


def test_the_token_is_asked_for(listening: ListeningGuest) -> None:
    with listening.websocket() as connection:
        connection.send(wire.encode(wire.HELLO, 0, wire.encode_json({"version": 1, "token": "x" * 32})))
        (frame,) = wire.Parser("guest").feed(_bytes(connection))
        assert frame == (wire.GOAWAY, 0, b'{"reason":"TOKEN"}')


@pytest.mark.parametrize("path", ["/", "/v1/channel/", "/v1/channels", "/v1/channel%00"])
def test_another_path(listening: ListeningGuest, path: str) -> None:
    with pytest.raises(InvalidStatus) as caught:
        connect(listening.url.replace("/v1/channel", path))
    assert caught.value.response.status_code == 404


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
        (b"POST /v1/channel HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"GET /v1/channel HTTP/1.1\r\nHost: x\r\n\r\n", b"426"),
        (_UPGRADE + b"Content-Length: 5\r\n\r\n", b"400"),
        (_UPGRADE.replace(b": 13", b": 12") + b"\r\n", b"400"),
        (_UPGRADE + b"X: " + b"x" * 9000 + b"\r\n\r\n", b"400"),
        (_UPGRADE + b"X: y\r\n" * 200 + b"\r\n", b"400"),
        (b"x" * 100_000, b"400"),
        (_UPGRADE + b"\r\n" + b"\x89\x80\0\0\0\0", b""),
        (_UPGRADE + b"\r\n" + b"\xff" * 100, b""),
        (b"", b""),
    ],
    ids=["tls", "post", "plain", "body", "version", "header", "headers", "endless", "early", "early-junk", "nothing"],
)
def test_no_handshake(listening: ListeningGuest, request_bytes: bytes, status: bytes) -> None:
    with socket.create_connection(listening.address, timeout=20) as connection:
        connection.sendall(request_bytes)
        connection.shutdown(socket.SHUT_WR)
        assert _rest(connection)[9:12] in (status, b"")
    with channel(listening) as client:
        assert client.call("guest.info")["channels"] == 1
    assert (listening.directory / "guest.log").read_text() == ""


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (b"\x81\x82\0\0\0\0hi", 1003),
        (b"\x01\x82\0\0\0\0hi", 1003),
        (b"\x82\xff\x00\x00\x00\x00\x7f\xff\xff\xff\0\0\0\0", 1009),
        (b"\x82\x02hi", 1002),
        (b"\xf2\x80\0\0\0\0", 1002),
        (b"\x80\x80\0\0\0\0", 1002),
    ],
    ids=["text", "text-fragment", "huge", "unmasked", "compressed", "continuation"],
)
def test_frames_that_are_refused(listening: ListeningGuest, frames: bytes, code: int) -> None:
    with listening.websocket() as connection:
        connection.socket.sendall(frames)
        with pytest.raises(ConnectionClosedError) as caught:
            connection.recv(20)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == code


@pytest.mark.parametrize("sending", [False, True])
def test_a_flood_of_pings_without_reading_ends(sending: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        loop = Loop()
        connection = WebSocketConnection(loop, server.accept()[0])
        client.sendall(_UPGRADE + b"\r\n")
        with pytest.raises(BlockingIOError):
            connection.recv(1 << 16)
        with pytest.raises(BlockingIOError):  # noqa: PT012  (the one that fills the buffers)
            while sending:
                connection.sendmsg([b"x" * (1 << 18)])
            connection.recv(1 << 16)
        client.setblocking(False)
        with pytest.raises(ConnectionAbortedError):  # noqa: PT012  (any of the reads)
            for _ in range(10_000):
                with suppress(BlockingIOError):
                    client.send(_PING * 1000)
                with suppress(BlockingIOError):
                    connection.recv(1 << 16)
        connection.close()
        loop.close()


def test_of_a_client_that_floods_nothing_is_left(listening: ListeningGuest) -> None:
    fds = Path(f"/proc/{listening.pid}/fd")
    before = len(list(fds.iterdir()))
    with socket.create_connection(listening.address) as connection:
        connection.sendall(_UPGRADE + b"\r\n")
        assert connection.recv(12) == b"HTTP/1.1 101"
        connection.settimeout(0.5)
        # That the connection was reset is known when the kernel says so; what the guest holds tells it at once.
        with suppress(ConnectionError):
            while len(list(fds.iterdir())) > before:
                with suppress(TimeoutError):
                    connection.sendall(_PING * 1000)
    with channel(listening) as client:
        assert client.call("guest.info")["channels"] == 1


def test_the_end_is_said(listening: ListeningGuest) -> None:
    with channel(listening) as client:
        os.kill(listening.pid, signal.SIGTERM)
        kind, payload = client.channel_frame()
        assert (kind, payload) == (wire.GOAWAY, b'{"reason":"STOPPED"}')


def test_upgrade_keeps_the_listener(listening: ListeningGuest) -> None:
    path = listening.state / f"guest-{bundle.build().sha256}.pyz"
    path.write_bytes(bundle.build().data)
    with channel(listening) as old:
        instance = old.hello["instance"]
        old.call("guest.upgrade", {"path": str(path), "bundle": bundle.build().sha256})
        assert old.channel_frame() == (wire.GOAWAY, b'{"reason":"UPGRADE"}')
    with channel(listening) as new:
        assert new.hello["instance"] == instance
        assert new.call("guest.info")["listen"] == "{}:{}".format(*listening.address)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x", "127.0.0.1:70000", "192.0.2.1:0"])
def test_where_it_cannot_listen_it_does_not_start(tmp_path: Path, address: str) -> None:
    guest = ListeningGuest(tmp_path, None, ("--listen", address))
    guest.state.mkdir(mode=0o700)
    (guest.state / "token").write_text(TOKEN)
    (guest.directory / "guest.pyz").write_bytes(bundle.build().data)
    command = [*guest.program, "serve", *guest.arguments()]
    failed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert failed.returncode == 1
    assert f"--listen {address}: " in failed.stderr


def test_nothing_is_loaded_without_the_option(tmp_path: Path) -> None:
    (tmp_path / "guest.pyz").write_bytes(bundle.build().data)
    guest = RunningGuest(tmp_path)
    with guest, guest.connect() as client:
        assert client.call("guest.info")["listen"] is None
        maps = Path(f"/proc/{guest.pid}/maps").read_text()
        assert "_uuid" not in maps
        assert "zlib" not in maps


def _bytes(connection: Connection) -> bytes:
    data = connection.recv(20)
    assert isinstance(data, bytes)
    return data


def _rest(connection: socket.socket) -> bytes:
    found = b""
    try:
        while data := connection.recv(65536):
            found += data
    except ConnectionResetError:
        # What was not read when it closed.
        return found
    return found
