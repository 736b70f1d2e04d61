"""Paths: what they resolve to, and that a root is never left; the kernel's openat2(RESOLVE_BENEATH) is the oracle."""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.beneath import BENEATH_WORKS, open_beneath
from workspaced_guest.fault import Fault
from workspaced_guest.paths import resolve
from workspaced_guest.rename import SYSCALLS

PIECES = ["a", "b", "file", "in", "out", "up", "loop", "abs", "missing", "dangling", "deep", "..", ".", "", "\udcff"]


def build(directory: Path) -> Path:
    """A root with links of every kind, beside things that must not be reached."""
    root = directory / "root"
    (root / "a" / "b" / "deep").mkdir(parents=True)
    (root / "b").mkdir()
    (root / "file").write_text("inside")
    (root / "a" / "file").write_text("inside")
    (directory / "secret").mkdir()
    (directory / "secret" / "file").write_text("outside")
    for base in (root, root / "a", root / "a" / "b"):
        os.symlink("file" if base == root else "../file", base / "in")
        os.symlink(directory / "secret", base / "out")
        os.symlink("..", base / "up")
        os.symlink("loop", base / "loop")
        os.symlink("missing/there", base / "dangling")
    return root


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield build(Path(os.path.realpath(name)))


def reason(workdir: Path, path: object, root: object = None, *, parents: bool = False) -> str:
    with pytest.raises(Fault) as caught:
        resolve(str(workdir), path, root, parents=parents).close()
    return caught.value.reason


@settings(max_examples=600, deadline=None)
@given(parts=st.lists(st.sampled_from(PIECES), min_size=1, max_size=12), follow=st.booleans())
def test_below_a_root_agrees_with_the_kernel(tree: Path, parts: list[str], follow: bool) -> None:
    path = "/".join(parts)
    if not path or path.startswith("/"):
        return
    check_against_kernel(tree, path, follow)


def check_against_kernel(tree: Path, path: str, follow: bool) -> None:
    assert BENEATH_WORKS, "this kernel has no openat2 to compare with"
    expected = open_beneath(tree, path, follow=follow)
    try:
        with resolve(str(tree.parent), path, str(tree), follow=follow) as place:
            status = place.peek()
            real = os.path.realpath(f"/proc/self/fd/{place.directory}")
            assert (real + "/").startswith(f"{tree}/")
            found: object = (status.st_dev, status.st_ino) if status is not None else errno.ENOENT
    except Fault as fault:
        found = {
            "PATH_ESCAPES": errno.EXDEV,
            "FILE_NOT_FOUND": errno.ENOENT,
            "NOT_A_DIRECTORY": errno.ENOTDIR,
            "LINK_LOOP": errno.ELOOP,
        }[fault.reason]
    if path.endswith(("/", "/.")) and not follow:
        return  # the kernel follows a link before a slash; we tell that it is no directory
    assert found == expected


@pytest.mark.parametrize("path", ["../root/file", "out", "out/file", "a/out/file", "up/file", "a/../../secret", "/etc"])
def test_what_leads_out_is_refused(tree: Path, path: str) -> None:
    assert reason(tree.parent, path, "root") == "PATH_ESCAPES"


def test_absolute_path_and_link_below_the_root_are_inside(tree: Path, tmp_path: Path) -> None:
    root = build(tmp_path)
    os.symlink(root / "a" / "file", root / "abs")
    for path in ("abs", f"{root}/a/file"):
        with resolve(str(tmp_path), path, "root") as place:
            assert os.stat(place.name, dir_fd=place.directory).st_ino == (root / "a" / "file").stat().st_ino


def test_the_link_itself_is_reached_without_follow(tree: Path) -> None:
    with resolve(str(tree), "out", ".", follow=False) as place:
        assert place.name == "out"


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 4096, "\ud800", None, 3, b"a"])
def test_what_is_no_path_is_refused(tree: Path, path: object) -> None:
    assert reason(tree, path) == "ARGUMENT_INVALID"
    assert reason(tree, "file", path if path is not None else 3) == "ARGUMENT_INVALID"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("loop/x", "LINK_LOOP"),
        ("file/x", "NOT_A_DIRECTORY"),
        ("no/x", "FILE_NOT_FOUND"),
        ("y" * 256 + "/x", "ARGUMENT_INVALID"),
    ],
)
@pytest.mark.parametrize("root", [None, "."])
def test_reasons(tree: Path, path: str, expected: str, root: str | None) -> None:
    assert reason(tree, path, root) == expected


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (".", "."),
        ("a//b/./deep", "a/b/deep"),
        ("a/b/..", "a"),
        ("a/../b", "b"),
        ("/", "/"),
        ("/usr", "/usr"),
        ("..", None),
    ],
)
def test_shown_paths(tree: Path, path: str, shown: str | None) -> None:
    with resolve(str(tree), path) as place:
        assert place.shown == (shown or str(tree.parent))


def test_shown_path_below_the_workdir_also_when_given_absolute(tree: Path) -> None:
    with resolve(str(tree), f"{tree}/a/file") as place:
        assert place.shown == "a/file"
    with resolve(str(tree.parent), "a/file", "root") as place:
        assert place.shown == "root/a/file"


def test_parents_are_made_below_the_root_only(tmp_path: Path) -> None:
    with resolve(str(tmp_path), "x/y/z", "root", parents=True) as place:
        assert place.name == "z"
    assert (tmp_path / "root" / "x" / "y").is_dir()
    os.symlink(tmp_path, tmp_path / "root" / "out")
    assert reason(tmp_path, "out/new/z", "root", parents=True) == "PATH_ESCAPES"
    assert not (tmp_path / "new").exists()


def test_no_descriptor_is_left(tree: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in ("a/b/../../file", "out/x", "loop", "no/where", "dangling", "up/up/up"):
        for root in (None, "."):
            for follow in (True, False):
                try:
                    resolve(str(tree), path, root, follow=follow).close()
                except Fault:
                    continue
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_directory_swapped_for_a_link_meanwhile_leads_nowhere_else(tmp_path: Path) -> None:
    root = build(tmp_path)
    os.symlink(tmp_path / "secret", root / "swap")
    os.mkdir(root / "real")
    (root / "real" / "file").write_text("inside")
    libc = ctypes.CDLL(None)
    done = threading.Event()
    reasons: set[str] = set()

    def exchange() -> None:
        while not done.is_set():
            libc.syscall(
                SYSCALLS[os.uname().machine], -100, str(root / "swap").encode(), -100, str(root / "real").encode(), 2
            )

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        for _ in range(2000):
            try:
                with resolve(str(tmp_path), "real/../real/file", "root") as place:
                    descriptor = place.open_file()
                assert os.read(descriptor, 10) == b"inside"
                os.close(descriptor)
            except Fault as fault:
                reasons.add(fault.reason)
    finally:
        done.set()
        thread.join()
    assert reasons <= {"PATH_ESCAPES", "NOT_A_DIRECTORY", "LINK_LOOP", "FILE_NOT_FOUND"}
