"""What a workspace sends is not trusted: an archive changes nothing outside of the destination."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from workspaced_server.cli.archive import Tally, pack, unpack


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    info.size = 1 if kind == tarfile.REGTYPE else 0
    return info


def unpacked(root: Path, *members: tarfile.TarInfo) -> Tally:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info in members:
            tar.addfile(info, io.BytesIO(b"x") if info.isreg() else None)
    archive.seek(0)
    tally = Tally()
    unpack(root, archive.read, tally)
    return tally


@pytest.mark.parametrize(
    "members",
    [
        [member("../out")],
        [member("a/../../out")],
        [member("/tmp/workspaced-test-out")],
        [member("link", tarfile.SYMTYPE, "/etc")],
        [member("link", tarfile.SYMTYPE, "..")],
        [member("d", tarfile.DIRTYPE), member("d/link", tarfile.SYMTYPE, "../../out")],
        [member("hard", tarfile.LNKTYPE, "../secret")],
        [member("pipe", tarfile.FIFOTYPE)],
        [member("device", tarfile.CHRTYPE)],
    ],
    ids=lambda members: members[-1].name + (" → " + members[-1].linkname if members[-1].linkname else ""),
)
def test_what_leads_out_is_skipped(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    (tmp_path / "secret").write_text("kept")
    tally = unpacked(tmp_path / "root", *members)
    assert [name for name, _ in tally.skipped] == [members[-1].name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root", "secret"]
    assert not Path("/tmp/workspaced-test-out").exists()
    assert [path.name for path in (tmp_path / "root").rglob("*") if path.name != "d"] == []


def test_nothing_goes_through_a_link(tmp_path: Path) -> None:
    """Neither one that the archive brings, nor one that is there before."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (outside / "file").write_text("kept")
    root = tmp_path / "root"
    root.mkdir()
    (root / "there").symlink_to(outside)
    (root / "file").symlink_to(outside / "file")
    tally = unpacked(
        root,
        member("there/file"),
        member("here", tarfile.DIRTYPE),
        member("brought", tarfile.SYMTYPE, "here"),
        member("brought/file"),
        member("file"),
        member("through", tarfile.SYMTYPE, "there/../../x"),
    )
    assert [name for name, _ in tally.skipped] == ["there/file", "brought/file", "through"]
    assert (outside / "file").read_text() == "kept"
    assert ((root / "file").is_symlink(), (root / "file").read_text()) == (False, "x")


def test_a_directory_replaces_a_link(tmp_path: Path) -> None:
    """The mode is that of the directory made, not of what the link led to."""
    (tmp_path / "outside").mkdir(mode=0o700)
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "d").symlink_to(tmp_path / "outside")
    unpacked(tmp_path / "root", member("d", tarfile.DIRTYPE, mode=0o755), member("d/file"))
    assert not (tmp_path / "root" / "d").is_symlink()
    assert (tmp_path / "outside").stat().st_mode & 0o777 == 0o700
    assert list((tmp_path / "outside").iterdir()) == []


def test_rights_of_other_users_are_not_taken_over(tmp_path: Path) -> None:
    unpacked(tmp_path / "root", member("setuid", mode=0o6777), member("hidden", mode=0))
    assert (tmp_path / "root" / "setuid").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "root" / "hidden").stat().st_mode & 0o7777 == 0o600


def test_odd_times_and_names_do_not_end_the_copy(tmp_path: Path) -> None:
    late = member("late")
    late.pax_headers = {"mtime": "1e300"}
    tally = unpacked(tmp_path / "root", late, member("after"))
    assert [name for name, _ in tally.skipped] == ["late"]
    assert not (tmp_path / "root" / "late").exists(), "what is told as skipped is not there"
    assert (tmp_path / "root" / "after").read_text() == "x"


def test_there_and_back(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "sub" / "program").write_text("#!/bin/sh\n")
    (source / "sub" / "program").chmod(0o750)
    os.utime(source / "sub" / "program", (5, 5))
    (source / "link").symlink_to("sub/program")
    archive = io.BytesIO()

    def write(data: bytes) -> None:
        archive.write(data)

    pack(source, write, Tally())
    archive.seek(0)
    tally = Tally()
    unpack(tmp_path / "back", archive.read, tally)
    assert (tally.files, tally.skipped) == (2, [])
    found = (tmp_path / "back" / "sub" / "program").stat()
    assert (found.st_mode & 0o777, found.st_mtime) == (0o750, 5)
    assert (tmp_path / "back" / "link").readlink() == Path("sub/program")
    assert (tmp_path / "back" / "sub" / "empty").is_dir()
