"""The state directory: records that are whole or the former ones, and a guest that starts on whatever lies there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.guest_client import TOKEN, GuestError, RunningGuest, wait_gone
from tests.support.interpreters import Interpreter
from workspaced_guest.state import State


def records(state: State) -> dict[str, Any]:
    return dict(state.load())


def test_the_last_one_counts(tmp_path: Path) -> None:
    state = State(str(tmp_path / "processes"))
    for number in range(3):
        state.record("p").write({"n": number})
    state.record("q").write({"n": 7})
    assert records(state) == {"p": {"n": 2}, "q": {"n": 7}}
    state.record("p").remove()
    state.record("p").remove()
    assert records(state) == {"q": {"n": 7}}


def test_a_record_of_an_older_guest_is_read_and_added_to(tmp_path: Path) -> None:
    state = State(str(tmp_path / "processes"))
    (tmp_path / "processes" / "p.json").write_bytes(b'{"n":1}' + b" " * 100)
    assert records(state) == {"p": {"n": 1}}
    state.record("p").write({"n": 2})
    assert records(state) == {"p": {"n": 2}}


def test_on_a_full_disk_the_former_one_stays(small_disk: Path) -> None:
    state = State(str(small_disk / "processes"))
    record = state.record("p")
    record.write({"n": 1})
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(b"x" * 4096)
            except OSError:
                break
    size = Path(record.path).stat().st_size
    with pytest.raises(OSError, match="No space"):
        record.write({"n": 2, "large": "x" * 20_000})
    assert Path(record.path).stat().st_size == size
    assert records(state) == {"p": {"n": 1}}
    with pytest.raises(OSError, match="No space"):
        state.record("q").write({"large": "x" * 20_000})
    filler.unlink()
    record.write({"n": 3})
    assert records(state)["p"] == {"n": 3}


def test_a_guest_that_is_killed_while_it_writes_leaves_the_former_one(tmp_path: Path) -> None:
    state = State(str(tmp_path / "processes"))
    record = state.record("p")
    record.write({"n": 1})
    before = Path(record.path).read_bytes()
    record.write({"n": 2, "text": "é\n{}"})
    after = Path(record.path).read_bytes()
    for length in range(len(before), len(after)):
        Path(record.path).write_bytes(after[:length])
        assert records(state) == {"p": {"n": 1}}
        record.write({"n": 3})
        assert records(state) == {"p": {"n": 3}}


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _directory(path: Path) -> None:
    (path / "inside").mkdir(parents=True)


def _link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _socket(path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    directory = os.open(path.parent, os.O_RDONLY)
    listening.bind(f"/proc/self/fd/{directory}/{path.name}")
    os.close(directory)
    listening.close()


def _bytes(content: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(content)

    return make


GARBAGE: dict[str, Callable[[Path], None]] = {
    "empty": _bytes(b""),
    "torn": _bytes(b'{"instance":"x","spec":{"shell":"sl'),
    "binary": _bytes(bytes(range(256)) * 100),
    "list": _bytes(b"[]"),
    "no-record": _bytes(b"{}"),
    "deep": _bytes(b"[" * 1_000_000),
    "digits": _bytes(b'{"process":' + b"9" * 4_000_000 + b"}"),
    "lines": _bytes(b"\n" * 4_000_000),
    "fifo": _fifo,
    "directory": _directory,
    "link": _link,
    "huge": _huge,
    "socket": _socket,
}
PLACES = ("processes/g.json", "processes/other", "processes/.json", "journals/g", "key", "key.new", "guest-1.pyz")


@pytest.mark.parametrize("place", PLACES)
def test_a_guest_starts_on_whatever_lies_in_its_state(tmp_path: Path, place: str) -> None:
    for name, make in GARBAGE.items():
        directory = tmp_path / name
        guest = RunningGuest(directory)
        (guest.state / place).parent.mkdir(mode=0o700, parents=True)
        make(guest.state / place)
        with guest, guest.connect() as client:
            assert client.call("process.list")["processes"] == []
            start = {"process_id": "fine", "spec": {"shell": "head -c 3000000 /dev/zero"}, "attach": {"offset": 0}}
            assert len(client.open("process.start", start).records().stdout) == 3_000_000
            again = {"process_id": "g", "spec": {"shell": "true"}}
            if (name, place) == ("directory", "processes/g.json"):
                with pytest.raises(GuestError) as caught:
                    client.call("process.start", again)
                assert caught.value.reason == "PROCESS_START_FAILED"
            else:
                client.call("process.start", again)
                assert client.call("process.wait", {"process_id": "g"})["exit"]["code"] == 0


@pytest.mark.parametrize("place", ["processes", "journals"])
def test_a_guest_starts_on_whatever_lies_in_the_place_of_its_directories(tmp_path: Path, place: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_text("kept")

    def outside(path: Path) -> None:
        path.symlink_to(tmp_path / "outside")

    for name, make in {**GARBAGE, "outside": outside}.items():
        guest = RunningGuest(tmp_path / name)
        guest.state.mkdir(mode=0o700, parents=True)
        make(guest.state / place)
        with guest, guest.connect() as client:
            client.call("process.start", {"process_id": "p", "spec": {"shell": "true"}})
            client.call("process.wait", {"process_id": "p"})
    assert (tmp_path / "outside" / "kept").read_text() == "kept"


def test_a_daemon_starts_on_whatever_lies_in_the_place_of_its_log(tmp_path: Path) -> None:
    for name, make in GARBAGE.items():
        guest = RunningGuest(tmp_path / name)
        guest.state.mkdir(mode=0o700, parents=True)
        (guest.state / "token").write_text(TOKEN)
        make(guest.state / "guest.log")
        subprocess.run([*guest.program, "serve", *guest.arguments()], check=True, timeout=20)
        with guest.connect() as client:
            client.call("guest.shutdown", {"grace": 0})
            wait_gone(client.hello["pid"])


def _changes(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The record with each of its values replaced by one of another kind, or left out."""
    for path in _paths(record):
        values: list[Any] = [None, -1, 1e300, "x" * 70_000, [1], {"a": {}}, ...]
        for value in values:
            changed = json.loads(json.dumps(record))
            inner = changed
            for key in path[:-1]:
                inner = inner[key]
            if value is ...:
                del inner[path[-1]]
            else:
                inner[path[-1]] = value
            yield changed


def _paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, (*path, key))


def test_of_a_changed_record_the_process_is_told_or_ignored(tmp_path: Path, interpreter: Interpreter) -> None:
    guest = RunningGuest(tmp_path, interpreter.path)
    with guest:
        with guest.connect() as client:
            spec = {"shell": "exit 3", "env": {"A": "b"}, "cwd": "."}
            client.call("process.start", {"process_id": "p", "spec": spec, "labels": {"a": "b"}})
            client.call("process.wait", {"process_id": "p"})
        guest.kill()
        ((_, record),) = State(str(guest.state / "processes")).load()
        for number, changed in enumerate(_changes(record)):
            (guest.state / "processes" / f"g{number}.json").write_text(json.dumps(changed))
        (guest.state / "processes" / "nan.json").write_text(json.dumps({**record, "start_ticks": float("nan")}))
        guest.start()
        with guest.connect() as client:
            token, found = "", []
            while True:
                answer = client.call("process.list", {"page_size": 1000, "page_token": token})
                found += answer["processes"]
                token = answer["next_page_token"]
                if not token:
                    break
            assert number > 100
            assert 2 <= len(found) < number
            for process in found:
                assert process["exit"]["reason"]
                assert isinstance(process["start_time"], float)
                done = client.open("process.attach", {"process_id": process["process_id"], "offset": 0}).records()
                assert done.exit == process["exit"]
            client.call("process.start", {"process_id": "after", "spec": {"shell": "true"}})
            client.call("process.wait", {"process_id": "after"})
        assert "is no record of a process" in (tmp_path / "guest.log").read_text()


def test_variables_are_not_recorded(tmp_path: Path, interpreter: Interpreter) -> None:
    guest = RunningGuest(tmp_path, interpreter.path)
    with guest:
        with guest.connect() as client:
            spec = {"argv": ["sh", "-c", "echo $TOKEN; cat"], "env": {"TOKEN": "hunter2"}}
            pipe = client.open("pipe.spawn", {"process_id": "pipe", "spec": spec})
            pipe.message()
            client.call("process.start", {"process_id": "p", "spec": {"shell": "exit 3", "env": {"TOKEN": "hunter2"}}})
            client.call("process.wait", {"process_id": "p"})
            found = dict(State(str(guest.state / "processes")).load())
        assert set(found) == {"pipe", "p"}
        assert "hunter2" not in json.dumps(found)
        guest.kill()
        guest.start()
        with guest.connect() as client:
            assert client.call("process.get", {"process_id": "p"})["process"]["exit"]["code"] == 3
            assert client.call("process.get", {"process_id": "pipe"})["process"]["exit"]["reason"] == "LOST"
