"""Each offload operation once, on a real guest under each interpreter; and a guest that is killed meanwhile."""

from __future__ import annotations

import hashlib
import os
import random
import threading

from tests.support.guest_client import GuestClient, RunningGuest
from tests.support.parcels import parcel, pieces

LINES = b'{"n":1}\n{"n":2}\n'


def send(client: GuestClient, operation: str, sent: bytes, **params: object) -> dict[str, object]:
    stream = client.open(operation, dict(params))
    for piece in pieces(sent, 200_000):
        stream.send(piece)
    stream.end()
    return stream.result()


def test_every_operation(guest: RunningGuest, client: GuestClient) -> None:
    blob = os.urandom(500_000)  # with the rest within the credit that a stream starts with
    name = hashlib.sha256(blob).hexdigest() + ".png"
    first = send(client, "offload.append", parcel(LINES, [(name, blob)]), session="sitzung-é", request_id="r")
    assert (first["start"], first["end"], first["existing"]) == (0, len(LINES), False)
    again = send(client, "offload.append", parcel(LINES, [(name, blob)]), session="sitzung-é", request_id="r")
    assert again == {**first, "existing": True}
    stored = send(client, "offload.tool_result", parcel(b"text"), session="sitzung-é", id="call")
    assert stored["name"] == "tool_result-call.txt"
    assert send(client, "offload.data", blob, ext=".png")["existing"]
    entries = client.call("offload.list", {})["entries"]
    assert [entry["kind"] for entry in entries] == ["data", "context", "tool_result"]
    reading = client.open("offload.read", {"session": "sitzung-é", "name": "context.jsonl", "skip": 1})
    assert reading.message()["entry"]["size"] == len(LINES)
    assert reading.frame()[1] == LINES[8:]
    assert client.call("offload.purge", {"session": "sitzung-é"}) == {"removed": 2}
    assert (guest.workdir / "data" / name).read_bytes() == blob


def test_a_guest_that_is_killed_while_it_appends(guest: RunningGuest) -> None:
    """Whatever was answered is there once; what was not is there once or not at all; each call's lines are together."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    answered: dict[str, bytes] = {}
    sent: list[tuple[str, bytes]] = []
    for round_ in range(4):
        timer = threading.Timer(dice.uniform(0.005, 0.06), guest.kill)
        with guest.connect() as client:
            timer.start()
            try:
                while True:
                    request = f"{round_}-{len(sent)}"
                    text = b"".join(b'{"r":"%s","n":%d}\n' % (request.encode(), n) for n in range(dice.randint(1, 200)))
                    sent.append((request, text))
                    send(client, "offload.append", parcel(text), session="s", request_id=request)
                    answered[request] = text
            except (OSError, EOFError):
                timer.join()
        guest.start()
        with guest.connect() as client:
            request, text = sent[-1]
            send(client, "offload.append", parcel(text), session="s", request_id=request)
            answered[request] = text
    content = (guest.workdir / "sessions/s/context.jsonl").read_bytes()
    assert content == b"".join(answered[request] for request, _ in sent)
