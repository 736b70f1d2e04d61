"""No answer is larger than a frame, whatever there is to tell; and nothing is left out of a list."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.guest_client import GuestClient, GuestError, RunningGuest
from workspaced_guest import wire

_ESCAPED = "\x01"  # six bytes of JSON
_PAIR = "\U0001f600"  # twelve


def _all(client: GuestClient, operation: str, key: str, params: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    found: list[dict[str, Any]] = []
    token, pages = "", 0
    while True:
        answer = client.call(operation, {**params, "page_token": token})
        assert len(wire.encode_json(answer)) <= wire.MAX_PAYLOAD
        found += answer[key]
        pages += 1
        token = answer["next_page_token"]
        if not token:
            return found, pages


def _start(client: GuestClient, process_id: str, **spec: object) -> dict[str, Any]:
    return client.call("process.start", {"process_id": process_id, "spec": spec})


def test_a_command_of_128_kib_is_told_whole(client: GuestClient) -> None:
    # The kernel's limit of one argument is 128 KiB with its NUL.
    argument = "a" * (128 * 1024 - 1)
    ids = [f"large{number}" for number in range(5)]
    for process_id in ids:
        _start(client, process_id, argv=["true", argument])
        client.call("process.wait", {"process_id": process_id})
    assert client.call("process.get", {"process_id": ids[0]})["process"]["argv"] == ["true", argument]
    found, pages = _all(client, "process.list", "processes", {"page_size": 1000})
    assert [process["process_id"] for process in found] == ids
    assert pages == 5


def test_a_large_environment_is_no_part_of_the_answers(client: GuestClient) -> None:
    env = {f"V{number}": "x" * 60_000 for number in range(3)}
    _start(client, "env", argv=["sh", "-c", "exit ${#V2}"], env=env)
    assert client.call("process.wait", {"process_id": "env"})["exit"]["code"] == 60_000 % 256


@pytest.mark.parametrize(
    "spec",
    [{"argv": ["true", "x", _ESCAPED * 43_400]}, {"shell": "# " + _PAIR * 21_700}, {"argv": ["true"] + ["x"] * 65_300}],
    ids=["escapes", "pairs", "many"],
)
def test_a_spec_that_no_answer_could_hold_is_refused(client: GuestClient, spec: dict[str, Any]) -> None:
    with pytest.raises(GuestError) as caught:
        client.call("process.start", {"process_id": "huge", "spec": spec, "labels": {"l": "l" * 300}})
    assert (caught.value.code, caught.value.reason) == ("INVALID_ARGUMENT", "ARGUMENT_INVALID")
    assert caught.value.metadata["limit"] == str(wire.MAX_DESCRIPTION)
    assert client.call("process.list")["processes"] == []
    assert _start(client, "huge", argv=["true"])["existing"] is False


def test_errors_are_bounded_too(client: GuestClient) -> None:
    with pytest.raises(GuestError) as caught:
        _start(client, "e", argv=["/" + _ESCAPED * 30_000])
    assert caught.value.reason == "PROCESS_START_FAILED"
    with pytest.raises(GuestError):
        client.call("file.stat", {"path": "\udcff" * 40_000})
    assert client.call("guest.info")["channels"] == 1


def test_400_processes(client: GuestClient) -> None:
    for number in range(400):
        _start(client, f"n{number}", argv=["true", "y" * 700])
    found, pages = _all(client, "process.list", "processes", {"page_size": 1000})
    assert [process["process_id"] for process in found] == [f"n{number}" for number in range(400)]
    assert pages > 1


def test_names_that_grow_as_json(client: GuestClient, guest: RunningGuest) -> None:
    names = [f"{number:03}" + _ESCAPED * 250 for number in range(300)]
    names += [f"p{number:03}" + _PAIR * 60 for number in range(300)]
    for name in names:
        (guest.workdir / name).touch()
    found, pages = _all(client, "file.list", "entries", {"path": ".", "page_size": 1000})
    assert [entry["name"] for entry in found] == sorted(names)
    assert pages > 1


def test_600_ports(client: GuestClient, guest: RunningGuest) -> None:
    with ExitStack() as stack:
        ports = set()
        for number in range(600):
            server = stack.enter_context(socket.create_server((f"127.0.{number // 200}.1", 0), backlog=1))
            ports.add((server.getsockname()[1], server.getsockname()[0]))
        found, pages = _all(client, "port.list", "ports", {})
    assert pages > 1
    listed = [(entry["port"], entry["address"]) for entry in found]
    assert listed == sorted(set(listed))
    assert ports <= set(listed)
    with pytest.raises(GuestError) as caught:
        client.call("port.list", {"page_token": "x y"})
    assert caught.value.metadata["field"] == "page_token"


def test_a_process_of_another_guest_is_not_claimed(client: GuestClient, guest: RunningGuest) -> None:
    program = (
        "import os, socket, sys\n"
        "server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen(1)\n"
        "print(server.getsockname()[1], flush=True); sys.stdin.read()"
    )
    python = str(guest.python)
    mine = f'{python} -c "$P"'
    theirs = f'WORKSPACED_GUEST_KEY={"0" * 32} {python} -c "$P"'
    for process_id, command, expected in (("mine", mine, "mine"), ("theirs", theirs, None)):
        spec = {"shell": command, "env": {"P": program}, "stdin": True}
        stream = client.open("process.start", {"process_id": process_id, "spec": spec, "attach": {"offset": 0}})
        port = int(stream.records(until=b"\n").stdout)
        (entry,) = [entry for entry in client.call("port.list")["ports"] if entry["port"] == port]
        assert entry.get("process_id") == expected
        assert entry["pid"] > 0
        client.call("process.signal", {"process_id": process_id, "signal": "KILL"})
