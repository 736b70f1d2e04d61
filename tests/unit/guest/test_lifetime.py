"""The guest's own life: handshake, protocol errors, being killed, being replaced, and the command line."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.guest_client import TOKEN, GuestClient, GuestError, RunningGuest, alive, wait_gone
from tests.support.interpreters import Interpreter
from tests.unit.guest.running import ChangedGuest
from workspaced_guest import wire
from workspaced_server.guest import bundle


def test_hello(client: GuestClient, guest: RunningGuest) -> None:
    assert client.hello["pid"] == guest.pid
    assert client.hello["workdir"] == str(guest.workdir)
    assert client.hello["window"] == wire.WINDOW
    assert len(client.hello["instance"]) == 32


@pytest.mark.parametrize(
    ("version", "token", "reason"), [(1, "wrong", "TOKEN"), (1, "ü\udcff", "TOKEN"), (2, TOKEN, "VERSION")]
)
def test_a_wrong_hello_is_told_why(guest: RunningGuest, version: int, token: str, reason: str) -> None:
    with guest.dial() as stranger:
        stranger.send(wire.HELLO, 0, {"version": version, "token": token})
        kind, payload = stranger.channel_frame()
        assert (kind, wire.decode_json(payload)) == (wire.GOAWAY, {"reason": reason})
        with pytest.raises(EOFError):
            stranger.receive()


@pytest.mark.parametrize(
    "content",
    [
        wire.encode(wire.DATA, 5, b"never opened"),
        wire.encode(wire.OPEN, 1, b"[]"),
        wire.encode(wire.OPEN, 1, b'{"op":1}'),
        wire.encode(wire.OPEN, 1, b'{"op":"guest.info","window":-1}'),
        wire.encode(wire.OPEN, 2, b'{"op":"guest.info"}') + wire.encode(wire.OPEN, 2, b'{"op":"guest.info"}'),
        wire.encode(wire.RESULT, 1, b"{}"),
        b"\xff" * 9,
    ],
)
def test_a_protocol_error_closes_that_channel_only(guest: RunningGuest, client: GuestClient, content: bytes) -> None:
    with guest.connect() as bad:
        bad.connection.sendall(content)
        while bad.connection.recv(1 << 16):
            pass
    assert client.call("guest.info")["channels"] == 1


def test_16_channels_and_no_more(guest: RunningGuest) -> None:
    clients = [guest.connect() for _ in range(16)]
    with guest.dial() as one_more:
        one_more.send(wire.HELLO, 0, {"version": 1, "token": TOKEN})
        assert wire.decode_json(one_more.channel_frame()[1]) == {"reason": "LIMIT"}
    for connected in clients:
        assert connected.call("guest.info")["channels"] == 16
        connected.send(wire.PING, 0, b"12345678")
        assert connected.channel_frame() == (wire.PONG, b"12345678")
    for connected in clients:
        connected.close()


def test_an_unknown_operation(client: GuestClient) -> None:
    with pytest.raises(GuestError) as caught:
        client.call("process.fly")
    assert caught.value.code == "UNIMPLEMENTED"


def test_a_killed_guest_reports_lost_and_ends_what_is_left(tmp_path: Path, interpreter: Interpreter) -> None:
    guest = RunningGuest(tmp_path, interpreter.path)
    with guest:
        with guest.connect() as first:
            first.call("process.start", {"process_id": "done", "spec": {"shell": "exit 3"}})
            first.call("process.wait", {"process_id": "done"})
            params = {
                "process_id": "runs",
                "spec": {"shell": "setsid sleep 300 & echo $!; exec sleep 300"},
                "attach": {"offset": 0},
            }
            attached = first.open("process.start", params).records(until=b"\n")
            pids = [attached.started["started"]["pid"], int(attached.stdout)]
            instance = first.hello["instance"]
        guest.kill()
        assert all(map(alive, pids))
        guest.start()
        with guest.connect() as second:
            assert second.hello["instance"] != instance
            lost = second.call("process.wait", {"process_id": "runs"})["exit"]
            assert (lost["reason"], lost["code"], lost["signal"], lost["output_incomplete"]) == (
                "LOST",
                None,
                None,
                True,
            )
            assert second.call("process.get", {"process_id": "done"})["process"]["exit"]["code"] == 3
            again = second.open("process.attach", {"process_id": "runs", "offset": 3}).records()
            assert again.exit["reason"] == "LOST"
        for pid in pids:
            wait_gone(pid)


def test_a_guest_killed_between_the_record_and_the_start_kills_nobody(tmp_path: Path, interpreter: Interpreter) -> None:
    guest = RunningGuest(tmp_path, interpreter.path)
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    with guest:
        with guest.connect() as first:
            first.call("process.start", {"process_id": "p", "spec": {"shell": "exec sleep 300"}})
            pid = first.call("process.get", {"process_id": "p"})["process"]["pid"]
        guest.kill()
        record = guest.state / "processes" / "p.json"
        content = json.loads(record.read_text().splitlines()[-1])
        content["start_ticks"] = content["process"]["pid"] = 0
        record.write_text(json.dumps(content))
        guest.start()
        with guest.connect() as second:
            assert second.call("process.get", {"process_id": "p"})["process"]["exit"]["reason"] == "LOST"
        wait_gone(pid)
        assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_upgrade_keeps_processes_pipes_and_journals(tmp_path: Path, interpreter: Interpreter) -> None:
    bundled = bundle.build()
    path = tmp_path / f"guest-{bundled.sha256}.pyz"
    path.write_bytes(bundled.data)
    guest = RunningGuest(tmp_path, interpreter.path)
    script = "echo before; while read line; do echo got $line; done; echo end; exit 5"
    with guest:
        with guest.connect() as old:
            params = {"process_id": "u", "spec": {"shell": script, "stdin": True}, "attach": {"offset": 0}}
            attached = old.open("process.start", params).records(until=b"before\n")
            writer = old.open("process.stdin", {"process_id": "u", "offset": 0})
            writer.send(b"one\n")
            old.open("process.attach", {"process_id": "u", "offset": 0}).records(until=b"got one\n")
            old.call("process.start", {"process_id": "done", "spec": {"shell": "echo kept; exit 4"}})
            old.call("process.wait", {"process_id": "done"})
            with pytest.raises(GuestError) as caught:
                old.call("guest.upgrade", {"path": str(path), "bundle": "0" * 64})
            assert caught.value.reason == "BUNDLE_MISMATCH"
            assert old.call("guest.upgrade", {"path": str(path), "bundle": bundled.sha256}) == {"restarting": True}
            kind, payload = old.channel_frame()
            assert (kind, wire.decode_json(payload)) == (wire.GOAWAY, {"reason": "UPGRADE"})
        assert not path.exists(), "the file that was brought is removed"
        with guest.connect() as new:
            assert new.hello["bundle"] == bundled.sha256
            assert new.hello["pid"] == guest.pid
            # What was verified is what runs: a copy that only the guest writes.
            assert str(guest.state / path.name).encode() in Path(f"/proc/{guest.pid}/cmdline").read_bytes()
            assert new.hello["instance"] == old.hello["instance"]
            process = new.call("process.get", {"process_id": "u"})["process"]
            assert process["pid"] == attached.started["started"]["pid"]
            assert process["stdin_offset"] == 4
            writer = new.open("process.stdin", {"process_id": "u", "offset": 4})
            writer.send(b"two\n")
            new.send(wire.MESSAGE, writer.id, {"close": True})
            done = new.open("process.attach", {"process_id": "u", "offset": 0}).records()
            assert done.stdout == b"before\ngot one\ngot two\nend\n"
            assert done.exit["code"] == 5
            kept = new.open("process.attach", {"process_id": "done", "offset": 0}).records()
            assert (kept.stdout, kept.exit["code"]) == (b"kept\n", 4)


def test_an_upgrade_forgets_no_reader_that_was_lost(tmp_path: Path, interpreter: Interpreter) -> None:
    kills = {"disconnect_policy": "kill", "disconnect_grace": 0.3}
    guest = RunningGuest(tmp_path, interpreter.path)
    with guest:
        with guest.connect() as old:
            for name, options in {"keep": {}, "before": kills, "during": kills}.items():
                params = {"process_id": name, "spec": {"shell": "echo up; exec sleep 300", **options}}
                attached = old.open("process.start", {**params, "attach": {"offset": 0}})
                attached.records(until=b"up\n")
                if name == "before":
                    attached.cancel()
            _upgrade(old, tmp_path)
        with guest.connect() as new:
            for name in ("before", "during"):
                assert new.call("process.wait", {"process_id": name})["exit"]["reason"] == "CANCELLED"
            assert new.call("process.get", {"process_id": "keep"})["process"]["state"] == "running"
            new.call("process.stop_all", {"grace": 0})


def test_an_older_guest_does_not_tell_of_lost_readers(tmp_path: Path, interpreter: Interpreter) -> None:
    guest = _OlderGuest(tmp_path, interpreter.path)
    with guest:
        with guest.connect() as old:
            spec = {"shell": "echo up; read line; echo $line", "stdin": True, "disconnect_policy": "kill"}
            start = {"process_id": "p", "spec": spec, "attach": {"offset": 0}}
            old.open("process.start", start).records(until=b"up\n")
            _upgrade(old, tmp_path)
        with guest.connect() as new:
            new.open("process.stdin", {"process_id": "p", "offset": 0}).send(b"on\n")
            assert new.open("process.attach", {"process_id": "p", "offset": 0}).records().stdout == b"up\non\n"


class _OlderGuest(ChangedGuest):
    """One whose handover has only what the first had."""

    change = (
        "from workspaced_guest import upgrade; known = upgrade._snapshot; "
        "upgrade._snapshot = lambda *a: {k: v for k, v in known(*a).items() if k not in ('disconnect_due',)}"
    )


def _upgrade(client: GuestClient, directory: Path) -> None:
    bundled = bundle.build()
    path = directory / f"guest-{bundled.sha256}.pyz"
    path.write_bytes(bundled.data)
    client.call("guest.upgrade", {"path": str(path), "bundle": bundled.sha256})
    assert client.channel_frame() == (wire.GOAWAY, b'{"reason":"UPGRADE"}')


def test_a_bundle_that_does_not_start_changes_nothing(client: GuestClient, tmp_path: Path) -> None:
    path = tmp_path / "broken.pyz"
    path.write_bytes(b"not a zip")
    with pytest.raises(GuestError) as caught:
        client.call("guest.upgrade", {"path": str(path), "bundle": hashlib.sha256(b"not a zip").hexdigest()})
    assert caught.value.reason == "UPGRADE_FAILED"
    assert client.call("guest.info")["channels"] == 1
    assert list((tmp_path / "state").glob("*.pyz*")) == []


def test_a_bundle_behind_a_link_or_no_file_is_refused(client: GuestClient, tmp_path: Path) -> None:
    bundled = bundle.build()
    (tmp_path / "there.pyz").write_bytes(bundled.data)
    (tmp_path / "link").symlink_to("there.pyz")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo", "missing", "."):
        with pytest.raises(GuestError):
            client.call("guest.upgrade", {"path": str(tmp_path / name), "bundle": bundled.sha256})
    assert client.call("guest.info")["channels"] == 1


def test_shutdown_ends_the_trees_and_the_guest(guest: RunningGuest, client: GuestClient) -> None:
    params = {
        "process_id": "x",
        "spec": {"shell": "setsid sleep 300 & echo $!; exec sleep 300"},
        "attach": {"offset": 0},
    }
    attachment = client.open("process.start", params)
    first = attachment.records(until=b"\n")
    client.call("guest.shutdown", {"grace": 1})
    assert client.channel_frame() == (wire.GOAWAY, b'{"reason":"STOPPED"}')
    assert attachment.records().exit["reason"] == "WORKSPACE_STOPPED"
    assert guest.process is not None
    assert guest.process.wait(20) == 0
    assert not alive(int(first.stdout))
    assert not guest.socket_path.exists()


@pytest.mark.parametrize("bundled", [False, True])
def test_ensure_starts_one_daemon_and_is_the_bridge_to_it(
    tmp_path: Path, interpreter: Interpreter, bundled: bool
) -> None:
    guest = RunningGuest(tmp_path, interpreter.path)
    program = guest.program
    if bundled:
        path = tmp_path / "guest.pyz"
        path.write_bytes(bundle.build().data)
        program = [str(interpreter.path), "-I", str(path)]
    guest.state.mkdir()
    (guest.state / "token").write_text(TOKEN)
    hello = wire.encode(wire.HELLO, 0, wire.encode_json({"version": 1, "token": TOKEN}))
    bridges = [
        subprocess.Popen([*program, "ensure", *guest.arguments()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    pids = set()
    for bridge in bridges:
        answer, _ = bridge.communicate(hello, timeout=20)
        (frame,) = wire.Parser("guest").feed(answer)
        pids.add(wire.decode_json(frame[2])["pid"])
        assert bridge.returncode == 0
    (pid,) = pids
    os.kill(pid, signal.SIGTERM)
    wait_gone(pid)
    failed = subprocess.run([*program, "connect", "--socket", str(guest.socket_path)], capture_output=True, check=False)
    assert failed.returncode == 1
    assert b"no guest answers" in failed.stderr


def test_bootstrap_installs_starts_and_bridges(tmp_path: Path, interpreter: Interpreter) -> None:
    bundled = bundle.build()
    command = [
        str(interpreter.path),
        "-I",
        "-c",
        bundle.bootstrap(),
        bundled.sha256,
        str(tmp_path / "work"),
        str(tmp_path / "dir"),
    ]
    hello = wire.encode(wire.HELLO, 0, wire.encode_json({"version": 1, "token": TOKEN}))
    pids = set()
    for have in (False, True):
        running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert running.stdout is not None
        answer = json.loads(running.stdout.readline())
        assert answer == {
            "bootstrap": 1,
            "have": have,
            "python": ".".join(map(str, interpreter.version)),
            "dir": str(tmp_path / "dir"),
        }
        request = {"size": 0 if have else len(bundled.data), "token": TOKEN, "args": ["--idle-exit", "60"]}
        content = b"" if have else bundled.data
        output, _ = running.communicate(json.dumps(request).encode() + b"\n" + content + hello, timeout=20)
        (frame,) = wire.Parser("guest").feed(output)
        found = wire.decode_json(frame[2])
        assert found["bundle"] == bundled.sha256
        pids.add(found["pid"])
    (pid,) = pids
    os.kill(pid, signal.SIGTERM)
    wait_gone(pid)


def test_idle_exit(tmp_path: Path, interpreter: Interpreter) -> None:
    with RunningGuest(tmp_path, interpreter.path, ("--idle-exit", "0.2")) as guest:
        with guest.connect() as connected:
            connected.call("process.start", {"process_id": "p", "spec": {"shell": "exec sleep 0.3"}})
        assert guest.process is not None
        assert guest.process.wait(20) == 0


def test_the_bundle_is_deterministic_and_small() -> None:
    first = bundle.build()
    bundle.build.cache_clear()
    assert bundle.build() == first
    assert len(first.data) <= bundle.MAX_BYTES
