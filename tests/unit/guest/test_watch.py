"""Watching, on a real guest: by inotify, and by polling."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.real_guest import RealGuest, real_guest
from workspaced_guest import snapshot
from workspaced_server.errors import WorkspacedError
from workspaced_server.guest.channel import GuestChannel
from workspaced_server.guest.stream import GuestStream


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[RealGuest]:
    async with real_guest(tmp_path) as running:
        yield running


@pytest.fixture
async def channel(guest: RealGuest) -> AsyncIterator[GuestChannel]:
    channel = await guest.connect()
    yield channel
    await channel.aclose()


@asynccontextmanager
async def watching(channel: GuestChannel, path: str, **params: Any) -> AsyncIterator[GuestStream]:
    async with channel.open("file.watch", {"path": path, **params}) as stream:
        assert await stream.receive() == {"ready": True, "mode": "inotify"}
        yield stream


def limit(name: str) -> int:
    """One of the system's limits of inotify."""
    return int(Path("/proc/sys/fs/inotify", name).read_text())


async def until(stream: GuestStream, *wanted: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The events (kind, path and to) until all that are wanted have come."""
    seen: list[tuple[str, ...]] = []
    async with asyncio.timeout(20):
        while not set(wanted) <= set(seen):
            item = await stream.receive()
            assert isinstance(item, dict), f"ended before {set(wanted) - set(seen)} of {seen}"
            seen += [
                tuple(event[key] for key in ("kind", "path", "to") if key in event) for event in item.get("events", [])
            ]
    return seen


async def test_kinds_of_changes(guest: RealGuest, channel: GuestChannel) -> None:
    work = guest.workdir
    (work / "sub").mkdir()
    async with watching(channel, ".", recursive=True) as stream:
        (work / "sub" / "a").write_text("x")
        await until(stream, ("created", "sub/a"))
        (work / "sub" / "a").write_text("y")
        await until(stream, ("modified", "sub/a"))
        (work / "sub" / "a").rename(work / "b")
        assert ("deleted", "sub/a") not in await until(stream, ("moved", "sub/a", "b"))
        (work / "b").chmod(0o600)
        await until(stream, ("modified", "b"))
        (work / "b").unlink()
        await until(stream, ("deleted", "b"))
        (work / "new\n" / "deep").mkdir(parents=True)
        await until(stream, ("created", "new\n"), ("created", "new\n/deep"))
        (work / "new\n" / "deep" / "f\udcff").write_text("")
        await until(stream, ("created", "new\n/deep/f\udcff"))


async def test_directories_that_move_in_and_out(guest: RealGuest, channel: GuestChannel, tmp_path: Path) -> None:
    work = guest.workdir
    (work / "a" / "b").mkdir(parents=True)
    async with watching(channel, ".", recursive=True) as stream:
        (work / "a").rename(work / "c")
        await until(stream, ("moved", "a", "c"))
        (work / "c" / "b" / "f").write_text("")
        await until(stream, ("created", "c/b/f"))
        (work / "c").rename(tmp_path / "outside")
        await until(stream, ("deleted", "c"))
        (tmp_path / "outside" / "b" / "unseen").write_text("")
        (work / "marker").write_text("")
        assert not [event for event in await until(stream, ("created", "marker")) if "unseen" in event[1]]
        (tmp_path / "outside").rename(work / "d")
        await until(stream, ("created", "d"), ("created", "d/b"), ("created", "d/b/f"))
        (work / "d" / "b" / "seen").write_text("")
        await until(stream, ("created", "d/b/seen"))


async def test_our_own_writes_are_one_change(guest: RealGuest, channel: GuestChannel) -> None:
    async with watching(channel, ".") as stream:
        for kind in ("created", "modified"):
            async with channel.open("file.write", {"path": "f"}) as upload:
                await upload.receive()
                await upload.send(kind.encode())
                upload.end()
                assert await upload.receive() is None
            assert await until(stream, (kind, "f")) == [(kind, "f")]
        (guest.workdir / "marker").write_text("")
        assert {event[1] for event in await until(stream, ("created", "marker"))} == {"marker"}


async def test_one_file_over_its_replacement(guest: RealGuest, channel: GuestChannel) -> None:
    work = guest.workdir
    (work / "f").write_text("one")
    async with watching(channel, "f") as stream:
        (work / "other").write_text("")
        (work / "f").write_text("two")
        assert {event[1] for event in await until(stream, ("modified", "f"))} == {"f"}
        (work / "other").rename(work / "f")
        await until(stream, ("created", "f"))
        (work / "f").unlink()
        await until(stream, ("deleted", "f"))
        (work / "f").write_text("again")
        await until(stream, ("created", "f"))


@pytest.mark.parametrize("how", ["removed", "moved"])
async def test_the_end_of_the_root_ends_the_watch(guest: RealGuest, channel: GuestChannel, how: str) -> None:
    root = guest.workdir / "root"
    root.mkdir()
    async with watching(channel, "root", recursive=True) as stream:
        if how == "removed":
            root.rmdir()
        else:
            root.rename(guest.workdir / "elsewhere")
        await until(stream, ("deleted", "root"))
        async with asyncio.timeout(10):
            assert await stream.receive() is None
    assert stream.result == {}


async def test_not_there(channel: GuestChannel) -> None:
    with pytest.raises(WorkspacedError) as caught:
        await channel.call("file.watch", {"path": "no"})
    assert caught.value.reason == "FILE_NOT_FOUND"


async def test_a_reader_that_lags_is_told_to_look_again(guest: RealGuest, channel: GuestChannel) -> None:
    queued = limit("max_queued_events")
    async with watching(channel, ".", recursive=True) as stream:
        guest.process.send_signal(signal.SIGSTOP)  # else it may keep up, on a machine that is busy with other things
        for number in range(queued):
            name = guest.workdir / f"{'n' * 150}{number % 500}"
            name.touch()
            name.unlink()
        guest.process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(30):
            while (await stream.receive()) != {"overflow": True}:
                pass
        (guest.workdir / "after").write_text("")
        await until(stream, ("created", "after"))


async def test_cancelling_leaves_nothing(guest: RealGuest, channel: GuestChannel) -> None:
    await channel.call("file.list", {"path": "."})
    descriptors = Path(f"/proc/{guest.process.pid}/fd")
    before = len(os.listdir(descriptors))
    for _ in range(20):
        async with watching(channel, ".", recursive=True):
            pass
    async with asyncio.timeout(10):
        while len(os.listdir(descriptors)) > before:
            await channel.ping(5)


async def test_polling_where_there_is_no_more_inotify(tmp_path: Path) -> None:
    async with real_guest(tmp_path) as guest:
        channel = await guest.connect()
        instances = limit("max_user_instances")
        held: list[int] = []
        libc = ctypes.CDLL(None)
        try:
            while len(held) < instances and (descriptor := libc.inotify_init1(0)) >= 0:
                held.append(descriptor)
            async with channel.open("file.watch", {"path": ".", "recursive": True}) as stream:
                assert await stream.receive() == {"ready": True, "mode": "poll"}
                (guest.workdir / "d").mkdir()
                (guest.workdir / "d" / "f").write_text("")
                await until(stream, ("created", "d"), ("created", "d/f"))
                (guest.workdir / "d" / "f").rename(guest.workdir / "g")
                await until(stream, ("moved", "d/f", "g"))
                (guest.workdir / "g").write_text("x")
                await until(stream, ("modified", "g"))
                (guest.workdir / "g").unlink()
                await until(stream, ("deleted", "g"))
        finally:
            for descriptor in held:
                os.close(descriptor)
            await channel.aclose()


def test_snapshots_compared(tmp_path: Path) -> None:
    (tmp_path / "root" / "a").mkdir(parents=True)
    (tmp_path / "root" / "a" / "f").write_text("")
    parent = os.open(tmp_path, os.O_RDONLY)
    old = snapshot.take(parent, "root", recursive=True, check=lambda: None)
    assert set(old) == {".", "a", "a/f"}
    (tmp_path / "root" / "a").rename(tmp_path / "root" / "b")
    new = snapshot.take(parent, "root", recursive=True, check=lambda: None)
    os.close(parent)
    assert {(change["kind"], change["path"], change["to"]) for change in snapshot.compare(old, new)} == {
        ("moved", "a", "b"),
        ("moved", "a/f", "b/f"),
    }
