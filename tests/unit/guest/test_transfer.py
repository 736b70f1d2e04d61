"""read, write and append: what is sent, what is replaced and when, and what is left when something fails."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted_stream import Handler, ScriptedGuest, ScriptedStream
from workspaced_guest import parts, transfer
from workspaced_guest.fault import Fault
from workspaced_guest.stream import StreamCancelled


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write(guest: ScriptedGuest, path: str, *data: bytes, **params: Any) -> dict[str, Any]:
    return ScriptedStream(data).run(transfer.write_file, guest, path=path, **params)


def left(guest: ScriptedGuest) -> list[str]:
    """Parts and their records."""
    found = [str(path) for path in Path(guest.workdir).rglob("*") if parts.is_part(path.name)]
    uploads = Path(guest.state_dir) / "uploads"
    return found + (os.listdir(uploads) if uploads.exists() else [])


def refused(guest: ScriptedGuest, handler: Handler, *data: bytes, **params: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        ScriptedStream(data).run(handler, guest, **params)
    return caught.value


def test_read_ranges(scripted_guest: ScriptedGuest, work: Path) -> None:
    content = os.urandom(700_000)
    (work / "f").write_bytes(content)
    for offset, limit in ((0, None), (1, None), (0, 300_000), (699_999, 5), (700_000, None), (9_000_000, None), (5, 0)):
        stream = ScriptedStream()
        result = stream.run(transfer.read_file, scripted_guest, path="f", offset=offset, limit=limit, hash=True)
        expected = content[offset:] if limit is None else content[offset : offset + limit]
        assert stream.sent == expected
        at_end = offset + len(expected) >= len(content)
        assert result == {"bytes": len(expected), "sha256": sha(expected), "eof": at_end}
        assert stream.messages[0]["stat"]["size"] == 700_000


def test_read_while_it_grows_and_while_it_shrinks(scripted_guest: ScriptedGuest, work: Path) -> None:
    (work / "f").write_bytes(b"a" * 600_000)

    def grow(step: int) -> None:
        if step == 3:
            with (work / "f").open("ab") as file:
                file.write(b"b" * 300_000)

    stream = ScriptedStream(on_step=grow)
    result = stream.run(transfer.read_file, scripted_guest, path="f", hash=True)
    assert result == {"bytes": 900_000, "sha256": sha(b"a" * 600_000 + b"b" * 300_000), "eof": True}

    def shrink(step: int) -> None:
        if step == 2:
            os.truncate(work / "f", 100)

    stream = ScriptedStream(on_step=shrink)
    result = stream.run(transfer.read_file, scripted_guest, path="f", hash=True)
    assert result == {"bytes": len(stream.sent), "sha256": sha(bytes(stream.sent)), "eof": True}
    assert len(stream.sent) < 900_000


def test_read_of_a_file_without_size(scripted_guest: ScriptedGuest) -> None:
    stream = ScriptedStream()
    stream.run(transfer.read_file, scripted_guest, path="/proc/self/status")
    assert b"Name:" in stream.sent


@pytest.mark.timeout(10)
@pytest.mark.parametrize("handler", [transfer.read_file, transfer.write_file, transfer.append_file])
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("dir", "IS_A_DIRECTORY"),
        ("fifo", "NOT_A_FILE"),
        ("/dev/zero", "NOT_A_FILE"),
        ("l", "NOT_A_FILE"),
        (".", "IS_A_DIRECTORY"),
        ("no/x", "FILE_NOT_FOUND"),
    ],
)
def test_what_is_no_file(scripted_guest: ScriptedGuest, work: Path, handler: Handler, path: str, reason: str) -> None:
    (work / "dir").mkdir()
    os.mkfifo(work / "fifo")
    os.symlink("fifo", work / "l")
    assert refused(scripted_guest, handler, b"x", path=path).reason == reason
    assert left(scripted_guest) == []


def test_write_makes_and_replaces(scripted_guest: ScriptedGuest, work: Path) -> None:
    made = write(scripted_guest, "d/f", b"ab", b"", b"c", parents=True)
    assert made["sha256"] == sha(b"abc")
    assert (made["stat"]["path"], made["stat"]["size"], made["stat"]["mode"]) == ("d/f", 3, 0o644)
    inode = (work / "d" / "f").stat().st_ino
    os.chown(work / "d" / "f", 1234, 4321)
    (work / "d" / "f").chmod(0o4751)
    again = write(scripted_guest, "d/f", b"new")
    status = (work / "d" / "f").stat()
    assert status.st_ino != inode
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (0o4751, 1234, 4321)
    assert again["stat"]["inode"] == status.st_ino
    assert write(scripted_guest, "d/f", mode=0o600)["stat"]["mode"] == 0o600
    assert left(scripted_guest) == []


def test_write_through_a_link_keeps_the_link(scripted_guest: ScriptedGuest, work: Path) -> None:
    (work / "sub").mkdir()
    os.symlink("sub/real", work / "link")
    write(scripted_guest, "link", b"x")
    write(scripted_guest, "link", b"y")
    assert (work / "link").is_symlink()
    assert (work / "sub" / "real").read_bytes() == b"y"


def test_create_only_and_if_match(scripted_guest: ScriptedGuest, work: Path) -> None:
    write(scripted_guest, "f", b"one", create_only=True)
    assert refused(scripted_guest, transfer.write_file, b"x", path="f", create_only=True).reason == "FILE_EXISTS"
    fault = refused(scripted_guest, transfer.write_file, b"x", path="f", if_match=sha(b"two"))
    assert (fault.reason, fault.metadata["found"]) == ("CONTENT_CHANGED", sha(b"one"))
    assert refused(scripted_guest, transfer.write_file, path="no", if_match=sha(b"")).reason == "CONTENT_CHANGED"
    write(scripted_guest, "f", b"two", if_match=sha(b"one").upper())
    assert (work / "f").read_bytes() == b"two"
    assert left(scripted_guest) == []


@pytest.mark.parametrize("option", ["create_only", "if_match"])
def test_a_change_meanwhile_is_noticed(scripted_guest: ScriptedGuest, work: Path, option: str) -> None:
    if option == "if_match":
        (work / "f").write_bytes(b"one")
    params: dict[str, Any] = {"create_only": True} if option == "create_only" else {"if_match": sha(b"one")}

    def interfere(step: int) -> None:
        if step == 3:
            (work / "f").write_bytes(b"theirs")

    stream = ScriptedStream([b"a", b"b", b"c"], on_step=interfere)
    with pytest.raises(Fault) as caught:
        stream.run(transfer.write_file, scripted_guest, path="f", **params)
    assert caught.value.reason == {"create_only": "FILE_EXISTS", "if_match": "CONTENT_CHANGED"}[option]
    assert (work / "f").read_bytes() == b"theirs"
    assert left(scripted_guest) == []


def test_of_many_writers_with_one_if_match_one_wins(scripted_guest: ScriptedGuest, work: Path) -> None:
    (work / "f").write_bytes(b"old")
    outcomes: list[str] = []
    barrier = threading.Barrier(8)

    def one(number: int) -> None:
        barrier.wait()
        try:
            write(scripted_guest, "f", b"%d" % number, if_match=sha(b"old"))
            outcomes.append("won")
        except Fault as fault:
            outcomes.append(fault.reason)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["CONTENT_CHANGED"] * 7 + ["won"]


def test_announced_hash(scripted_guest: ScriptedGuest, work: Path) -> None:
    write(scripted_guest, "f", b"data", sha256=sha(b"data"))
    fault = refused(scripted_guest, transfer.write_file, b"datb", path="f", sha256=sha(b"data"), upload_id="u")
    assert (fault.code, fault.reason) == ("DATA_LOSS", "HASH_MISMATCH")
    assert (work / "f").read_bytes() == b"data"
    assert left(scripted_guest) == []


def test_a_write_without_a_hash(scripted_guest: ScriptedGuest, work: Path) -> None:
    assert write(scripted_guest, "f", b"ab", b"c", hash=False)["sha256"] == ""
    assert (work / "f").read_bytes() == b"abc"
    fault = refused(scripted_guest, transfer.write_file, b"abc", path="f", hash=False, sha256=sha(b"abc"))
    assert fault.reason == "ARGUMENT_INVALID"
    assert "no_hash" in str(fault)


def test_a_large_file_is_replaced_and_let_go(scripted_guest: ScriptedGuest, work: Path) -> None:
    with (work / "f").open("wb") as file:
        file.truncate(1 << 30)
    inode = os.stat(work / "f").st_ino
    write(scripted_guest, "f", b"small")
    assert (work / "f").read_bytes() == b"small"
    deadline = time.monotonic() + 30
    while any(_inode(descriptor) == inode for descriptor in os.listdir("/proc/self/fd")):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _inode(descriptor: str) -> int:
    try:
        return os.stat(f"/proc/self/fd/{descriptor}").st_ino
    except OSError:
        return 0


def test_upload_goes_on_where_it_broke_off(scripted_guest: ScriptedGuest, work: Path) -> None:
    content = os.urandom(1000)
    chunks = [content[at : at + 100] for at in range(0, 1000, 100)]
    with pytest.raises(StreamCancelled):
        ScriptedStream(chunks, cancel_at=6).run(transfer.write_file, scripted_guest, path="f", upload_id="u")
    assert not (work / "f").exists()
    asked = ScriptedStream().run(transfer.write_file, scripted_guest, path="f", upload_id="u", query_offset=True)
    there = asked["next_offset"]
    assert there == 400
    fault = refused(scripted_guest, transfer.write_file, path="f", upload_id="u", offset=there + 1)
    assert (fault.reason, fault.metadata["expected_offset"]) == ("UPLOAD_OFFSET_INVALID", str(there))
    stream = ScriptedStream(chunks[3:])
    done = stream.run(transfer.write_file, scripted_guest, path="f", upload_id="u", offset=300, sha256=sha(content))
    assert stream.messages == [{"offset": 300}]
    assert done["sha256"] == sha(content)
    assert (work / "f").read_bytes() == content
    assert left(scripted_guest) == []


def test_a_shorter_second_try_leaves_no_tail(scripted_guest: ScriptedGuest, work: Path) -> None:
    with pytest.raises(StreamCancelled):
        ScriptedStream([b"long" * 100], cancel_at=3).run(transfer.write_file, scripted_guest, path="f", upload_id="u")
    assert len(left(scripted_guest)) == 2
    write(scripted_guest, "f", b"short", upload_id="u", offset=0)
    assert (work / "f").read_bytes() == b"short"


def test_a_later_writer_takes_the_upload_over(scripted_guest: ScriptedGuest, work: Path) -> None:
    def overtake(step: int) -> None:
        if step == 3:
            write(scripted_guest, "f", b"b" * 50, upload_id="u", offset=100)

    first = ScriptedStream([b"a" * 100, b"a" * 100], on_step=overtake)
    with pytest.raises(Fault) as caught:
        first.run(transfer.write_file, scripted_guest, path="f", upload_id="u")
    assert caught.value.reason == "UPLOAD_SUPERSEDED"
    assert (work / "f").read_bytes() == b"a" * 100 + b"b" * 50
    assert left(scripted_guest) == []


@pytest.mark.parametrize("upload_id", [None, "u"])
def test_cancelled_at_any_step(scripted_guest: ScriptedGuest, work: Path, upload_id: str | None) -> None:
    (work / "f").write_bytes(b"old")
    for step in range(1, 100):
        try:
            ScriptedStream([b"a", b"b"], cancel_at=step).run(
                transfer.write_file, scripted_guest, path="f", upload_id=upload_id, offset=0, if_match=sha(b"old")
            )
        except StreamCancelled:
            assert (work / "f").read_bytes() == b"old"
            assert len(left(scripted_guest)) in ({0} if upload_id is None else {0, 2})
        else:
            break
    assert step > 5
    assert left(scripted_guest) == []


def test_parts_expire(scripted_guest: ScriptedGuest, work: Path) -> None:
    for name in ("old", "new"):
        with pytest.raises(StreamCancelled):
            ScriptedStream([b"x"], cancel_at=3).run(transfer.write_file, scripted_guest, path=name, upload_id=name)
    (old,) = work.glob(".old.*")
    os.utime(old, (time.time() - 3700,) * 2)
    assert parts.remove_expired(scripted_guest, time.time() - parts.KEPT_SECONDS) == 1  # type: ignore[arg-type]
    assert not old.exists()
    assert len(left(scripted_guest)) == 2
    (Path(scripted_guest.state_dir) / "uploads" / "cut").write_text(str(work)[:-1])
    assert parts.remove_expired(scripted_guest, time.time() + 1) == 1  # type: ignore[arg-type]
    assert left(scripted_guest) == []
    assert work.exists()


@pytest.mark.parametrize("upload_id", [None, "u"])
def test_a_full_disk_keeps_the_old_file(scripted_guest: ScriptedGuest, small_disk: Path, upload_id: str | None) -> None:
    (small_disk / "f").write_bytes(b"old")
    free = os.statvfs(small_disk).f_bavail
    data = [b"x" * 262_144] * 16
    params = {"upload_id": upload_id} if upload_id else {}
    fault = refused(scripted_guest, transfer.write_file, *data, path=str(small_disk / "f"), **params)
    assert (fault.code, fault.reason) == ("RESOURCE_EXHAUSTED", "DISK_FULL")
    assert fault.message.startswith(str(small_disk / "f"))
    assert refused(scripted_guest, transfer.append_file, *data, path=str(small_disk / "f")).reason == "DISK_FULL"
    assert refused(scripted_guest, transfer.append_file, *data, path=str(small_disk / "g")).reason == "DISK_FULL"
    assert (small_disk / "f").read_bytes() == b"old"
    assert os.listdir(small_disk) == ["f"]
    assert os.statvfs(small_disk).f_bavail == free
    assert left(scripted_guest) == []


def test_append(scripted_guest: ScriptedGuest, work: Path) -> None:
    first = ScriptedStream([b"one\n"]).run(transfer.append_file, scripted_guest, path="d/log", parents=True, mode=0o600)
    assert (first["offset"], first["stat"]["size"], first["stat"]["mode"]) == (0, 4, 0o600)
    second = ScriptedStream([b"tw", b"o\n"]).run(transfer.append_file, scripted_guest, path="d/log", offset=4)
    assert second["offset"] == 4
    fault = refused(scripted_guest, transfer.append_file, b"two\n", path="d/log", offset=4)
    assert (fault.reason, fault.metadata["expected"]) == ("OFFSET_INVALID", "8")
    assert refused(scripted_guest, transfer.append_file, path="d/new", offset=4).reason == "OFFSET_INVALID"
    assert (work / "d" / "log").read_bytes() == b"one\ntwo\n"
    assert os.listdir(work / "d") == ["log"]


def test_appends_do_not_mix(scripted_guest: ScriptedGuest, work: Path) -> None:
    lines = [b"%03d" % number * 3000 + b"\n" for number in range(50)]

    def append(line: bytes) -> None:
        ScriptedStream([line[:4000], line[4000:]]).run(transfer.append_file, scripted_guest, path="log", sync=False)

    threads = [threading.Thread(target=append, args=(line,)) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((work / "log").read_bytes().splitlines(keepends=True)) == lines


def test_an_append_is_bounded_and_cancelled_without_a_trace(scripted_guest: ScriptedGuest, work: Path) -> None:
    chunks = [bytes(262_144)] * 65
    assert refused(scripted_guest, transfer.append_file, *chunks, path="log").reason == "LIMIT_REACHED"
    with pytest.raises(StreamCancelled):
        ScriptedStream([b"x", b"y"], cancel_at=2).run(transfer.append_file, scripted_guest, path="log")
    assert not (work / "log").exists()


@pytest.mark.parametrize("name", ["n" * 255, "€" * 85, "b\udcff" * 60, ".workspaced-.part", "new\nline"])
def test_names_of_every_length_are_written(scripted_guest: ScriptedGuest, work: Path, name: str) -> None:
    for data in (b"1", b"2"):
        assert write(scripted_guest, name, data, upload_id="u")["stat"]["name"] == name
    assert (work / name).read_bytes() == b"2"
    assert os.listdir(work) == [name]


def test_a_discarded_upload_is_used_up(scripted_guest: ScriptedGuest) -> None:
    """The discard may overtake the write that it is about, since both run in threads of their own."""
    with pytest.raises(StreamCancelled):
        ScriptedStream([b"x", b"y"], cancel_at=2).run(transfer.write_file, scripted_guest, path="f", upload_id="used")
    assert left(scripted_guest)
    assert write(scripted_guest, "f", upload_id="used", discard=True) == {"next_offset": 0}
    assert left(scripted_guest) == []
    assert refused(scripted_guest, transfer.write_file, b"x", path="f", upload_id="used").reason == "UPLOAD_SUPERSEDED"
    assert left(scripted_guest) == []
    write(scripted_guest, "f", b"x", upload_id="another")
