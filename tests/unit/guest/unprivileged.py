"""A program of test_files: file operations as a user who is not root."""

from __future__ import annotations

import ctypes  # noqa: F401 - loaded while the interpreter's own files can still be read, as the next two are
import grp  # noqa: F401
import hashlib  # noqa: F401
import os
import pwd  # noqa: F401
import sys
import tempfile
from pathlib import Path

sys.path[:0] = sys.argv[1:3]

from tests.support.scripted_stream import Handler, ScriptedGuest, ScriptedStream  # noqa: E402
from workspaced_guest import files, listing, transfer  # noqa: E402
from workspaced_guest.fault import Fault  # noqa: E402

UID = 65534


def main() -> None:
    """Exit 0 when all holds."""
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        guest = ScriptedGuest.at(base)
        work = Path(guest.workdir)
        (work / "roots").write_text("x")
        (work / "roots").chmod(0o600)
        (work / "sticky").mkdir(mode=0o755)
        for path in (base, work, Path(guest.state_dir)):
            os.chown(path, UID, UID)
        if os.geteuid() == 0:
            os.setegid(UID)
            os.seteuid(UID)
        try:
            check(guest, work)
        finally:
            if os.getuid() == 0:
                os.seteuid(0)
                os.setegid(0)


def check(guest: ScriptedGuest, work: Path) -> None:
    """What an ordinary user sees."""
    (work / "t" / "closed" / "in").mkdir(parents=True)
    (work / "t" / "z").write_text("")
    (work / "t" / "closed").chmod(0)
    page = ScriptedStream().run(listing.list_files, guest, path="t", recursive=True)
    assert [entry["path"] for entry in page["entries"]] == ["t/closed", "t/z"], page
    assert page["denied"] == ["t/closed"], page
    (work / "t" / "closed").chmod(0o400)
    page = ScriptedStream().run(listing.list_files, guest, path="t", recursive=True)
    assert page["denied"] == ["t/closed"], page
    denied(guest, files.copy_file, "t/closed/in", path="t", to="u", recursive=True)
    assert not (work / "u").exists()
    (work / "t").chmod(0o500)
    assert ScriptedStream().run(files.remove_file, guest, path="t", recursive=True) == {"removed": 4}
    denied(guest, transfer.read_file, "roots", path="roots")
    denied(guest, transfer.append_file, "roots", path="roots")
    denied(guest, transfer.write_file, "sticky/x", path="sticky/x")
    denied(guest, files.make_directory, "sticky/x", path="sticky/x")
    # Its directory is ours, so the file may be replaced; its owner can't be kept.
    written = ScriptedStream([b"new"]).run(transfer.write_file, guest, path="roots")
    assert written["stat"]["uid"] == UID, written
    assert written["stat"]["mode"] == 0o600, written


def denied(guest: ScriptedGuest, handler: Handler, named: str, **params: object) -> None:
    """Check that the operation is refused in words that name the path."""
    try:
        ScriptedStream().run(handler, guest, **params)
    except Fault as fault:
        told = (fault.reason, fault.metadata["path"])
    else:
        told = ("", "")
    assert told == ("FILE_PERMISSION_DENIED", named), told


main()
