"""How long a process is kept: for its time, or until its room is needed and nobody reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.guest_client import GuestClient, GuestError
from tests.unit.guest.running import ChangedGuest


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
