"""The offload operations in a directory: what is stored, what a repeated call answers, what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.parcels import parcel, pieces
from tests.support.scripted_stream import Handler, ScriptedGuest, ScriptedStream
from workspaced_guest import offload, offloaddata, offloadlist, offloadlog, offloadread, parts
from workspaced_guest.fault import Fault
from workspaced_guest.stream import StreamCancelled

LINES = b'{"a":1}\n{"b":2}\n'


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def append(guest: ScriptedGuest, text: bytes = LINES, session: str = "s", **params: Any) -> dict[str, Any]:
    return ScriptedStream([parcel(text)]).run(offload.append, guest, session=session, **params)


def tool_result(guest: ScriptedGuest, text: bytes = b"out", session: str = "s", **params: Any) -> dict[str, Any]:
    stream = ScriptedStream([parcel(text)])
    return stream.run(offload.store_tool_result, guest, **{"session": session, "id": "t", **params})


def data(guest: ScriptedGuest, *chunks: bytes, **params: Any) -> dict[str, Any]:
    return ScriptedStream(chunks).run(offloaddata.store_data, guest, **{"ext": ".bin", **params})


def listed(guest: ScriptedGuest, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        page = ScriptedStream().run(offloadlist.list_offloads, guest, page_token=token, **params)
        found += page["entries"]
        token = page["next_page_token"]
        if not token:
            return found


def read(guest: ScriptedGuest, **params: Any) -> bytes:
    stream = ScriptedStream()
    stream.run(offloadread.read_offload, guest, **{"session": "s", "name": "context.jsonl", **params})
    return bytes(stream.sent)


def refused(handler: Handler, guest: ScriptedGuest, *sent: bytes, **params: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        ScriptedStream(sent).run(handler, guest, **params)
    return caught.value


def files(work: Path) -> list[str]:
    return sorted(str(path.relative_to(work)) for path in work.rglob("*") if path.is_file() or path.is_symlink())


def test_append_in_any_portions(scripted_guest: ScriptedGuest, work: Path) -> None:
    blob = os.urandom(700_000)
    name = sha(blob) + ".png"
    sent = parcel(LINES, [(name, blob)])
    for number, size in enumerate((7, 4096, 1 << 20)):
        stream = ScriptedStream(pieces(sent, size))
        result = stream.run(offload.append, scripted_guest, session="s")
        start = number * len(LINES)
        assert (result["start"], result["end"], result["count"]) == (start, start + len(LINES), 2)
        assert (result["size"], result["existing"]) == (start + len(LINES), False)
    assert (work / "sessions/s/context.jsonl").read_bytes() == LINES * 3
    assert (work / "data" / name).read_bytes() == blob
    assert os.stat(work / "data" / name).st_mode & 0o777 == 0o444
    assert len(os.listdir(work / "data")) == 1


def test_append_beyond_memory(scripted_guest: ScriptedGuest, work: Path) -> None:
    text = b"".join(b'{"n":%d,"x":"%s"}\n' % (number, b"x" * 1000) for number in range(5000))
    append(scripted_guest, LINES)
    result = ScriptedStream(pieces(parcel(text), 200_000)).run(offload.append, scripted_guest, session="s")
    assert (result["start"], result["count"]) == (len(LINES), 5000)
    assert (work / "sessions/s/context.jsonl").read_bytes() == LINES + text
    assert files(work) == ["sessions/s/.requests", "sessions/s/context.jsonl"]


def test_nothing_to_append_makes_nothing(scripted_guest: ScriptedGuest, work: Path) -> None:
    result = append(scripted_guest, b"", request_id="r")
    assert (result["start"], result["end"], result["count"], result["size"]) == (0, 0, 0, 0)
    assert os.listdir(work) == []
    append(scripted_guest)
    result = append(scripted_guest, b"")
    assert (result["start"], result["end"], result["count"]) == (len(LINES), len(LINES), 0)


def test_a_repeated_request_answers_as_the_first(scripted_guest: ScriptedGuest, work: Path) -> None:
    first = append(scripted_guest, request_id="r")
    append(scripted_guest, b'{"c":3}\n', request_id='"]}\n')
    again = append(scripted_guest, request_id="r")
    assert (again["start"], again["end"], again["count"], again["existing"]) == (0, first["end"], 2, True)
    assert append(scripted_guest, b'{"c":3}\n', request_id='"]}\n')["start"] == first["end"]
    assert (work / "sessions/s/context.jsonl").read_bytes() == LINES + b'{"c":3}\n'
    fault = refused(offload.append, scripted_guest, parcel(b'{"d":4}\n'), session="s", request_id="r")
    assert (fault.code, fault.reason) == ("ALREADY_EXISTS", "REQUEST_ID_REUSED")
    assert not append(scripted_guest, request_id="r", session="other")["existing"]
    stored = tool_result(scripted_guest, request_id="t")
    assert tool_result(scripted_guest, request_id="t") == {**stored, "existing": True}
    for handler, request in ((offload.store_tool_result, "r"), (offload.append, "t")):
        fault = refused(handler, scripted_guest, parcel(LINES), session="s", id="t", request_id=request)
        assert fault.reason == "REQUEST_ID_REUSED"


def test_a_reused_request_stores_no_data(scripted_guest: ScriptedGuest, work: Path) -> None:
    append(scripted_guest, request_id="r")
    sent = parcel(b'{"x":1}\n', [(sha(b"blob") + ".bin", b"blob")])
    assert refused(offload.append, scripted_guest, sent, session="s", request_id="r").reason == "REQUEST_ID_REUSED"
    assert not (work / "data").exists()


def test_requests_are_known_for_a_day(scripted_guest: ScriptedGuest, monkeypatch: pytest.MonkeyPatch) -> None:
    append(scripted_guest, request_id="r")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 86_399)
    assert append(scripted_guest, request_id="r")["existing"]
    monkeypatch.setattr(time, "time", lambda: now + 86_401)
    assert not append(scripted_guest, request_id="r")["existing"]


def test_the_log_of_requests_is_bounded(
    scripted_guest: ScriptedGuest, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offloadlog, "_LIMIT_BYTES", 8192)
    for number in range(100):
        append(scripted_guest, request_id=f"r{number}")
        append(scripted_guest)
    assert (work / "sessions/s/.requests").stat().st_size < 9000
    assert append(scripted_guest, request_id="r99")["existing"]
    assert append(scripted_guest, request_id="r95")["existing"]
    assert (work / "sessions/s/context.jsonl").read_bytes() == LINES * 200


def test_somebody_else_spoiled_the_log(scripted_guest: ScriptedGuest, work: Path) -> None:
    append(scripted_guest, request_id="r")
    log = work / "sessions/s/.requests"
    for spoiled in (b"P {}\n", b"P [1\n", b'P {"op":"append"}\n', b"\xff\n", b"P", b"", b'D {"request":"q",\n'):
        log.write_bytes(spoiled)
        assert not append(scripted_guest, request_id="q")["existing"]
    assert (work / "sessions/s/context.jsonl").read_bytes() == LINES * 8


@pytest.mark.parametrize(
    ("tail", "kept"),
    [
        (b'{"torn', b""),
        (b'{"whole":1}', b'{"whole":1}\n'),
        (b"[1]", b""),
        (b"\0\0\0", b""),
        (b'\n{"torn":', b"\n"),
    ],
)
def test_a_tail_without_its_newline(scripted_guest: ScriptedGuest, work: Path, tail: bytes, kept: bytes) -> None:
    append(scripted_guest)
    context = work / "sessions/s/context.jsonl"
    with context.open("ab") as file:
        file.write(tail)
    settled = tail if tail.endswith(b"}") else kept
    assert read(scripted_guest) == LINES + settled
    assert listed(scripted_guest)[0]["size"] == len(LINES + settled)
    assert context.read_bytes() == LINES + tail, "reading must not change anything"
    result = append(scripted_guest)
    assert result["start"] == len(LINES + kept)
    assert context.read_bytes() == LINES + kept + LINES


def test_appends_at_once_keep_their_lines_together(scripted_guest: ScriptedGuest, work: Path) -> None:
    def one(writer: int) -> None:
        text = b"".join(b'{"w":%d,"n":%d}\n' % (writer, number) for number in range(20))
        for _ in range(5):
            append(scripted_guest, text)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [json.loads(line) for line in (work / "sessions/s/context.jsonl").read_bytes().splitlines()]
    assert len(found) == 8 * 5 * 20
    for start in range(0, len(found), 20):
        assert [line["n"] for line in found[start : start + 20]] == list(range(20))
        assert len({line["w"] for line in found[start : start + 20]}) == 1


def test_cancelled_anywhere(scripted_guest: ScriptedGuest, work: Path) -> None:
    blob = b"blob" * 100
    sent = pieces(parcel(LINES, [(sha(blob) + ".bin", blob)]), 40)
    for handler in (offload.append, offload.store_tool_result, offloaddata.store_data):
        step = 0
        while True:
            step += 1
            stream = ScriptedStream(sent, cancel_at=step)
            try:
                stream.run(handler, scripted_guest, session="s", id="t", ext=".bin")
            except StreamCancelled:
                assert [name for name in files(work) if not name.startswith("data/") or ".part" in name] == []
            else:
                break
        assert step > len(sent)
        ScriptedStream().run(offload.purge, scripted_guest, session="s")


@pytest.mark.parametrize("session", ["", ".", "..", "../x", "a/b", ".hidden", "a\0", "x" * 256, None, 7, "\udcff"])
def test_hostile_sessions(scripted_guest: ScriptedGuest, work: Path, session: object) -> None:
    for handler in (offload.append, offload.store_tool_result, offload.purge):
        fault = refused(handler, scripted_guest, parcel(LINES), session=session, id="t")
        assert (fault.reason, fault.metadata["field"]) == ("ARGUMENT_INVALID", "session")
    if session is not None:
        for handler in (offloadlist.list_offloads, offloadread.read_offload):
            assert refused(handler, scripted_guest, session=session, name="x").reason == "ARGUMENT_INVALID"
    assert os.listdir(work) == []


@pytest.mark.parametrize("identifier", ["../../x", "a/b", "x" * 240, "a\0", "\udcff"])
def test_hostile_ids(scripted_guest: ScriptedGuest, work: Path, identifier: str) -> None:
    fault = refused(offload.store_tool_result, scripted_guest, parcel(b"x"), session="s", id=identifier)
    assert fault.metadata["field"] == "id"
    blob = [(f"../{identifier}".encode("utf-8", "replace").decode(), b"x")]
    assert refused(offload.append, scripted_guest, parcel(LINES, blob), session="s").reason == "ARGUMENT_INVALID"
    assert not (work / "sessions").exists()


def test_links_lead_nowhere(scripted_guest: ScriptedGuest, work: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "s").mkdir(parents=True)
    victim = outside / "s" / "context.jsonl"
    victim.write_bytes(LINES)

    def attempts() -> set[str]:
        blob = (sha(b"x") + ".bin", b"x")
        return {
            refused(offload.append, scripted_guest, parcel(LINES, [blob]), session="s").reason,
            refused(offload.store_tool_result, scripted_guest, parcel(b"x", [blob]), session="s", id="t").reason,
        }

    (work / "sessions").symlink_to(outside)
    assert attempts() == {"PATH_ESCAPES"}
    assert refused(offload.purge, scripted_guest, session="s").reason == "PATH_ESCAPES"
    assert refused(offloadlist.list_offloads, scripted_guest).reason == "PATH_ESCAPES"
    (work / "sessions").unlink()
    (work / "sessions").mkdir()
    (work / "sessions" / "s").symlink_to(outside / "s")
    assert attempts() == {"PATH_ESCAPES"}
    assert refused(offloadread.read_offload, scripted_guest, session="s", name="context.jsonl").reason == "PATH_ESCAPES"
    assert ScriptedStream().run(offload.purge, scripted_guest, session="s") == {"removed": 1}
    assert victim.read_bytes() == LINES
    (work / "sessions" / "s").mkdir()
    (work / "sessions/s/context.jsonl").symlink_to(victim)
    fault = refused(offload.append, scripted_guest, parcel(LINES), session="s")
    assert fault.reason == "PATH_ESCAPES"
    (work / "sessions/s/context.jsonl").unlink()
    (work / "sessions/s/.requests").symlink_to(victim)
    assert refused(offload.append, scripted_guest, parcel(LINES), session="s").reason == "PATH_ESCAPES"
    (work / "sessions/s/.requests").unlink()
    (work / "data").rmdir() if not os.listdir(work / "data") else None
    assert victim.read_bytes() == LINES


def test_a_link_among_the_data(scripted_guest: ScriptedGuest, work: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"y")
    (work / "data").mkdir()
    (work / "data" / (sha(b"x") + ".bin")).symlink_to(victim)
    assert refused(offloaddata.store_data, scripted_guest, b"x", ext=".bin").reason == "PATH_ESCAPES"
    assert victim.read_bytes() == b"y"
    assert listed(scripted_guest) == []
    assert [name for name in files(work) if ".part" in name] == []


def test_other_things_in_the_way(scripted_guest: ScriptedGuest, work: Path) -> None:
    (work / "sessions/s/context.jsonl").mkdir(parents=True)
    assert refused(offload.append, scripted_guest, parcel(LINES), session="s").reason == "NOT_A_FILE"
    (work / "sessions/s/context.jsonl").rmdir()
    os.mkfifo(work / "sessions/s/context.jsonl")
    assert refused(offload.append, scripted_guest, parcel(LINES), session="s").reason == "NOT_A_FILE"
    (work / "sessions/f").write_bytes(b"")
    assert refused(offload.append, scripted_guest, parcel(LINES), session="f").reason == "NOT_A_DIRECTORY"
    os.mkfifo(work / "sessions/pipe")
    assert ScriptedStream().run(offload.purge, scripted_guest, session="pipe") == {"removed": 1}


def test_tool_results_overwrite_nothing(scripted_guest: ScriptedGuest, work: Path) -> None:
    names = [tool_result(scripted_guest, b"%d" % number)["name"] for number in range(3)]
    assert names == ["tool_result-t.txt", "tool_result-t(1).txt", "tool_result-t(2).txt"]
    (work / "sessions/s/tool_result-t(3).txt").symlink_to("/nowhere")
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(tool_result(scripted_guest, b"x")["name"])) for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(f"tool_result-t({number}).txt" for number in range(4, 14))
    assert [(work / "sessions/s" / name).read_bytes() for name in names] == [b"0", b"1", b"2"]
    assert tool_result(scripted_guest, b"", id="empty")["size"] == 0
    assert {entry["tool_call_id"] for entry in listed(scripted_guest)} == {"t", "empty"}
    tool_result(scripted_guest, b"", id="u(1)")
    assert listed(scripted_guest)[-1]["tool_call_id"] == "u(1)"


def test_data(scripted_guest: ScriptedGuest, work: Path) -> None:
    content = os.urandom(600_000)
    first = data(scripted_guest, content[:100], content[100:], ext=".png", sha256=sha(content).upper())
    assert first == {**first, "sha256": sha(content), "existing": False, "name": sha(content) + ".png"}
    assert data(scripted_guest, content, ext=".png") == {**first, "existing": True}
    stored = work / "data" / first["name"]
    assert stored.read_bytes() == content
    stored.chmod(0o644)
    stored.write_bytes(bytes(600_000))
    assert not data(scripted_guest, content, ext=".png")["existing"], "damaged content has to be noticed"
    assert stored.read_bytes() == content
    fault = refused(offloaddata.store_data, scripted_guest, b"x", ext=".png", sha256=sha(b"y"))
    assert (fault.code, fault.reason) == ("DATA_LOSS", "HASH_MISMATCH")
    assert refused(offloaddata.store_data, scripted_guest, b"x", ext="/../x").reason == "ARGUMENT_INVALID"
    assert data(scripted_guest)["size"] == 0
    assert len(os.listdir(work / "data")) == 2
    sent = parcel(LINES, [(sha(b"y") + ".bin", b"x")])
    assert refused(offload.append, scripted_guest, sent, session="s").reason == "HASH_MISMATCH"
    assert not (work / "sessions").exists()


@pytest.mark.parametrize("cut", [1, 10, 20, 60])
def test_a_parcel_that_is_cut_short(scripted_guest: ScriptedGuest, work: Path, cut: int) -> None:
    sent = parcel(LINES, [(sha(b"x") + ".bin", b"x")])
    assert refused(offload.append, scripted_guest, sent[:-cut], session="s").metadata["field"] == "parcel"
    assert refused(offload.append, scripted_guest, sent + b"x", session="s").metadata["field"] == "parcel"
    assert refused(offload.append, scripted_guest, b"Z" + sent[1:], session="s").metadata["field"] == "parcel"
    assert os.listdir(work) == []


def test_pages(scripted_guest: ScriptedGuest, work: Path) -> None:
    for session in ("b", "a-b", "a", "default"):
        append(scripted_guest, session=session)
        tool_result(scripted_guest, session=session)
    for content in (b"1", b"2", b"3"):
        data(scripted_guest, content)
    (work / "sessions/a/notes.txt").write_bytes(b"mine")
    (work / "sessions/a/sub").mkdir()
    (work / "data/readme").write_bytes(b"mine")
    (work / "sessions/empty").mkdir()
    (work / "sessions/file").write_bytes(b"")
    (work / os.fsencode("sessions/\udcff").decode("utf-8", "surrogateescape")).mkdir()
    whole = listed(scripted_guest)
    assert [(entry.get("session"), entry["kind"]) for entry in whole] == [(None, "data")] * 3 + [
        (session, kind) for session in ("a", "a-b", "b", "default") for kind in ("context", "tool_result")
    ]
    for size in (1, 2, 3, 7):
        assert listed(scripted_guest, page_size=size) == whole
    assert listed(scripted_guest, session="a") == whole[3:5]
    assert listed(scripted_guest, session="a", kind="data") == []
    assert listed(scripted_guest, kind="data", page_size=1) == whole[:3]
    assert listed(scripted_guest, kind="context", page_size=1) == whole[3::2]
    assert listed(scripted_guest, session="nobody") == []
    assert all(entry["verified"] for entry in whole[:3])
    (work / "data" / ("0" * 64 + ".png")).write_bytes(b"of somebody else")
    assert [entry["verified"] for entry in listed(scripted_guest, kind="data")].count(False) == 1
    for token in ("x", "data", "data/../x", "sessions/a", "sessions/../x", "data/" + "x" * 300):
        assert refused(offloadlist.list_offloads, scripted_guest, page_token=token).metadata["field"] == "page_token"


def test_sessions_with_a_label(scripted_guest: ScriptedGuest, work: Path) -> None:
    append(scripted_guest, session="%sha256-00", label="%" * 200)
    assert listed(scripted_guest)[0]["label"] == "%" * 200
    assert ScriptedStream().run(offload.purge, scripted_guest, session="%sha256-00") == {"removed": 1}
    assert os.listdir(work / "sessions") == []


def test_reading(scripted_guest: ScriptedGuest, work: Path) -> None:
    lines = [b'{"n":%d,"x":"%s"}\n' % (number, b"x" * (number % 977)) for number in range(20_000)]
    ScriptedStream(pieces(parcel(b"".join(lines)), 200_000)).run(offload.append, scripted_guest, session="s")
    for skip in (0, 1, 2, 1999, 19_999, 20_000, 30_000, 1 << 60):
        assert read(scripted_guest, skip=skip) == b"".join(lines[skip:])
    whole = b"".join(lines)
    for offset, length in ((0, 0), (0, 10), (5, None), (len(whole) - 3, 100), (len(whole), None), (300_000, 300_000)):
        expected = whole[offset:] if length is None else whole[offset : offset + length]
        assert read(scripted_guest, offset=offset, length=length) == expected
    fault = refused(offloadread.read_offload, scripted_guest, session="s", name="context.jsonl", offset=len(whole) + 1)
    assert (fault.code, fault.reason) == ("OUT_OF_RANGE", "OFFSET_INVALID")
    name = tool_result(scripted_guest)["name"]
    assert read(scripted_guest, name=name) == b"out"
    fault = refused(offloadread.read_offload, scripted_guest, session="s", name=name, skip=0)
    assert (fault.code, fault.reason) == ("FAILED_PRECONDITION", "OFFLOAD_NOT_A_CONTEXT")
    (work / "sessions/s/notes.txt").write_bytes(b"mine")
    (work / "sessions/s/sub").mkdir()
    for session, missing in (
        ("s", "notes.txt"),
        ("s", "sub"),
        ("s", "tool_result-x.txt"),
        ("t", "context.jsonl"),
        (None, "x"),
    ):
        fault = refused(offloadread.read_offload, scripted_guest, session=session, name=missing)
        assert (fault.code, fault.reason) == ("NOT_FOUND", "OFFLOAD_NOT_FOUND")


def test_what_is_appended_while_it_is_read(scripted_guest: ScriptedGuest) -> None:
    append(scripted_guest)

    def grow(step: int) -> None:
        if step == 1:
            append(scripted_guest)

    stream = ScriptedStream(on_step=grow)
    stream.run(offloadread.read_offload, scripted_guest, session="s", name="context.jsonl")
    assert stream.sent == LINES
    assert stream.messages[0]["entry"]["size"] == len(LINES)


def test_what_is_cut_while_it_is_read(scripted_guest: ScriptedGuest, work: Path) -> None:
    append(scripted_guest)

    def cut(step: int) -> None:
        os.truncate(work / "sessions/s/context.jsonl", 3)

    with pytest.raises(Fault) as caught:
        ScriptedStream(on_step=cut).run(offloadread.read_offload, scripted_guest, session="s", name="context.jsonl")
    assert (caught.value.code, caught.value.reason) == ("ABORTED", "CONTENT_CHANGED")


def test_purge_removes_exactly_one_session(scripted_guest: ScriptedGuest, work: Path) -> None:
    blob = (sha(b"x") + ".bin", b"x")
    for session in ("s", "s2", "S"):
        append(scripted_guest, session=session, request_id="r")
        tool_result(scripted_guest, session=session)
        ScriptedStream([parcel(LINES, [blob])]).run(offload.append, scripted_guest, session=session)
    (work / "sessions/s/sub").mkdir()
    (work / "sessions/s/sub/mine").write_bytes(b"")
    (work / "sessions/s/sub").chmod(0)
    kept = [name for name in files(work) if not name.startswith("sessions/s/")]
    assert ScriptedStream().run(offload.purge, scripted_guest, session="s")["removed"] in (2, 3)
    assert files(work) == kept
    assert ScriptedStream().run(offload.purge, scripted_guest, session="s") == {"removed": 0}
    assert not append(scripted_guest, request_id="r")["existing"]
    assert ScriptedStream().run(offload.purge, ScriptedGuest(str(work / "data"), ""), session="s") == {"removed": 0}


def test_a_full_disk(scripted_guest: ScriptedGuest, small_disk: Path) -> None:
    guest = ScriptedGuest(str(small_disk), scripted_guest.state_dir)
    append(guest, request_id="r")
    tool_result(guest)
    (small_disk / "filler").write_bytes(bytes(400_000))
    before = {name: (small_disk / name).read_bytes() for name in files(small_disk)}
    free = os.statvfs(small_disk).f_bavail
    text = b'{"x":"%s"}\n' % (b"x" * 100_000)

    def full(handler: Handler, *sent: bytes, **params: Any) -> None:
        with pytest.raises(OSError, match="No space left on device"):
            ScriptedStream(sent).run(handler, guest, session="s", id="t", **params)

    for request in (None, "q"):
        full(offload.append, parcel(text * 9), request_id=request)  # the text is in memory
        full(offload.append, *pieces(parcel(text * 30), 200_000), request_id=request)  # the spool does not fit
        full(offload.store_tool_result, parcel(text * 12), request_id=request)
        blob = text * 12
        full(offload.append, parcel(LINES, [(sha(blob) + ".bin", blob)]), request_id=request)
    full(offloaddata.store_data, text * 12, ext=".bin")
    after = {name: (small_disk / name).read_bytes() for name in files(small_disk) if not name.endswith(".requests")}
    assert after == {name: content for name, content in before.items() if not name.endswith(".requests")}
    assert os.statvfs(small_disk).f_bavail >= free - 2
    assert append(guest, request_id="r")["existing"]
    assert not append(guest, request_id="q")["existing"]
    assert os.listdir(os.path.join(scripted_guest.state_dir, "uploads")) == []
    assert not any(parts.is_part(Path(name).name) for name in files(small_disk))
