"""Processes of a real guest: start, output, exit, signals, timeouts, trees, stdin, terminals, pipes."""

from __future__ import annotations

import hashlib
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.guest_client import Attached, GuestClient, GuestError, RunningGuest, alive, wait_gone
from tests.support.interpreters import Interpreter
from workspaced_guest import wire


def run(client: GuestClient, shell: str, window: int = 1 << 30, **spec: Any) -> Attached:
    params = {"spec": {"shell": shell, **spec}, "attach": {"offset": 0}}
    return client.open("process.start", params, window).records()


def started(client: GuestClient, process_id: str, shell: str, **spec: Any) -> dict[str, Any]:
    answer = client.call("process.start", {"process_id": process_id, "spec": {"shell": shell, **spec}})
    found: dict[str, Any] = answer["started"]
    return found


def test_output_and_exit_code(client: GuestClient, guest: RunningGuest) -> None:
    done = run(client, "echo out; echo err >&2; pwd; exit 42")
    assert done.stdout == b"out\n" + str(guest.workdir).encode() + b"\n"
    assert bytes(done.output["stderr"]) == b"err\n"
    assert sorted(done.eofs) == ["stderr", "stdout"]
    assert (done.exit["reason"], done.exit["code"], done.exit["signal"]) == ("EXITED", 42, None)
    assert done.exit["usage"]["max_rss_bytes"] > 0
    assert not done.exit["drained"]
    assert not done.exit["output_incomplete"]


def test_order_of_stdout_and_stderr(client: GuestClient) -> None:
    script = "import os\nfor n in range(50):\n os.write(1 + n % 2, b'%d.' % n)\n os.read(0, 0)"
    done = client.open(
        "process.start", {"spec": {"argv": ["python3", "-c", script]}, "attach": {"offset": 0}}
    ).records()
    assert done.stdout == b"".join(b"%d." % n for n in range(0, 50, 2))
    assert bytes(done.output["stderr"]) == b"".join(b"%d." % n for n in range(1, 50, 2))


def test_killed_by_a_signal_is_no_exit_code(client: GuestClient) -> None:
    done = run(client, "kill -SEGV $$")
    assert (done.exit["reason"], done.exit["code"], done.exit["signal"]) == ("SIGNALED", None, "SEGV")


@pytest.mark.parametrize(
    ("spec", "errno", "command"),
    [
        ({"argv": ["no-such-program"]}, "ENOENT", "no-such-program"),
        ({"argv": ["/etc/passwd"]}, "EACCES", "/etc/passwd"),
        ({"shell": "true", "cwd": "no/such/directory"}, "ENOENT", "/bin/sh"),
    ],
)
def test_what_cannot_start_is_an_error_and_leaves_nothing(
    client: GuestClient, guest: RunningGuest, spec: dict[str, Any], errno: str, command: str
) -> None:
    with pytest.raises(GuestError) as caught:
        client.call("process.start", {"process_id": "p", "spec": spec})
    assert caught.value.reason == "PROCESS_START_FAILED"
    assert caught.value.metadata == {"errno": errno, "command": command}
    assert client.call("process.list")["processes"] == []
    assert list((guest.state / "processes").iterdir()) == []


@pytest.mark.parametrize(
    "params",
    [
        {"spec": {}},
        {"spec": {"argv": []}},
        {"spec": {"argv": ["a\0b"]}},
        {"spec": {"argv": ["true"], "shell": "true"}},
        {"spec": {"shell": "true", "env": {"A=B": "c"}}},
        {"spec": {"shell": "true", "timeout": -1}},
        {"spec": {"shell": "true", "journal_limit": 1}},
        {"process_id": "../x", "spec": {"shell": "true"}},
        {"process_id": "", "spec": {"shell": "true"}},
        {"process_id": "a" * 129, "spec": {"shell": "true"}},
    ],
)
def test_bad_arguments(client: GuestClient, params: dict[str, Any]) -> None:
    with pytest.raises(GuestError) as caught:
        client.call("process.start", params)
    assert caught.value.reason == "ARGUMENT_INVALID"


def test_environment(client: GuestClient) -> None:
    done = run(
        client,
        "exec env -0",
        env={"A": "ü\udcff", "B": "", "HOME": None},
    )
    values = dict(item.split(b"=", 1) for item in done.stdout.split(b"\0") if item)
    assert values[b"A"] == "ü".encode() + b"\xff"
    assert values[b"B"] == b""
    assert b"HOME" not in values
    assert values[b"WORKSPACED_PROCESS_ID"] == done.started["started"]["process_id"].encode()
    assert not [name for name in values if name.startswith(b"MALLOC")]


def test_nothing_is_inherited(client: GuestClient) -> None:
    assert run(client, "ls /proc/self/fd; cat").stdout.split() == [b"0", b"1", b"2", b"3"]


def test_a_background_child_does_not_hold_the_exit(client: GuestClient) -> None:
    before = time.monotonic()
    done = run(client, "sleep 300 & echo $!")
    assert time.monotonic() - before < 5
    assert done.exit["reason"] == "EXITED"
    assert done.exit["drained"]
    child = int(done.stdout)
    assert alive(child)
    client.call("process.stop_all", {"grace": 0.1})
    wait_gone(child)


def test_timeout_ends_the_whole_tree_and_keeps_the_output(client: GuestClient) -> None:
    done = run(
        client,
        "echo first; setsid sleep 300 & echo $!; trap '' TERM; sleep 300; sleep 300",
        timeout=0.3,
        kill_grace=0.3,
    )
    first, child = done.stdout.split()
    assert first == b"first"
    assert (done.exit["reason"], done.exit["signal"]) == ("TIMED_OUT", "KILL")
    wait_gone(int(child))


def test_a_daemon_is_found_by_its_environment(client: GuestClient) -> None:
    script = "(setsid sh -c 'echo $$; exec sleep 300' &) & wait"
    stream = client.open("process.start", {"process_id": "d", "spec": {"shell": script}, "attach": {"offset": 0}})
    daemon = int(stream.records().stdout)
    assert alive(daemon)
    assert client.call("process.signal", {"process_id": "d", "signal": "KILL"}) == {"signaled": 1}
    wait_gone(daemon)


def test_identity(client: GuestClient) -> None:
    params = {
        "process_id": "same",
        "fingerprint": "f",
        "spec": {"shell": "echo $$; sleep 300"},
        "attach": {"offset": 0},
    }
    first = client.open("process.start", params).records(until=b"\n")
    again = client.open("process.start", params).records(until=b"\n")
    assert again.started["existing"]
    assert not first.started["existing"]
    assert first.stdout == again.stdout
    with pytest.raises(GuestError) as caught:
        client.call("process.start", {**params, "fingerprint": "g"})
    assert caught.value.reason == "PROCESS_EXISTS"
    assert client.call("process.stop", {"process_id": "same", "grace": 5})["exit"]["reason"] == "CANCELLED"


def test_signal_and_wait(client: GuestClient) -> None:
    stream = client.open(
        "process.start",
        {
            "process_id": "s",
            "spec": {"shell": "trap 'echo got; exit 7' USR1; echo ready; while :; do sleep 0.05; done"},
            "attach": {"offset": 0},
        },
    )
    stream.records(until=b"ready\n")
    waiting = client.open("process.wait", {"process_id": "s"})
    assert client.call("process.signal", {"process_id": "s", "signal": "USR1", "scope": "leader"}) == {"signaled": 1}
    assert waiting.result()["exit"]["code"] == 7
    for name in ("NONSENSE", "_DFL", "BLOCK"):
        with pytest.raises(GuestError) as caught:
            client.call("process.signal", {"process_id": "s", "signal": name})
        assert caught.value.reason == "ARGUMENT_INVALID"


def test_attach_at_any_offset_and_follow(client: GuestClient) -> None:
    started(client, "a", "printf 0123456789; exec sleep 300")
    client.open("process.attach", {"process_id": "a", "offset": 0}).records(until=b"9")
    for offset in (0, 4, 10):
        done = client.open("process.attach", {"process_id": "a", "offset": offset, "follow": False}).records()
        assert done.stdout == b"0123456789"[offset:]
        assert done.result == {"exit": None, "next_offset": 10}
    with pytest.raises(GuestError) as caught:
        client.call("process.attach", {"process_id": "a", "offset": 11})
    assert caught.value.reason == "OFFSET_INVALID"
    follower = client.open("process.attach", {"process_id": "a", "offset": -1})
    client.call("process.stop", {"process_id": "a", "grace": 1})
    done = follower.records()
    assert done.stdout == b""
    assert done.exit["reason"] == "CANCELLED"


def test_a_reader_without_credit_delays_nobody(client: GuestClient, guest: RunningGuest) -> None:
    stuck = client.open(
        "process.start", {"spec": {"shell": "head -c 30M /dev/zero"}, "attach": {"offset": 0}}, window=0
    )
    assert run(client, "echo free").stdout == b"free\n"
    with guest.connect() as other:
        assert other.call("guest.info")["rss_bytes"] < 60 << 20
    stuck.grant(1 << 30)
    assert len(stuck.records().stdout) == 30 << 20


def test_100_mb_through_a_spilled_journal(client: GuestClient, guest: RunningGuest) -> None:
    script = "import os, random; r = random.Random(7); [os.write(1, r.randbytes(99991)) for _ in range(1000)]"
    params = {"process_id": "r", "spec": {"argv": [str(guest.python), "-c", script]}, "attach": {"offset": 0}}
    done = client.open("process.start", params).records()
    again = client.open("process.attach", {"process_id": "r", "offset": 50_000_001}).records()
    assert len(done.stdout) == 99_991_000
    assert done.stdout[50_000_001:] == again.stdout
    assert client.call("guest.info")["rss_bytes"] < 40 << 20


def test_drop_reports_a_gap(client: GuestClient) -> None:
    started(client, "g", "head -c 3M /dev/zero; printf end", overflow="drop", journal_limit=1 << 20)
    client.call("process.wait", {"process_id": "g"})
    done = client.open("process.attach", {"process_id": "g", "offset": 0}).records()
    assert done.gaps[0][0] == 0
    assert done.gaps[0][1] + len(done.stdout) == (3 << 20) + 3
    assert done.stdout.endswith(b"end")


def test_block_waits_for_a_reader(client: GuestClient) -> None:
    started(client, "b", "head -c 3M /dev/zero; printf end", journal_limit=1 << 20)
    done = client.open("process.attach", {"process_id": "b", "offset": 0}).records()
    assert not done.gaps
    assert len(done.stdout) == (3 << 20) + 3
    assert not done.exit["output_incomplete"]


def test_stdin_by_offset(client: GuestClient, rng: random.Random) -> None:
    content = rng.randbytes(3_000_000)
    params = {"process_id": "in", "spec": {"shell": "sha256sum", "stdin": True}, "attach": {"offset": 0}}
    reader = client.open("process.start", params)
    first = client.open("process.stdin", {"process_id": "in", "offset": 0})
    first.send(content[:200_000])
    first.until("ack")
    first.cancel()
    again = client.open("process.stdin", {"process_id": "in", "offset": 100_000})
    position, credit = 100_000, client.hello["window"]
    while position < len(content) or credit <= 0:
        while credit > 0 and position < len(content):
            part = content[position : position + 200_000]
            again.send(part)
            position, credit = position + len(part), credit - len(part)
        if position < len(content) or credit <= 0:
            kind, payload = again.frame()
            if kind == wire.CREDIT:
                credit += wire.decode_credit(payload)
    client.send(wire.MESSAGE, again.id, {"close": True})
    again.end()
    assert again.result() == {"ack": len(content), "closed": True}
    assert reader.records().stdout.split()[0].decode() == hashlib.sha256(content).hexdigest()


def test_stdin_errors(client: GuestClient) -> None:
    started(client, "closed", "exec sleep 300")
    with pytest.raises(GuestError) as caught:
        client.call("process.stdin", {"process_id": "closed"})
    assert caught.value.reason == "STDIN_CLOSED"
    started(client, "open", "exec sleep 300", stdin=True)
    with pytest.raises(GuestError) as caught:
        client.call("process.stdin", {"process_id": "open", "offset": 5})
    assert (caught.value.reason, caught.value.metadata) == ("OFFSET_INVALID", {"expected": "0"})
    with pytest.raises(GuestError) as caught:
        client.call("process.stdin", {"process_id": "none"})
    assert caught.value.reason == "PROCESS_NOT_FOUND"


def test_a_terminal(client: GuestClient) -> None:
    params = {
        "process_id": "t",
        "spec": {
            "shell": "trap 'stty size' WINCH; stty size; echo ready; while read l; do echo got $l; done; echo end",
            "pty": {"cols": 70, "rows": 20},
        },
        "attach": {"offset": 0},
    }
    reader = client.open("process.start", params)
    assert reader.records(until=b"ready").all().startswith(b"20 70\r\n")
    client.call("process.resize", {"process_id": "t", "cols": 90, "rows": 30})
    writer = client.open("process.stdin", {"process_id": "t", "offset": 0})
    writer.send(b"hello\n")
    seen = client.open("process.attach", {"process_id": "t", "offset": 0}).records(until=b"got hello")
    assert b"30 90" in seen.all()
    client.send(wire.MESSAGE, writer.id, {"close": True})
    done = client.open("process.attach", {"process_id": "t", "offset": 0}).records()
    assert done.all().endswith(b"end\r\n")
    assert done.eofs == ["pty"]
    assert done.exit["code"] == 0


def test_interrupt_character_reaches_the_foreground_job(client: GuestClient) -> None:
    # One process: a dash that meets the signal between its vfork and the exec loses it, on any terminal.
    params = {
        "process_id": "c",
        "spec": {"shell": "echo ready; exec sleep 300", "pty": {"cols": 80, "rows": 24}},
        "attach": {"offset": 0},
    }
    reader = client.open("process.start", params)
    reader.records(until=b"ready")
    client.open("process.stdin", {"process_id": "c", "offset": 0}).send(b"\x03")
    exit = client.call("process.wait", {"process_id": "c"})["exit"]
    assert exit["signal"] == "INT" or exit["code"] == 130


_STATUS = """import os
status = dict(line.split(":", 1) for line in open("/proc/thread-self/status"))
print(*(int(status[name], 16) for name in ("SigPnd", "ShdPnd", "SigBlk")))
print(os.getpid() == os.getsid(0) == os.getpgrp(), not os.isatty(0) or os.tcgetpgrp(0) == os.getpid())"""
_INTERNAL = 0b11 << 31  # signals 32 and 33, which belong to the C library and which nobody can set


@pytest.mark.parametrize("options", [{}, {"pty": {"cols": 80, "rows": 24}}, {"nice": 1}], ids=["pipes", "pty", "nice"])
def test_a_program_starts_as_from_a_login(client: GuestClient, options: dict[str, Any]) -> None:
    """No signal ignored, blocked or pending, leader of its session, and of the foreground group of its terminal."""
    _starts_as_from_a_login(client, options)


def test_a_program_ignores_no_signal_that_the_guest_was_started_ignoring(
    tmp_path: Path, interpreter: Interpreter
) -> None:
    """As what a shell starts in the background is."""
    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGTSTP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        guest = RunningGuest(tmp_path, interpreter.path)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    with guest, guest.connect() as client:
        _starts_as_from_a_login(client, {})


def _starts_as_from_a_login(client: GuestClient, options: dict[str, Any]) -> None:
    ignored = ["sh", "-c", 'grep SigIgn /proc/$$/status; exec python3 -c "$0"', _STATUS]
    start = {"spec": {"argv": ignored, **options}, "attach": {"offset": 0}}
    name, mask, *rest = client.open("process.start", start).records().all().split()
    assert (name, int(mask, 16) & ~_INTERNAL) == (b"SigIgn:", 0)
    assert rest == [*(b"0", b"0", b"0"), *(b"True", b"True")]


def test_disconnect_policy(guest: RunningGuest) -> None:
    with guest.connect() as first:
        params = {
            "process_id": "k",
            "spec": {"shell": "echo $$; exec sleep 300", "disconnect_policy": "kill", "disconnect_grace": 0.1},
            "attach": {"offset": 0},
        }
        pid = int(first.open("process.start", params).records(until=b"\n").stdout)
    wait_gone(pid)
    with guest.connect() as second:
        assert second.call("process.wait", {"process_id": "k"})["exit"]["reason"] == "CANCELLED"


def test_pipe(client: GuestClient, rng: random.Random) -> None:
    content = rng.randbytes(500_000)
    stream = client.open("pipe.spawn", {"process_id": "pipe", "spec": {"shell": "echo note >&2; cat"}}, window=100_000)
    assert stream.message()["started"]["kind"] == "pipe"
    for start in range(0, len(content), 50_000):
        stream.send(content[start : start + 50_000])
    stream.end()
    received = bytearray()
    while True:
        kind, payload = stream.frame()
        if kind == wire.DATA:
            received += payload
            stream.grant(len(payload))
        elif kind == wire.RESULT:
            assert wire.decode_json(payload)["exit"]["code"] == 0
            break
    assert bytes(received) == content
    assert (
        bytes(client.open("process.attach", {"process_id": "pipe", "offset": 0}).records().output["stderr"])
        == b"note\n"
    )


def test_a_cancelled_pipe_ends_its_tree(client: GuestClient) -> None:
    stream = client.open("pipe.spawn", {"process_id": "pc", "spec": {"shell": "sleep 300 & echo $!; wait"}})
    stream.message()
    _, payload = stream.frame()
    stream.cancel()
    assert client.call("process.wait", {"process_id": "pc"})["exit"]["reason"] == "CANCELLED"
    wait_gone(int(payload))


def test_list_pages(client: GuestClient) -> None:
    ids = [f"l{index}" for index in range(7)]
    for process_id in ids:
        started(client, process_id, "true")
    found: list[str] = []
    token = ""
    while True:
        page = client.call("process.list", {"page_size": 3, "page_token": token})
        found += [process["process_id"] for process in page["processes"]]
        token = page["next_page_token"]
        if not token:
            break
    assert found == ids


def test_500_processes_at_once(client: GuestClient, guest: RunningGuest) -> None:
    streams = [
        client.open(
            "process.start",
            {"process_id": f"m{n}", "spec": {"shell": f"read x; echo {n} $x", "stdin": True}, "attach": {"offset": 0}},
        )
        for n in range(500)
    ]
    for stream in streams:
        stream.message()
    for n in range(500):
        client.open("process.stdin", {"process_id": f"m{n}", "offset": 0}).send(b"go\n")
    for n, stream in enumerate(streams):
        assert stream.records().stdout == b"%d go\n" % n
    assert client.call("guest.info")["rss_bytes"] < 60 << 20


def test_an_idle_guest_does_nothing(client: GuestClient, guest: RunningGuest) -> None:
    started(client, "idle", "exec sleep 300")
    client.call("guest.info")

    def switches() -> int:
        status = Path(f"/proc/{guest.pid}/status").read_text()
        return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    before = switches()
    # Nothing can be awaited here: that nothing happens is what is to be seen. One switch is its going to sleep.
    time.sleep(0.5)
    assert switches() - before <= 1
    assert client.call("guest.info")["rss_bytes"] < 20 << 20
