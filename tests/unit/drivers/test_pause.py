"""Short waits: as long as said at least, again and again, and nothing left behind."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time

import pytest

from tests.support.server import open_descriptors
from workspaced_server.drivers import pause
from workspaced_server.drivers.pause import Pause


@pytest.fixture(params=["timer", "no timer"])
def timer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "no timer":
        monkeypatch.setattr(pause, "_make_timer", lambda: (pause._no_timer, -1))
    return str(request.param)


async def test_it_waits_as_long_as_said_and_again(timer: str) -> None:
    waiting = Pause(0.0005)
    began = time.perf_counter()
    for _ in range(20):
        await waiting.wait()
    assert time.perf_counter() - began >= 20 * 0.0005
    waiting.close()


async def test_others_go_on_meanwhile(timer: str) -> None:
    waiting = Pause(0.05)
    turns = 0
    task = asyncio.create_task(waiting.wait())
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 10
    waiting.close()


async def test_a_cancelled_wait_can_be_followed_by_another(timer: str) -> None:
    waiting = Pause(0.01)
    for _ in range(3):
        task = asyncio.create_task(waiting.wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    began = time.perf_counter()
    await waiting.wait()
    assert time.perf_counter() - began >= 0.01
    waiting.close()


async def test_closing_ends_the_wait_and_gives_the_timer_back() -> None:
    before = open_descriptors(os.getpid())
    waiting = Pause(3600)
    assert open_descriptors(os.getpid()) == before + 1
    task = asyncio.create_task(waiting.wait())
    await asyncio.sleep(0)
    waiting.close()
    await asyncio.wait_for(task, 5)
    waiting.close()
    assert open_descriptors(os.getpid()) == before


async def test_without_descriptors_it_waits_by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    class Exhausted:
        @staticmethod
        def timerfd_create(clock: int, flags: int) -> int:
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Exhausted)
    monkeypatch.setattr(Exhausted, "timerfd_settime", None, raising=False)
    waiting = Pause(0.001)
    await waiting.wait()
    waiting.close()
