"""stat, mkdir, move, copy, remove, list."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted_stream import Handler, ScriptedGuest, ScriptedStream
from workspaced_guest import files, listing
from workspaced_guest.fault import Fault
from workspaced_guest.glob import Glob
from workspaced_guest.stream import StreamCancelled


def call(guest: ScriptedGuest, handler: Handler, **params: Any) -> dict[str, Any]:
    return ScriptedStream().run(handler, guest, **params)


def refused(guest: ScriptedGuest, handler: Handler, **params: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        call(guest, handler, **params)
    return caught.value


def test_stat_tells_everything(scripted_guest: ScriptedGuest, work: Path) -> None:
    (work / "a").write_bytes(b"hello")
    (work / "a").chmod(0o640)
    os.symlink("a", work / "link")
    found = call(scripted_guest, files.stat_file, path="a", hash=True)
    assert found["sha256"] == "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    status = found["stat"]
    assert (status["path"], status["name"], status["type"], status["size"]) == ("a", "a", "file", 5)
    assert status["mode"] == 0o640
    assert status["mtime_ns"] == str((work / "a").stat().st_mtime_ns)
    assert call(scripted_guest, files.stat_file, path="link")["stat"]["type"] == "file"
    link = call(scripted_guest, files.stat_file, path="link", follow=False)["stat"]
    assert (link["type"], link["target"]) == ("symlink", "a")


@pytest.mark.parametrize("name", ["new\nline", "b\udcffd", "n" * 255, " ", "-rf", "ü€𝄞", "a\tb\\"])
def test_special_names_everywhere(scripted_guest: ScriptedGuest, work: Path, name: str) -> None:
    assert call(scripted_guest, files.make_directory, path=name)["created"]
    assert (work / name).is_dir()
    (work / name / name).write_bytes(b"x")
    listed = call(scripted_guest, listing.list_files, path=".", recursive=True)["entries"]
    assert [entry["path"] for entry in listed] == [name, f"{name}/{name}"]
    copied = call(scripted_guest, files.copy_file, path=f"{name}/{name}", to="copy")
    assert copied["bytes"] == 1
    call(scripted_guest, files.move_file, path="copy", to=f"{name}/{name}", overwrite=True)
    assert call(scripted_guest, files.remove_file, path=name, recursive=True) == {"removed": 2}


@pytest.mark.parametrize(
    ("handler", "params", "reason"),
    [
        (files.stat_file, {"path": "no"}, "FILE_NOT_FOUND"),
        (files.stat_file, {"path": "file/"}, "NOT_A_DIRECTORY"),
        (files.stat_file, {"path": "dir", "hash": True}, "IS_A_DIRECTORY"),
        (files.stat_file, {"path": "fifo", "hash": True}, "NOT_A_FILE"),
        (files.make_directory, {"path": "file"}, "FILE_EXISTS"),
        (files.make_directory, {"path": "file", "exist_ok": True}, "FILE_EXISTS"),
        (files.make_directory, {"path": "dir"}, "FILE_EXISTS"),
        (files.make_directory, {"path": "no/no"}, "FILE_NOT_FOUND"),
        (files.make_directory, {"path": "file/no", "parents": True}, "NOT_A_DIRECTORY"),
        (files.make_directory, {"path": "z" * 256}, "ARGUMENT_INVALID"),
        (files.move_file, {"path": "no", "to": "x"}, "FILE_NOT_FOUND"),
        (files.move_file, {"path": "file", "to": "full"}, "FILE_EXISTS"),
        (files.move_file, {"path": "file", "to": "full", "overwrite": True}, "IS_A_DIRECTORY"),
        (files.move_file, {"path": "full", "to": "file", "overwrite": True}, "NOT_A_DIRECTORY"),
        (files.move_file, {"path": "dir", "to": "full", "overwrite": True}, "DIRECTORY_NOT_EMPTY"),
        (files.move_file, {"path": "full", "to": "full/in"}, "ARGUMENT_INVALID"),
        (files.move_file, {"path": "file", "to": "no/x"}, "FILE_NOT_FOUND"),
        (files.move_file, {"path": ".", "to": "x"}, "ARGUMENT_INVALID"),
        (files.copy_file, {"path": "full", "to": "x"}, "IS_A_DIRECTORY"),
        (files.copy_file, {"path": "full", "to": "full/in", "recursive": True}, "ARGUMENT_INVALID"),
        (files.copy_file, {"path": "file", "to": "full/kept"}, "FILE_EXISTS"),
        (files.copy_file, {"path": "socket", "to": "x"}, "NOT_A_FILE"),
        (files.remove_file, {"path": "no"}, "FILE_NOT_FOUND"),
        (files.remove_file, {"path": "full"}, "DIRECTORY_NOT_EMPTY"),
        (files.remove_file, {"path": "linkdir/"}, "NOT_A_DIRECTORY"),
        (files.remove_file, {"path": ".", "recursive": True}, "ARGUMENT_INVALID"),
        (files.remove_file, {"path": "..", "recursive": True}, "ARGUMENT_INVALID"),
        (files.remove_file, {"path": "/", "recursive": True}, "ARGUMENT_INVALID"),
        (files.remove_file, {"path": "../work", "recursive": True}, "ARGUMENT_INVALID"),
        (files.remove_file, {"path": "file", "if_match": "0" * 64}, "CONTENT_CHANGED"),
        (files.remove_file, {"path": "file", "if_match": "nonsense"}, "ARGUMENT_INVALID"),
        (listing.list_files, {"path": "file"}, "NOT_A_DIRECTORY"),
        (listing.list_files, {"path": "no"}, "FILE_NOT_FOUND"),
        (listing.list_files, {"path": ".", "page_token": "zz"}, "ARGUMENT_INVALID"),
        (listing.list_files, {"path": ".", "page_token": "2e2e"}, "ARGUMENT_INVALID"),
        (listing.list_files, {"path": ".", "glob": "../*"}, "ARGUMENT_INVALID"),
    ],
)
def test_reasons(
    scripted_guest: ScriptedGuest, work: Path, handler: Handler, params: dict[str, Any], reason: str
) -> None:
    (work / "file").write_text("x")
    (work / "dir").mkdir()
    (work / "full").mkdir()
    (work / "full" / "kept").write_text("x")
    os.symlink("full", work / "linkdir")
    os.mkfifo(work / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(work / "socket"))
    before = snapshot(work)
    fault = refused(scripted_guest, handler, **params)
    assert fault.reason == reason, fault.message
    assert snapshot(work) == before
    if reason != "ARGUMENT_INVALID":
        named = {shown for key in ("path", "to") if (shown := params.get(key))}
        assert any(fault.message.startswith(name) for name in named), fault.message


def snapshot(work: Path) -> set[str]:
    return {str(path) for path in work.rglob("*")}


def test_mkdir_parents_mode_and_again(scripted_guest: ScriptedGuest, work: Path) -> None:
    made = call(scripted_guest, files.make_directory, path="a/b/c/", parents=True, mode=0o2770)
    assert (made["created"], made["stat"]["mode"]) == (True, 0o2770)
    again = call(scripted_guest, files.make_directory, path="a/b/c", exist_ok=True)
    assert (again["created"], again["stat"]["mode"]) == (False, 0o2770)


def test_move_file_and_directory(scripted_guest: ScriptedGuest, work: Path) -> None:
    (work / "a").write_text("a")
    (work / "b").write_text("b")
    moved = call(scripted_guest, files.move_file, path="a", to="b", overwrite=True)
    assert moved["stat"]["path"] == "b"
    assert (work / "b").read_text() == "a"
    (work / "d").mkdir()
    call(scripted_guest, files.move_file, path="d", to="e/")
    os.symlink("nowhere", work / "l")
    call(scripted_guest, files.move_file, path="l", to="m")
    assert os.readlink(work / "m") == "nowhere"


@pytest.fixture
def other_file_system(scripted_guest: ScriptedGuest, work: Path) -> Iterator[Path]:
    """A directory that is not on the workdir's file system."""
    base = Path("/dev/shm")
    assert base.stat().st_dev != work.stat().st_dev
    with tempfile.TemporaryDirectory(dir=base) as name:
        yield Path(name)


def sample_tree(top: Path) -> None:
    (top / "sub" / "empty").mkdir(parents=True)
    (top / "sub" / "script").write_bytes(os.urandom(100_000))
    (top / "sub" / "script").chmod(0o751)
    os.link(top / "sub" / "script", top / "same")
    os.symlink("/etc", top / "out")
    os.symlink("no\udcff", top / "sub" / "broken")
    os.mkfifo(top / "fifo")
    os.utime(top / "sub" / "script", ns=(1, 1_000_000_007))
    (top / "sub").chmod(0o555)


def check_sample(top: Path, script: bytes) -> None:
    assert (top / "sub" / "script").read_bytes() == script
    status = (top / "sub" / "script").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_mtime_ns, status.st_nlink) == (0o751, 1_000_000_007, 2)
    assert (top / "same").stat().st_ino == status.st_ino
    assert os.readlink(top / "out") == "/etc"
    assert os.readlink(top / "sub" / "broken") == "no\udcff"
    assert stat.S_ISFIFO((top / "fifo").lstat().st_mode)
    assert stat.S_IMODE((top / "sub").stat().st_mode) == 0o555


def test_move_across_file_systems(scripted_guest: ScriptedGuest, work: Path, other_file_system: Path) -> None:
    (work / "t").mkdir()
    sample_tree(work / "t")
    script = (work / "t" / "same").read_bytes()
    call(scripted_guest, files.move_file, path="t", to=str(other_file_system / "t"))
    check_sample(other_file_system / "t", script)
    assert not (work / "t").exists()
    assert os.listdir(other_file_system) == ["t"]


def test_copy_keeps_modes_times_and_links(scripted_guest: ScriptedGuest, work: Path) -> None:
    (work / "t").mkdir()
    sample_tree(work / "t")
    copied = call(scripted_guest, files.copy_file, path="t", to="u", recursive=True)
    assert copied["bytes"] == 100_000
    check_sample(work / "u", (work / "t" / "same").read_bytes())
    assert sorted(os.listdir(work)) == ["t", "u"]
    assert call(scripted_guest, files.remove_file, path="u", recursive=True)["removed"] == 8


def test_cancelled_copy_and_move_leave_nothing(
    scripted_guest: ScriptedGuest, work: Path, other_file_system: Path
) -> None:
    (work / "t").mkdir()
    sample_tree(work / "t")
    before = snapshot(work)
    for step in range(1, 200):
        stream = ScriptedStream(cancel_at=step)
        try:
            stream.run(files.copy_file, scripted_guest, path="t", to="u", recursive=True)
        except StreamCancelled:
            assert snapshot(work) == before
            with pytest.raises(StreamCancelled):
                ScriptedStream(cancel_at=step).run(
                    files.move_file, scripted_guest, path="t", to=str(other_file_system / "t")
                )
            assert snapshot(work) == before
            assert os.listdir(other_file_system) == []
        else:
            break
    assert step > 5
    assert os.listdir(Path(scripted_guest.state_dir) / "uploads") == []


def test_remove_never_follows(scripted_guest: ScriptedGuest, work: Path) -> None:
    (work / "kept").mkdir()
    (work / "kept" / "file").write_text("x")
    (work / "t").mkdir()
    os.symlink("../kept", work / "t" / "link")
    os.symlink("kept", work / "top")
    assert call(scripted_guest, files.remove_file, path="top", recursive=True) == {"removed": 1}
    assert call(scripted_guest, files.remove_file, path="t", recursive=True) == {"removed": 2}
    assert (work / "kept" / "file").exists()
    assert call(scripted_guest, files.remove_file, path="t/x/y", allow_missing=True) == {"removed": 0}


@pytest.fixture
def deep(work: Path) -> Iterator[None]:
    """Directories deeper than a path can be long, and than there may be descriptors; Python's own removal gives up."""
    descriptor = os.open(work, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    yield
    subprocess.run(["rm", "-rf", work / "d", work / "e"], check=True)


@pytest.mark.usefixtures("deep")
def test_a_tree_deeper_than_any_path(scripted_guest: ScriptedGuest) -> None:
    assert len(list_all(scripted_guest, path=".", recursive=True)) == 2048
    assert call(scripted_guest, files.copy_file, path="d", to="e", recursive=True)["bytes"] == 0
    assert call(scripted_guest, files.remove_file, path="e", recursive=True) == {"removed": 3000}
    assert call(scripted_guest, files.remove_file, path="d", recursive=True) == {"removed": 3000}


def test_without_privilege() -> None:
    """Read-only directories are removed, an unreadable one is told in a listing, and errors name the path."""
    program = Path(__file__).resolve().with_name("unprivileged.py")
    repository = program.parents[3]
    done = subprocess.run(
        [sys.executable, "-I", str(program), str(repository / "service"), str(repository)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr


def list_all(guest: ScriptedGuest, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        page = call(guest, listing.list_files, page_token=token, **params)
        found += page["entries"]
        token = page["next_page_token"]
        if not token:
            return found


def test_listing_is_sorted_paged_and_hides_parts(scripted_guest: ScriptedGuest, work: Path) -> None:
    for name in ("b", "a", "a-b", "c/x/y", "c/x/z", "c/w"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("")
    (work / (".a.workspaced-" + "0" * 24 + ".part")).write_text("")
    names = ["a", "a-b", "b", "c", "c/w", "c/x", "c/x/y", "c/x/z"]
    for size in range(1, 10):
        found = list_all(scripted_guest, path=".", recursive=True, page_size=size)
        assert [entry["path"] for entry in found] == names
    assert [entry["path"] for entry in list_all(scripted_guest, path=".")] == ["a", "a-b", "b", "c"]
    assert [entry["path"] for entry in list_all(scripted_guest, path="c", recursive=True, max_depth=1)] == [
        "c/w",
        "c/x",
    ]
    assert [entry["path"] for entry in list_all(scripted_guest, path="c/x/..")] == ["c/w", "c/x"]


def test_paging_is_stable_while_the_tree_changes(scripted_guest: ScriptedGuest, work: Path) -> None:
    for number in range(300):
        directory = work / f"d{number % 10}"
        directory.mkdir(exist_ok=True)
        (directory / f"{number:03}").write_text("")
    (work / "stays").write_text("")
    seen: list[str] = []
    token = ""
    page = 0
    while True:
        found = call(scripted_guest, listing.list_files, path=".", recursive=True, page_size=7, page_token=token)
        seen += [entry["path"] for entry in found["entries"]]
        token = found["next_page_token"]
        if not token:
            break
        page += 1
        # Remove what was listed last, and make what comes before and after it.
        last = work / seen[-1]
        if last.is_file() and last.name != "stays":
            last.unlink()
        (work / "d9" / f"new{page}").write_text("")
        (work / f"a{page}").write_text("")
    assert len(seen) == len(set(seen))
    assert {name for name in seen if "new" not in name and "/" in name} == {f"d{n % 10}/{n:03}" for n in range(300)}
    assert "stays" in seen


def test_a_page_fits_into_a_frame(scripted_guest: ScriptedGuest, work: Path) -> None:
    import json

    for number in range(500):
        (work / ("€" * 80 + f"{number:04}")).write_text("")
    page = call(scripted_guest, listing.list_files, path=".")
    assert len(json.dumps(page)) < 262_144
    assert page["next_page_token"]
    assert len(list_all(scripted_guest, path=".")) == 500


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", ["x.py"]),
        ("**/*.py", ["a/b/z.py", "a/y.py", "x.py"]),
        ("a/**", ["a/.h", "a/b", "a/b/z.py", "a/y.py"]),
        ("**", ["a", "a/.h", "a/b", "a/b/z.py", "a/y.py", "x.py"]),
        ("a/*/z.p?", ["a/b/z.py"]),
        ("**/b/**/z.py", ["a/b/z.py"]),
        ("[xy].py", ["x.py"]),
        ("**/**/y.py", ["a/y.py"]),
        ("b/*", []),
    ],
)
def test_glob(scripted_guest: ScriptedGuest, work: Path, pattern: str, expected: list[str]) -> None:
    (work / "a" / "b").mkdir(parents=True)
    for name in ("x.py", "a/y.py", "a/b/z.py", "a/.h"):
        (work / name).write_text("")
    for size in (1, 100):
        found = list_all(scripted_guest, path=".", glob=pattern, page_size=size)
        assert [entry["path"] for entry in found] == expected


def test_glob_does_not_blow_up() -> None:
    glob = Glob("/".join(["**", "*a*a*a*a*a*a*a*a*b"] * 20))
    states = glob.start
    for _ in range(50):
        states = glob.step(states, "a" * 255)
    assert not glob.matches(states)


@pytest.mark.parametrize("pace", range(1, 12))
def test_a_tree_that_somebody_else_removes_too(scripted_guest: ScriptedGuest, work: Path, pace: int) -> None:
    for number in range(6):
        (work / "tree" / str(number) / "below").mkdir(parents=True)
        (work / "tree" / str(number) / "below" / "file").touch()

    def on_step(step: int) -> None:
        # Behind, at and before the place where the operation is.
        shutil.rmtree(work / "tree" / str(step // pace % 6), ignore_errors=True)

    stream = ScriptedStream(on_step=on_step)
    stream.run(files.remove_file, scripted_guest, path="tree", recursive=True, allow_missing=True)
    assert not (work / "tree").exists()
