"""What is kept: a process for its time or until its room is needed, and of a full journal what may be read again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.guest_client import GuestClient, GuestError, RunningGuest
from tests.unit.guest.running import ChangedGuest
from workspaced_guest import wire

_ON_THE_WAY = 12 << 20
_LINE = 16


class SmallGuest(ChangedGuest):
    """One that keeps four processes."""

    change = "from workspaced_guest import processes; processes._MAX_PROCESSES = 4"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallGuest]:
    with SmallGuest(tmp_path) as guest:
        yield guest


def start(client: GuestClient, process_id: str, shell: str) -> None:
    client.call("process.start", {"process_id": process_id, "spec": {"shell": shell, "stdin": True}})


def ended(client: GuestClient, process_id: str) -> None:
    start(client, process_id, "echo x")
    client.call("process.wait", {"process_id": process_id})


def kept(client: GuestClient) -> list[str]:
    return sorted(process["process_id"] for process in client.call("process.list")["processes"])


def test_the_first_that_exited_makes_room(small: SmallGuest) -> None:
    with small.connect() as client:
        start(client, "long", "read line")
        for number in range(20):
            ended(client, f"p{number}")
        assert kept(client) == ["long", "p17", "p18", "p19"]
        assert sorted(path.stem for path in (small.state / "processes").iterdir()) == kept(client)
        # By the time of the exit, not of the start.
        client.open("process.stdin", {"process_id": "long", "offset": 0}).send(b"\n")
        client.call("process.wait", {"process_id": "long"})
        ended(client, "p20")
        ended(client, "p21")
        assert kept(client) == ["long", "p19", "p20", "p21"]


def test_what_runs_or_is_read_makes_no_room(small: SmallGuest) -> None:
    with small.connect() as client:
        start(client, "runs", "read line")
        start(client, "child", "exec 3>&1; { sleep 300 <&3; } & exit 0")
        client.call("process.wait", {"process_id": "child"})
        spec = {"shell": "head -c 100000 /dev/zero"}
        reader = client.open("process.start", {"process_id": "read", "spec": spec, "attach": {"offset": 0}}, 1000)
        client.call("process.wait", {"process_id": "read"})
        for number in range(4):
            ended(client, f"p{number}")
        assert kept(client) == ["child", "p3", "read", "runs"]
        start(client, "more", "read line")
        with pytest.raises(GuestError) as caught:
            start(client, "too-many", "true")
        assert (caught.value.code, caught.value.reason) == ("RESOURCE_EXHAUSTED", "LIMIT_REACHED")
        reader.grant(1 << 20)
        assert len(reader.records().stdout) == 100_000
        ended(client, "again")
        assert kept(client) == ["again", "child", "more", "runs"]
        client.call("process.stop_all", {"grace": 0})


def test_after_a_restart_it_is_known_who_exited_first(small: SmallGuest) -> None:
    with small.connect() as client:
        for name in ("c", "a", "b"):
            ended(client, name)
    small.kill()
    small.start()
    with small.connect() as client:
        ended(client, "d")
        ended(client, "e")
        assert kept(client) == ["a", "b", "d", "e"]


def lines(start: int, end: int) -> bytes:
    """The bytes from `start` to `end` of numbered lines."""
    first = start // _LINE
    text = b"".join(b"%015d\n" % number for number in range(first, end // _LINE + 1))
    return text[start - first * _LINE : end - first * _LINE]


def test_a_full_journal_keeps_what_a_lost_reader_may_not_have_got(guest: RunningGuest, client: GuestClient) -> None:
    count, limit = 48 << 20, 18 << 20
    script = f"""import os
for block in range({count} // 65536):
    os.write(1, b"".join(b"%015d\\n" % number for number in range(block * 4096, (block + 1) * 4096)))"""
    spec = {"argv": ["python3", "-c", script], "overflow": "block", "journal_limit": limit}
    with guest.connect() as lost:
        start = {"process_id": "p", "spec": spec, "attach": {"offset": 0}}
        reader = lost.open("process.start", start, 1)
        end, payload = 0, reader.frame()[1]
        while end < 22 << 20:
            reader.grant(len(payload))  # the next frame may be sent, and no other
            payload = reader.frame()[1]
            end = wire.RECORD.unpack_from(payload)[1] + len(payload) - wire.RECORD.size
            assert filled(client, limit) <= max(0, end - _ON_THE_WAY)
    # The guest may believe that all this was received; and who comes back keeps what it has not read.
    for begin in (end - _ON_THE_WAY, end - _ON_THE_WAY + 1):
        with guest.connect() as again:
            short = again.open("process.attach", {"process_id": "p", "offset": begin}, 1)
            assert short.message()["started"]["process_id"] == "p"
            short.grant(wire.MAX_DATA)
            kind, payload = short.frame()
            assert (kind, wire.RECORD.unpack_from(payload)[1]) == (wire.DATA, begin)
            content = payload[wire.RECORD.size :]
            assert content == lines(begin, begin + len(content))
    begin = end - _ON_THE_WAY
    rest = client.open("process.attach", {"process_id": "p", "offset": begin}).records()
    assert not rest.gaps
    assert rest.stdout == lines(begin, count)
    assert rest.exit["code"] == 0


def filled(client: GuestClient, limit: int) -> int:
    """The first offset of a journal that has hardly any room left."""
    while True:
        process = client.call("process.get", {"process_id": "p"})["process"]
        if process["next_offset"] - process["first_offset"] > limit - (256 << 10):
            return int(process["first_offset"])
