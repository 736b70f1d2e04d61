"""Nothing that one program, client or failure does stops the guest for the others, or loses what was on its way."""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.guest_client import TOKEN, GuestClient, RunningGuest
from workspaced_guest import upgrade, wire
from workspaced_guest.channel import Channel
from workspaced_guest.loop import Loop
from workspaced_guest.output import Output
from workspaced_guest.stdin import Stdin, StdinWriter
from workspaced_guest.stream import Stream


def test_a_child_that_writes_for_ever_does_not_hold_up_the_drain(client: GuestClient) -> None:
    spec = {"shell": "yes & echo started", "overflow": "drop", "journal_limit": 1 << 20}
    client.call("process.start", {"process_id": "loud", "spec": spec})
    exited = client.call("process.wait", {"process_id": "loud"})["exit"]
    assert exited["code"] == 0
    assert exited["drained"]
    client.call("process.stop", {"process_id": "loud", "grace": 0})


def test_a_drain_ends_however_fast_the_writer_is() -> None:
    kept: list[int] = []
    journal = SimpleNamespace(full=False, append=lambda tag, data: kept.append(len(data)))
    process: Any = SimpleNamespace(journal=journal, leader_exited=True, output_arrived=lambda: None)
    zero = os.open("/dev/zero", os.O_RDONLY)
    output = Output(process, zero, wire.STDOUT)
    output.drain()
    os.close(zero)
    assert 1 << 20 <= sum(kept) < 2 << 20
    assert output.discard


def test_a_client_that_asks_and_never_reads_is_cut_off(guest: RunningGuest, client: GuestClient) -> None:
    large = {"shell": "#" + "x" * 100_000}
    client.call("process.start", {"process_id": "large", "spec": large})
    client.call("process.wait", {"process_id": "large"})
    with guest.connect() as deaf:
        with suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(1000):
                deaf.open("process.get", {"process_id": "large"})
        assert any(client.call("guest.info")["channels"] == 1 for _ in range(1000))


def test_without_descriptors_the_listener_waits(guest: RunningGuest, client: GuestClient) -> None:
    before = resource.prlimit(guest.pid, resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir(f"/proc/{guest.pid}/fd"))
    resource.prlimit(guest.pid, resource.RLIMIT_NOFILE, (used + 1, before[1]))
    with guest.dial() as waiting:
        assert not select.select([waiting.connection], [], [], 0.6)[0]
        assert client.call("process.list")["processes"] == []
        assert 1 <= (guest.directory / "guest.log").read_text().count("accept: ") < 10
        resource.prlimit(guest.pid, resource.RLIMIT_NOFILE, before)
        waiting.greet()


def test_what_a_slow_client_left_in_the_pipe_comes_before_the_exit(client: GuestClient) -> None:
    spec = {"shell": "printf x; sleep 0.1; head -c 60000 /dev/zero"}
    stream = client.open("pipe.spawn", {"process_id": "pipe", "spec": spec}, window=1)
    # One byte of credit is left after this, none after the first.
    stream.grant(len(stream.frame()[1]))
    assert stream.frame() == (wire.DATA, b"x")
    client.send(wire.OPEN, 0x7000, {"op": "process.wait", "params": {"process_id": "pipe"}, "window": 0})
    client._streams[0x7000] = waiting = type(stream)(client, 0x7000)
    waiting.result()
    stream.grant(1 << 20)
    data = b""
    while (frame := stream.frame())[0] != wire.RESULT:
        data += frame[1] if frame[0] == wire.DATA else b""
    assert len(data) == 60_000


def test_a_look_at_the_output_does_not_replace_a_lost_reader(guest: RunningGuest, client: GuestClient) -> None:
    spec = {"argv": ["sleep", "300"], "disconnect_policy": "kill", "disconnect_grace": 0.5}
    with guest.connect() as lost:
        stream = lost.open("process.start", {"process_id": "p", "spec": spec, "attach": {"offset": 0}})
        stream.until("started")
    while client.call("guest.info")["channels"] != 1:
        pass
    look = client.open("process.attach", {"process_id": "p", "offset": 0, "follow": False})
    assert look.result()["exit"] is None
    assert client.call("process.wait", {"process_id": "p"})["exit"]["reason"] == "CANCELLED"


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: found.append(str(error)))
    return found


def _fail(*_: object) -> None:
    raise ValueError("broken")


def test_a_failing_signal_callback_does_not_delay_threads(errors: list[str]) -> None:
    loop = Loop()
    previous = signal.getsignal(signal.SIGUSR1)
    try:
        loop.on_signal(signal.SIGUSR1, _fail)
        os.kill(os.getpid(), signal.SIGUSR1)
        loop.call_threadsafe(loop.stop)
        late = loop.call_later(5, loop.stop)
        loop.run()
        assert late.callback is not None
    finally:
        signal.signal(signal.SIGUSR1, previous)
        loop.close()
    assert errors == ["broken"]


def test_a_failing_stream_loses_no_frame_of_another(errors: list[str]) -> None:
    loop = Loop()
    seen: list[str] = []

    def start(operation: str, stream: Stream, params: dict[str, Any]) -> None:
        seen.append(operation)
        stream.on_close = _fail
        if operation == "second":
            loop.stop()

    closed: list[Channel] = []
    guest: Any = SimpleNamespace(
        loop=loop, token=TOKEN, admit=lambda _: True, hello=dict, start_operation=start, channel_closed=closed.append
    )
    ours, theirs = socket.socketpair()
    channel = Channel(guest, theirs)
    hello = wire.encode_json({"version": wire.VERSION, "token": TOKEN})
    frames = [(wire.HELLO, 0, hello)]
    frames += [(wire.OPEN, 1, wire.encode_json({"op": "first"})), (wire.CANCEL, 1, b"")]
    frames += [(wire.OPEN, 2, wire.encode_json({"op": "second"})), (wire.OPEN, 3, wire.encode_json({"op": "third"}))]
    ours.sendall(b"".join(wire.encode(*frame) for frame in frames))
    loop.call_later(5, loop.stop)
    loop.run()
    channel.close()
    ours.close()
    loop.close()
    assert seen == ["first", "second", "third"]
    assert closed == [channel]
    assert errors == ["broken"] * 3


def test_an_acknowledgement_waits_for_the_channel() -> None:
    sent: list[dict[str, Any]] = []

    def write(kind: int, stream: int, buffers: list[bytes]) -> None:
        if kind == wire.MESSAGE:
            sent.append(wire.decode_json(b"".join(buffers)))

    channel: Any = SimpleNamespace(congested=True, write=write, forget=lambda _: None)
    stream = Stream(channel, 1, 1000)
    reading, writing = os.pipe()
    process: Any = SimpleNamespace(leader_exited=False)
    stdin = Stdin(process, writing, False)
    StdinWriter(stdin, stream, 0)
    assert stream.on_data is not None
    stream.on_data(b"hello")
    assert sent == []
    channel.congested = False
    stream.wake()
    assert sent == [{"ack": 5}]
    stdin.abandon()
    os.close(reading)


def test_whatever_an_upgrade_fails_of_the_guest_serves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    accepts: list[bool] = []
    listener = SimpleNamespace(unpause=lambda: accepts.append(True))
    guest: Any = SimpleNamespace(stopping=True, listener=listener, limits=SimpleNamespace(restore=lambda: None))
    monkeypatch.setattr(upgrade, "_execute", _fail)
    upgrade.replace(guest, "/nowhere")
    assert accepts == [True]
    assert not guest.stopping
