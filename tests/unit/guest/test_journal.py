"""Journals: the same bytes at the same offsets, in memory, spilled or forgotten."""

from __future__ import annotations

import errno
import json
import os
import random
import struct
from pathlib import Path

import pytest

from workspaced_guest import journal as module
from workspaced_guest.journal import Journal, JournalStore
from workspaced_guest.wire import STDERR, STDOUT


def _read(journal: Journal, offset: int) -> list[tuple[int, bytes]]:
    """Everything from `offset` on; neighbours of one tag joined."""
    found: list[tuple[int, bytes]] = []
    while True:
        try:
            tag, count, buffers = journal.read(offset, 1 << 18)
        except LookupError as gap:
            offset = gap.args[0]
            found.append((0, b""))
            continue
        if not count:
            return found
        data = b"".join(buffers)
        assert len(data) == count <= 1 << 18
        offset += count
        if found and found[-1][0] == tag:
            found[-1] = (tag, found[-1][1] + data)
        else:
            found.append((tag, data))


def _fill(journal: Journal, rng: random.Random, count: int, size: int) -> list[tuple[int, bytes]]:
    written: list[tuple[int, bytes]] = []
    for _ in range(count):
        tag = rng.choice((STDOUT, STDERR))
        data = rng.randbytes(rng.randint(1, size))
        journal.append(tag, data)
        if written and written[-1][0] == tag:
            written[-1] = (tag, written[-1][1] + data)
        else:
            written.append((tag, data))
    return written


@pytest.mark.parametrize(("count", "size"), [(2000, 20), (200, 60_000), (20_000, 3)])
def test_what_was_written_is_read_at_any_offset(tmp_path: Path, rng: random.Random, count: int, size: int) -> None:
    journal = JournalStore(str(tmp_path)).open("p", 64 << 20, drop=False)
    written = _fill(journal, rng, count, size)
    whole = b"".join(data for _, data in written)
    assert _read(journal, 0) == written
    assert journal.next_offset == len(whole)
    for _ in range(20):
        offset = rng.randint(0, len(whole))
        assert b"".join(data for _, data in _read(journal, offset)) == whole[offset:]
    assert journal.memory <= module.MEMORY_LIMIT + 2 * 60_000


def test_memory_is_bounded_and_the_rest_lies_in_files(tmp_path: Path) -> None:
    store = JournalStore(str(tmp_path))
    journal = store.open("p", 64 << 20, drop=False)
    for _ in range(200):
        journal.append(STDOUT, bytes(100_000))
    assert store.memory == journal.memory <= module.MEMORY_LIMIT
    assert sum(file.stat().st_size for file in (tmp_path / "p").iterdir()) > 17_000_000
    journal.close()
    assert store.memory == 0
    assert list(tmp_path.iterdir()) == []


def test_the_budget_of_all_journals_is_kept(tmp_path: Path) -> None:
    store = JournalStore(str(tmp_path), memory_limit=1 << 20)
    journals = [store.open(f"p{index}", 64 << 20, drop=False) for index in range(20)]
    for journal in journals:
        for _ in range(10):
            journal.append(STDOUT, journal.next_offset.to_bytes(8, "big") * 1000)
    assert store.memory <= 1 << 20
    for journal in journals:
        assert _read(journal, 0) == [(STDOUT, b"".join((n * 8000).to_bytes(8, "big") * 1000 for n in range(10)))]


@pytest.mark.parametrize("limit", [16_384, 1 << 20, 8 << 20])
def test_drop_forgets_the_oldest_and_says_so(tmp_path: Path, rng: random.Random, limit: int) -> None:
    journal = JournalStore(str(tmp_path)).open("p", limit, drop=True)
    written = _fill(journal, rng, 400, limit // 50)
    whole = b"".join(data for _, data in written)
    assert not journal.full
    assert 0 < journal.first_offset < journal.next_offset == len(whole)
    assert journal.size <= limit + limit // 50 + 200
    assert _read(journal, 0)[0] == (0, b"")
    assert b"".join(data for _, data in _read(journal, 0)) == whole[journal.first_offset :]


def test_block_is_full_until_the_oldest_is_forgotten(tmp_path: Path) -> None:
    journal = JournalStore(str(tmp_path)).open("p", 65_536, drop=False)
    while not journal.full:
        journal.append(STDOUT, bytes(1000))
    before = journal.first_offset, journal.size
    journal.forget_oldest()
    after = journal.first_offset, journal.size
    assert before[0] == 0 < after[0]
    assert before[1] >= 65_536 > after[1]


@pytest.mark.parametrize("drop", [False, True])
def test_a_full_disk_counts_as_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drop: bool) -> None:
    def no_space(descriptor: int, buffers: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "_write_all", no_space)
    journal = JournalStore(str(tmp_path)).open("p", 64 << 20, drop)
    for _ in range(100):
        if journal.full:
            break
        journal.append(STDOUT, bytes(100_000))
    assert journal.full is not drop
    assert journal.memory <= module.MEMORY_LIMIT + (1 << 20) + 100_000
    assert (journal.first_offset > 0) is drop
    assert list((tmp_path / "p").iterdir()) == []
    monkeypatch.undo()
    journal.forget_oldest()
    assert not journal.full


def _damage(file: Path, how: str) -> None:
    if how == "overwritten":
        with file.open("r+b") as content:
            content.write(b"x" * 10)
    elif how == "cut off":
        os.truncate(file, 10)
    else:
        file.unlink()
        if how == "a pipe":
            os.mkfifo(file)
        elif how == "a link":
            file.symlink_to("/etc/passwd")


@pytest.mark.parametrize("how", ["overwritten", "cut off", "gone", "a pipe", "a link"])
def test_a_damaged_segment_is_a_gap(tmp_path: Path, how: str) -> None:
    journal = JournalStore(str(tmp_path)).open("p", 64 << 20, drop=False)
    for _ in range(50):
        journal.append(STDOUT, bytes(100_000))
    _damage(tmp_path / "p" / "segments", how)
    found = _read(journal, 0)
    assert found[0] == (0, b"")
    assert 0 < len(found[-1][1]) < 5_000_000
    assert journal.dropped


@pytest.mark.parametrize("how", ["cut off", "gone", "a pipe", "a link"])
def test_a_file_that_others_took_harms_nothing_that_comes(tmp_path: Path, how: str) -> None:
    journal = JournalStore(str(tmp_path)).open("p", 64 << 20, drop=False)
    for _ in range(5):
        journal.append(STDOUT, b"x" * (1 << 20))
    journal.forget_oldest()
    _damage(tmp_path / "p" / "segments", how)
    start = journal.next_offset
    for _ in range(5):
        journal.append(STDOUT, b"y" * (1 << 20))
    assert _read(journal, start) == [(STDOUT, b"y" * (5 << 20))]
    journal.close()
    assert list(tmp_path.iterdir()) == []


def test_a_forgotten_block_is_the_place_of_the_next(tmp_path: Path, rng: random.Random) -> None:
    store = JournalStore(str(tmp_path), memory_limit=0)  # so that all is spilled at once
    limit = 65_536
    journal = store.open("p", limit, drop=True)
    sizes = (30_000, 5_000, 20_000, 300, 65_000, 262_144)
    written = b""
    for turn in range(200):
        data = rng.randbytes(sizes[turn % len(sizes)])
        written += data
        journal.append(STDOUT, data)
        kept = b"".join(piece for _, piece in _read(journal, journal.first_offset))
        assert kept == written[journal.first_offset :]
    assert (tmp_path / "p" / "segments").stat().st_blocks * 512 < limit + 4 * 262_144
    journal.close()
    assert list(tmp_path.iterdir()) == []


def test_a_snapshot_is_taken_over(tmp_path: Path, rng: random.Random) -> None:
    journal = JournalStore(str(tmp_path)).open("p", 64 << 20, drop=False)
    written = _fill(journal, rng, 300, 20_000)
    forgotten = journal.oldest_end
    journal.forget_oldest()
    successor = JournalStore(str(tmp_path)).open("p", 64 << 20, drop=False)
    successor.restore(json.loads(json.dumps(journal.snapshot())))
    kept = _join(written)[forgotten:]
    assert _join(_read(successor, forgotten)) == kept
    written = _fill(successor, rng, 300, 20_000)
    assert _join(_read(successor, forgotten)) == kept + _join(written)
    assert len(list((tmp_path / "p").iterdir())) == 1
    successor.close()
    assert list(tmp_path.iterdir()) == []


def test_what_an_earlier_guest_left_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    blocks: list[list[object]] = []
    for start in (0, 1000):
        content = struct.pack(">BQI", STDOUT, start, 1000) + bytes([start % 7]) * 1000
        (tmp_path / "p" / f"{start}.segment").write_bytes(content)
        blocks.append([start, start + 1000, len(content), f"{start}.segment"])
    journal = JournalStore(str(tmp_path)).open("p", 64 << 20, drop=False)
    journal.restore({"limit": 64 << 20, "drop": False, "dropped": False, "blocks": blocks})
    journal.append(STDOUT, b"more")
    journal.spill_all()
    assert _join(_read(journal, 0)) == bytes(1000) + b"\6" * 1000 + b"more"
    journal.forget_oldest()
    assert sorted(file.name for file in (tmp_path / "p").iterdir()) == ["1000.segment", "segments"]
    journal.close()
    assert list(tmp_path.iterdir()) == []


def _join(pieces: list[tuple[int, bytes]]) -> bytes:
    return b"".join(data for _, data in pieces)
