"""The server killed and started again in the middle of things: what resumes does, what cannot fails cleanly, and
nothing runs twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal

from tests.clients.data import sha256_of
from tests.clients.driver import Driver, Request
from tests.clients.stage import Proxy, Server

GIB: dict[str, Any] = {"pattern": "restart", "size": 1 << 30}
# Writes GIB where it is to be read: what is sent to it is another matter.
WRITER = """
import hashlib, sys
block = b"".join(hashlib.sha256(f"{sys.argv[1]}:{k}".encode()).digest() for k in range(32768))
with open(sys.argv[2], "wb") as file:
    for turn in range(1024):
        file.write(block[turn:]); file.write(block[:turn])
"""
UPLOAD = {"pattern": "upload", "size": 400 << 20}
# Appends a line when it begins and one when it ends, and counts in between until it may stop.
PROGRAM = """
echo $$ >> began
i=0
while [ ! -e stop ]; do echo $i; i=$((i + 1)); sleep 0.005; done
echo $$ >> ended
exit 5
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "state")
    made.process.start()
    yield made
    if made.process.process is None:
        made.process.start()
    made.process.stop()


@pytest.fixture
def proxy(portal: BlockingPortal, server: Server) -> Iterator[Proxy]:
    made = Proxy(portal, "127.0.0.1", server.process.port)
    yield made
    made.close()


def restart_when(server: Server, reached: Callable[[], bool]) -> threading.Thread:
    """Kill and start the server as soon as something is so."""

    def work() -> None:
        while not reached():
            time.sleep(0.005)
        server.process.restart()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_everything_at_once(driver: Driver, server: Server, proxy: Proxy, tmp_path: Path) -> None:
    """A 1 GiB read, an upload, an iterator's write, a process with input, a run, a wait and a tool call."""
    driver.do("connect", address=proxy.address)
    driver.do("initialize", backend="local", id="restarted")
    made = driver.do("run", within=120, command=["python3", "-c", WRITER, GIB["pattern"], "gib"])
    assert made["exit_code"] == 0, made
    driver.do("file_write", path="once", data="old")
    driver.do("exec", command=["sh", "-c", PROGRAM], process_id="p")
    driver.ask("exec", {"as": "cat", "command": "cat", "stdin": True, "process_id": "cat"})
    started = {
        "read": driver.start("file_read", {"path": "gib"}),
        "upload": driver.start("file_write", {"path": "upload", "data": UPLOAD}),
        "once": driver.start("file_write", {"path": "once", "data": GIB, "as_stream": True}),
        "output": driver.start("read", {}),
        "run": driver.start("run", {"command": "echo r >> run; while [ ! -e stop ]; do sleep 0.02; done; echo ran"}),
        "wait": driver.start("wait", {}),
        "tool": driver.start("call_tool", {"name": "Bash", "input": {"command": "echo t >> tool; sleep 600"}}),
    }
    before = proxy.forwarded
    restarting = restart_when(server, lambda: proxy.forwarded - before > 300 << 20)
    driver.ask("write", {"process": "cat", "data": "through"})
    restarting.join(60)
    assert not restarting.is_alive(), "300 MiB did not pass"
    assert driver.ask("read", {"process": "cat", "until": "through"}, 60)["ok"]["offset"] == 7
    _check_files(started, driver)
    driver.do("file_write", path="stop", data="")
    _check_processes(started, driver)
    driver.do("close_client")
    server.wait_until_idle()
    live = driver.do("live")
    assert (live.get("calls", 0), live["tasks"]) == (0, 0)


def _check_files(started: dict[str, Request], driver: Driver) -> None:
    assert started["read"].answer(180)["ok"]["sha256"] == sha256_of(GIB)
    assert started["upload"].answer(180)["ok"]["size"] == UPLOAD["size"]
    assert driver.do("stat", path="upload", sha256=True)["sha256"] == sha256_of(UPLOAD)
    once = started["once"].answer(180)
    assert once["error"]["kind"] == "Unavailable", "an iterator gives its bytes once"
    assert driver.do("file_read", path="once")["size"] == 3, "the old file was replaced"


def _check_processes(started: dict[str, Request], driver: Driver) -> None:
    output = started["output"].answer(60)["ok"]
    assert (output["gaps"], output["end"]) == ([], True)
    assert len(output["order"]) == 1, "one stream, without a hole"
    assert started["wait"].answer(60)["ok"]["exit_code"] == 5
    run = started["run"].answer(60)["ok"]
    assert (run["exit_code"], run["stdout"]["size"]) == (0, 4)
    tool = started["tool"].answer(60)
    assert tool["error"]["kind"] == "Unavailable", "a tool is not called again"
    counts = driver.do("run", command="cat began | wc -l; cat ended | wc -l; cat run | wc -l; cat tool | wc -l")
    assert counts["stdout"]["size"] == 8, "each ran once"
    lines = driver.do("run", command="for f in began ended run tool; do wc -l < $f; done | sort -u | tr -d ' '")
    assert lines["stdout"]["sha256"] == sha256_of("1\n")


def test_restarted_again_and_again(driver: Driver, server: Server, proxy: Proxy) -> None:
    """Three restarts while a process counts: the same bytes as one reader sees who comes afterwards."""
    driver.do("connect", address=proxy.address)
    driver.do("initialize", backend="local", id="again")
    driver.do("exec", command=["sh", "-c", PROGRAM], process_id="p")
    reading = driver.start("read", {})
    for _ in range(3):
        server.process.restart()
        assert driver.do("run", command="true")["exit_code"] == 0
    driver.do("file_write", path="stop", data="")
    output = reading.answer(60)["ok"]
    assert (output["gaps"], output["end"]) == ([], True)
    driver.ask("attach", {"as": "later", "process_id": "p"})
    later = driver.ask("read", {"process": "later"})["ok"]
    assert later["stdout"] == output["stdout"]
    assert driver.do("run", command="wc -l < began | tr -d ' '")["stdout"]["sha256"] == sha256_of("1\n")
    driver.ask("detach", {"process": "later"})
    driver.do("leave")
    driver.do("close_client")
