"""Many processes on one channel: every byte is right, and small calls are not starved."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.driver import Driver
from tests.clients.languages import Language
from tests.clients.stage import Server
from tests.support.server import rss_bytes

COUNT = 200
LINES = 2000
SMALL_CALL_SECONDS = 10.0
"""The slowest of the small calls, on two cores that 200 processes keep busy."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "state")
    made.process.start()
    yield made
    made.process.stop()


def expected(index: int) -> str:
    text = "".join(f"{index} {number}\n" for number in range(1, LINES + 1))
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.timeout(300)
def test_two_hundred_streams_beside_small_calls(driver: Driver, server: Server) -> None:
    driver.do("connect", address=server.process.address)
    driver.do("initialize", backend="local", id="load")
    command = f'seq -f "$INDEX %g" {LINES}'
    many = driver.start("spawn_many", {"count": COUNT, "command": command})
    small = driver.start("bench_run", {"command": "true", "count": 25})
    files = driver.start("file_write", {"path": "f", "data": {"pattern": "load", "size": 4 << 20}})
    latency = small.answer(240)["ok"]
    assert latency["max"] < SMALL_CALL_SECONDS, latency
    assert files.answer(120)["ok"]["size"] == 4 << 20
    result = many.answer(240)["ok"]
    assert [str(code) for code in result["exit_codes"]] == ["0"]
    wrong = [index for index, output in enumerate(result["outputs"]) if output != expected(index)]
    assert (len(result["outputs"]), wrong) == (COUNT, [])
    driver.do("ws_delete")
    driver.do("close_client")
    server.wait_until_idle()
    live = driver.do("live")
    assert (live.get("calls", 0), live["tasks"]) == (0, 0), live


def test_two_hundred_idle_attachments(driver: Driver, server: Server, language: Language) -> None:
    """They cost memory, which is bounded, and nothing else: small calls beside them are quick, and all end."""
    driver.do("connect", address=server.process.address)
    driver.do("initialize", backend="local", id="idle")
    driver.do("spawn_many", within=120, count=COUNT, command="echo up; sleep 600", hold=True)
    assert server.open_calls() >= COUNT
    assert driver.do("bench_run", within=120, command="true", count=10)["p50"] < SMALL_CALL_SECONDS / 10
    bound = {"go": 120, "python": 240, "typescript": 300}[language.name] << 20
    assert max(driver.do("rss")["bytes"], rss_bytes(driver.pid)) < bound
    driver.do("release_many", within=120)
    server.wait_until_idle()
    # A kill that did not come through in time is the guest's, ten seconds after the attachment has gone.
    deadline = time.monotonic() + 30
    while running := driver.do("processes", state="running")["ids"]:
        assert time.monotonic() < deadline, f"{len(running)} processes still run"
        time.sleep(0.1)
    driver.do("ws_delete")
    driver.do("close_client")
    live = driver.do("live")
    assert (live.get("calls", 0), live["tasks"]) == (0, 0), live
