"""The operations behind the file tools, on a real guest under each interpreter."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.guest_client import GuestClient, GuestError, GuestStream, RunningGuest
from workspaced_guest import wire

GIB = 1 << 30


def ask(client: GuestClient, op: str, data: bytes | None = None, **params: Any) -> tuple[bytes, dict[str, Any]]:
    """DATA and RESULT of an operation."""
    return answer(opened(client, op, data, **params))


def opened(client: GuestClient, op: str, data: bytes | None = None, **params: Any) -> GuestStream:
    stream = client.open(op, {"reader": "r", **params})
    if data is not None:
        stream.send(data)
        stream.end()
    return stream


def answer(stream: GuestStream) -> tuple[bytes, dict[str, Any]]:
    found = b""
    while True:
        kind, payload = stream.frame()
        if kind == wire.DATA:
            found += payload
        elif kind == wire.RESULT:
            return found, wire.decode_json(payload)


def edit(client: GuestClient, path: str, old: bytes, new: bytes, **params: Any) -> dict[str, Any]:
    return ask(client, "tool.edit", old + new, path=path, old_size=len(old), **params)[1]


def search(client: GuestClient, **params: Any) -> tuple[list[str], dict[str, Any]]:
    data, result = ask(client, "tool.search", **{"path": ".", **params})
    return data.decode("utf-8", "surrogateescape").splitlines(), result


# content, offset, limit, the lines, what is said of them
LINES: list[tuple[bytes, int, int, bytes, dict[str, Any]]] = [
    (b"a\nb\nc\n", 1, 2000, b"a\nb\nc", {"first": 1, "lines": 3, "total": 3, "more": False}),
    (b"a\nb\nc", 2, 2000, b"b\nc", {"first": 2, "lines": 2, "total": 3, "more": False}),
    (b"a\nb\nc\n", 1, 2, b"a\nb", {"lines": 2, "total": 3, "more": True}),
    (b"a\nb\nc\n", -2, 2000, b"b\nc", {"first": 2, "lines": 2, "more": False}),
    (b"a\nb\nc", -1, 2000, b"c", {"first": 3, "lines": 1, "more": False}),
    (b"a\nb\n", -9, 1, b"a", {"first": 1, "lines": 1, "more": True}),
    (b"a\nb\n", 3, 2000, b"", {"lines": 0, "total": 2, "more": False}),
    (b"a", 9, 2000, b"", {"lines": 0, "total": 1}),
    (b"", 1, 2000, b"", {"lines": 0, "total": 0, "more": False}),
    (b"\n\n", 1, 2000, b"\n", {"lines": 2, "total": 2}),
    (b"caf\xe9 \xff\n", 1, 2000, b"caf\xe9 \xff", {"lines": 1}),
]


def test_lines(guest: RunningGuest, client: GuestClient) -> None:
    for content, offset, limit, lines, facts in LINES:
        (guest.workdir / "f").write_bytes(content)
        data, result = ask(client, "tool.read", path="f", offset=offset, limit=limit)
        assert (data, result["kind"]) == (lines, "text"), (content, offset)
        assert {name: result[name] for name in facts} == facts, (content, offset)
        assert result["sha256"] == hashlib.sha256(content).hexdigest()


def test_long_lines_and_much_text_are_cut(guest: RunningGuest, client: GuestClient) -> None:
    (guest.workdir / "long").write_bytes(b"x" * 3_000_000 + b"\nend\n")
    data, result = ask(client, "tool.read", path="long")
    assert [len(line) for line in data.split(b"\n")] == [2004, 3]
    (guest.workdir / "many").write_bytes(b"y" * 1000 + b"\n" + (b"y" * 1000 + b"\n") * 500)
    data, result = ask(client, "tool.read", path="many")
    assert 100_000 < len(data) < 140_000
    assert (result["more"], result["total"]) == (True, 501)


def test_a_huge_log_is_read_where_it_is_asked_for(guest: RunningGuest, client: GuestClient) -> None:
    path = guest.workdir / "huge.log"
    with path.open("wb") as file:
        file.write(b"first\nsecond\n")
        file.seek(5 * GIB)
        file.write(b"\nlast but one\nlast\n")
    before = _resident(guest)
    started = time.monotonic()
    assert ask(client, "tool.read", path="huge.log", limit=2)[0] == b"first\nsecond"
    assert ask(client, "tool.read", path="huge.log", offset=-2)[0] == b"last but one\nlast"
    data, result = ask(client, "tool.read", path="huge.log", offset=4)
    assert (data, result["total"]) == (b"last but one\nlast", 5)
    assert ask(client, "tool.read", path="huge.log", offset=3, limit=1)[0] == bytes(2004)
    assert "sha256" not in result
    found, _ = search(client, path="huge.log", pattern="^last$", mode="content")
    assert found == ["huge.log:5:last"]
    assert time.monotonic() - started < 10
    assert _resident(guest) - before < 32 << 20
    assert edit(client, "huge.log", b"first", b"1st") == {"refused": "large", "size": 16 << 20}


def test_no_text(guest: RunningGuest, client: GuestClient) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + os.urandom(400_000)
    (guest.workdir / "p.png").write_bytes(picture)
    data, result = ask(client, "tool.read", path="p.png")
    assert (data, result["kind"], result["media_type"], result["sent"]) == (picture, "image", "image/png", True)
    (guest.workdir / "p.gif").write_bytes(b"GIF89a" + bytes(4 << 20))
    data, result = ask(client, "tool.read", path="p.gif")
    assert (data, result["sent"], result["size"]) == (b"", False, (4 << 20) + 6)
    (guest.workdir / "program").write_bytes(b"\x7fELF\x02\x01\x01\0\0\0\x03\0")
    (guest.workdir / "utf16").write_bytes("text\n".encode("utf-16"))
    (guest.workdir / "zeros").write_bytes(bytes(100))
    for name in ("program", "utf16", "zeros"):
        assert ask(client, "tool.read", path=name)[1]["kind"] == "binary", name
    os.mkfifo(guest.workdir / "fifo")
    for path, reason in (("fifo", "NOT_A_FILE"), (".", "IS_A_DIRECTORY"), ("none", "FILE_NOT_FOUND")):
        with pytest.raises(GuestError) as caught:
            ask(client, "tool.read", path=path)
        assert caught.value.reason == reason
    assert ask(client, "tool.read", path="/proc/self/status")[0].startswith(b"Name:")


def test_write_makes_directories_and_keeps_the_mode(guest: RunningGuest, client: GuestClient) -> None:
    assert ask(client, "tool.write", b"one\n", path="a/b/c")[1] == {"created": True, "size": 4}
    (guest.workdir / "a/b/c").chmod(0o755)
    assert ask(client, "tool.write", b"", path="a/b/c")[1] == {"created": False, "size": 0}
    status = (guest.workdir / "a/b/c").stat()
    assert (status.st_size, status.st_mode & 0o777) == (0, 0o755)
    assert os.listdir(guest.workdir / "a/b") == ["c"]


# content, old, new, what becomes of it
EDITS = [
    (b"a\r\nb\r\nc\r\n", b"b", b"B", b"a\r\nB\r\nc\r\n"),
    (b"a\r\nb\r\nc\r\n", b"a\nb", b"A\nB\nB", b"A\r\nB\r\nB\r\nc\r\n"),
    (b"a\r\nb\r\nc\r\n", b"b\r\n", b"", b"a\r\nc\r\n"),
    (b"a\nb\nc\n", b"b\n", b"B\r\n", b"a\nB\r\nc\n"),
    (b"a\nb\r\nc\nd\r\n", b"b\nc", b"B\nC", b"a\nB\r\nC\nd\r\n"),
    (b"a\nb\r\nc\n", b"a", b"A\nA", b"A\nA\nb\r\nc\n"),
    (b"a\nb\r\nc\n", b"b", b"B\nB", b"a\nB\r\nB\r\nc\n"),
    (b"\n\r\n", b"\n\n", b"x\n", b"x\n"),
    (b"\xef\xbb\xbfa\nb\n", b"a", b"A", b"\xef\xbb\xbfA\nb\n"),
    (b"\xff\xfe\x00 caf\xe9\nb\n", b"b", b"\xc3\xbc", b"\xff\xfe\x00 caf\xe9\n\xc3\xbc\n"),
    (b"no end", b"end", b"end\n", b"no end\n"),
]


def test_an_edit_changes_nothing_else(guest: RunningGuest, client: GuestClient) -> None:
    for content, old, new, changed in EDITS:
        (guest.workdir / "f").write_bytes(content)
        ask(client, "tool.read", path="f")
        assert edit(client, "f", old, new)["replaced"] == 1, content
        assert (guest.workdir / "f").read_bytes() == changed
        # What was written is known: a next edit needs no reading.
        assert edit(client, "f", changed[:1], b"!", replace_all=True)["replaced"], content


def test_an_edit_needs_one_exact_place(guest: RunningGuest, client: GuestClient) -> None:
    (guest.workdir / "f").write_bytes(b"aaa\nb\nb\n")
    ask(client, "tool.read", path="f")
    assert edit(client, "f", b"c", b"d") == {"refused": "absent"}
    assert edit(client, "f", b"b", b"d") == {"refused": "ambiguous", "count": 2}
    assert edit(client, "f", b"aa", b"d")["refused"] == "ambiguous"
    assert (guest.workdir / "f").read_bytes() == b"aaa\nb\nb\n"
    assert edit(client, "f", b"b", b"d", replace_all=True) == {"replaced": 2, "line": 2}
    assert (guest.workdir / "f").read_bytes() == b"aaa\nd\nd\n"
    (guest.workdir / "mixed").write_bytes(b"a\r\nb\na\nb\n")
    ask(client, "tool.read", path="mixed")
    assert edit(client, "mixed", b"a\nb", b"x\ny")["refused"] == "ambiguous"
    assert edit(client, "mixed", b"a\nb", b"x\ny", replace_all=True)["replaced"] == 2
    assert (guest.workdir / "mixed").read_bytes() == b"x\r\ny\nx\ny\n"


def test_a_stale_edit_is_refused_by_content(guest: RunningGuest, client: GuestClient) -> None:
    path = guest.workdir / "f"
    path.write_bytes(b"one")
    assert edit(client, "f", b"one", b"two") == {"refused": "unread"}
    ask(client, "tool.read", path="f")
    ask(client, "tool.read", path="f", reader="other")
    assert edit(client, "f", b"one", b"two", reader="other")["replaced"] == 1
    # Within one second, of the same size, with the same time.
    os.utime(path, ns=(1, 1))
    assert edit(client, "f", b"one", b"six") == {"refused": "changed"}
    assert edit(client, "f", b"two", b"six") == {"refused": "changed"}
    ask(client, "tool.read", path="f")
    assert edit(client, "f", b"two", b"six")["replaced"] == 1
    # What is there again counts, not that it was touched.
    path.write_bytes(b"other")
    path.write_bytes(b"six")
    assert edit(client, "f", b"six", b"ten")["replaced"] == 1
    os.symlink("f", guest.workdir / "link")
    assert edit(client, "link", b"ten", b"end")["replaced"] == 1
    assert path.read_bytes() == b"end"
    assert (guest.workdir / "link").is_symlink()


def test_edits_of_one_reader_at_once_all_count(guest: RunningGuest, client: GuestClient) -> None:
    names = [f"<{number}>" for number in range(40)]
    (guest.workdir / "f").write_text("\n".join(names))
    ask(client, "tool.read", path="f")
    streams = [opened(client, "tool.edit", name.encode() + b"done", path="f", old_size=len(name)) for name in names]
    assert [answer(stream)[1]["replaced"] for stream in streams] == [1] * len(names)
    assert (guest.workdir / "f").read_text() == "\n".join(["done"] * len(names))


def test_two_readers_at_once_lose_nothing(guest: RunningGuest, client: GuestClient) -> None:
    (guest.workdir / "f").write_bytes(b"0")
    for reader in ("a", "b"):
        ask(client, "tool.read", path="f", reader=reader)
    streams = [
        opened(client, "tool.edit", b"0" + name, path="f", old_size=1, reader=name.decode()) for name in (b"a", b"b")
    ]
    results = [answer(stream)[1] for stream in streams]
    assert sorted(result.get("refused", "") for result in results) == ["", "changed"]
    winner = b"a" if "replaced" in results[0] else b"b"
    assert (guest.workdir / "f").read_bytes() == winner


def test_a_new_guest_asks_for_reading(guest: RunningGuest, client: GuestClient) -> None:
    (guest.workdir / "f").write_bytes(b"one")
    ask(client, "tool.read", path="f")
    guest.kill()
    guest.start()
    with guest.connect() as again:
        assert edit(again, "f", b"one", b"two") == {"refused": "unread"}
        ask(again, "tool.read", path="f")
        assert edit(again, "f", b"one", b"two")["replaced"] == 1


def test_glob_is_sorted_bounded_and_knows_what_is_ignored(guest: RunningGuest, client: GuestClient) -> None:
    work = guest.workdir
    for name in ("src/b.py", "src/a.py", "node_modules/x.py", "src/deep/c.py", "keep.log", "drop.log", "src/gen/g.py"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("x")
    (work / ".git").mkdir()
    (work / ".git" / "y.py").write_text("x")
    (work / ".gitignore").write_text("# comment\nnode_modules/\n*.log\n!keep.log\n\\#odd\n[broken\n")
    (work / "src" / ".gitignore").write_text("/gen\n!*.log\n")
    for index, name in enumerate(("src/a.py", "src/deep/c.py", "src/b.py")):
        os.utime(work / name, (index, index))
    os.symlink("/etc", work / "outside")
    assert search(client, globs=["**/*.py"]) == (["src/b.py", "src/deep/c.py", "src/a.py"], {"shown": 3, "count": 3})
    assert search(client, globs=["**/*.py"], limit=1) == (["src/b.py"], {"shown": 1, "count": 3})
    assert search(client, globs=["*.log"])[0] == ["keep.log"]
    assert search(client, path="src", globs=["*.py", "deep/*"])[0] == ["src/b.py", "src/deep/c.py", "src/a.py"]
    assert search(client, path="node_modules", globs=["**"])[0] == ["node_modules/x.py"]
    assert {"node_modules/x.py", "drop.log", "src/gen/g.py", ".git/y.py"} <= set(
        search(client, globs=["**"], include_ignored=True)[0]
    )
    assert not [path for path in search(client, globs=["**"])[0] if path.startswith("outside/")]
    assert search(client, path=str(work / "src"), globs=["a.py"])[0] == ["src/a.py"]
    assert search(client, path="/etc", globs=["passwd"])[0] == ["/etc/passwd"]
    assert search(client, path="none", globs=["*"])[1] == {"problem": "missing"}
    assert search(client, path="keep.log", globs=["*"])[1] == {"problem": "not a directory"}
    assert "without '..'" in search(client, globs=["../*"])[1]["problem"]


def test_grep(guest: RunningGuest, client: GuestClient) -> None:
    work = guest.workdir
    (work / "a.py").write_text("one\nTwo words\nthree\nfour\ntwo\n")
    (work / "b.txt").write_bytes(b"tw\xff\r\ntwo\r\n\xc3\xbcber\n")
    (work / "blob").write_bytes(b"two\0\x01\x02two")
    os.symlink("a.py", work / "link.py")
    os.mkfifo(work / "fifo")
    assert search(client, pattern="two") == (
        ["a.py", "b.txt"],
        {"files": 2, "matches": 2, "more": False, "skipped": 0},
    )
    assert search(client, pattern="two", mode="count", ignore_case=True)[0] == ["a.py:2", "b.txt:1"]
    assert search(client, pattern="^two$", mode="content")[0] == ["a.py:5:two", "b.txt:2:two"]
    assert search(client, pattern=r"\w+ber", mode="content")[0] == ["b.txt:3:über"]
    assert search(client, pattern="Two", mode="content", before=1, after=1)[0] == [
        "a.py-1-one",
        "a.py:2:Two words",
        "a.py-3-three",
    ]
    assert search(client, pattern="one|four", mode="content", after=1)[0] == [
        "a.py:1:one",
        "a.py-2-Two words",
        "--",
        "a.py:4:four",
        "a.py-5-two",
    ]
    found, result = search(client, pattern="o", mode="content", limit=2)
    assert (found, result["more"]) == (["a.py:1:one", "a.py:2:Two words"], True)
    assert search(client, pattern="words.three", mode="content", multiline=True)[0] == [
        "a.py:2:Two words",
        "a.py:3:three",
    ]
    assert search(client, pattern="two", globs=["**/*.txt"])[0] == ["b.txt"]
    assert search(client, pattern="two", path="a.py", mode="count")[0] == ["a.py:1"]
    assert "unterminated" in search(client, pattern="(a")[1]["invalid"]
    (work / "wide").write_text("x" * 5000 + "needle" + "y" * 5000)
    [line] = search(client, pattern="needle", mode="content")[0]
    assert "needle" in line
    assert len(line) < 600


def test_a_hostile_expression_is_stopped(guest: RunningGuest, client: GuestClient) -> None:
    (guest.workdir / "a").write_text("found\n")
    (guest.workdir / "b").write_text("a" * 50 + "!\n")
    started = time.monotonic()
    slow = opened(client, "tool.search", path=".", pattern="found|(a+)+$", seconds=0.5)
    # The guest serves others meanwhile.
    assert search(client, pattern="fo+und")[0] == ["a"]
    assert time.monotonic() - started < 10
    data, result = answer(slow)
    assert (data, result) == (b"a\n", {"stopped": "time"})


def test_a_search_that_nobody_waits_for_is_ended(guest: RunningGuest, client: GuestClient) -> None:
    (guest.workdir / "b").write_text("a" * 50 + "!\n")
    streams = [opened(client, "tool.search", path=".", pattern="(a+)+$", seconds=60) for _ in range(6)]
    deadline = time.monotonic() + 20
    while len(_children(guest)) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(_children(guest)) == 4, "the others wait for their turn"
    for stream in streams:
        stream.cancel()
    while _children(guest) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _children(guest)
    assert search(client, pattern="!")[0] == ["b"]


def test_a_huge_directory(guest: RunningGuest, client: GuestClient) -> None:
    directory = guest.workdir / "many"
    directory.mkdir()
    for number in range(20_000):
        os.close(os.open(directory / f"f{number:05}", os.O_CREAT | os.O_WRONLY))
    found, result = search(client, globs=["**/*9"], limit=10)
    assert (len(found), result["count"]) == (10, 2000)
    (directory / "f19999").write_text("needle")
    assert search(client, pattern="needle")[0] == ["many/f19999"]


def test_one_stream_of_output(client: GuestClient) -> None:
    script = "import os\nfor n in range(50):\n os.write(1 + n % 2, b'%d.' % n)\n"
    done = client.open(
        "process.start", {"spec": {"argv": ["python3", "-c", script], "merge": True}, "attach": {"offset": 0}}
    ).records()
    assert done.stdout == b"".join(b"%d." % n for n in range(50))
    assert done.eofs == ["stdout"]
    fed = client.open(
        "process.start",
        {"process_id": "fed", "spec": {"shell": "cat >&2", "merge": True, "stdin": True}, "attach": {"offset": 0}},
    )
    writing = client.open("process.stdin", {"process_id": "fed", "offset": 0})
    writing.send(b"through")
    writing.client.send(wire.MESSAGE, writing.id, {"close": True})
    writing.end()
    assert fed.records().stdout == b"through"


def _resident(guest: RunningGuest) -> int:
    return int(Path(f"/proc/{guest.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _children(guest: RunningGuest) -> list[str]:
    listed = subprocess.run(["ps", "--ppid", str(guest.pid), "-o", "pid="], check=False, capture_output=True, text=True)
    return listed.stdout.split()
