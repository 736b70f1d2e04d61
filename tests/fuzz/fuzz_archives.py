"""Fuzzes the readers of archives and what they make. Run: python -m tests.fuzz.fuzz_archives [options]"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["workspaced_guest"]):
    from workspaced_guest import archive, copying, tarmembers, zipmembers  # noqa: F401 - to be instrumented

from tests.support import skill_archives as archives
from tests.support.scripted_stream import ScriptedStream
from workspaced_guest.fault import Fault

LIMITS = archive.Limits(1_000_000, 100)
END = {"end": True}
_FILES = {"SKILL.md": archives.skill_md(), "a/b": b"content", "a/long" + "x" * 120: b""}
SEEDS = (
    archives.tar(_FILES),
    archives.tar(_FILES, mode="w:gz"),
    archives.macos_zip(_FILES, "pdf"),
    archives.zip_of(_FILES),
)


def test_one_input(data: bytes) -> None:
    """Whatever comes: a tree that stays below its directory and within the limits, or a Fault."""
    with tempfile.TemporaryDirectory() as outer:
        place = Path(outer, "tree")
        place.mkdir()
        directory = os.open(place, os.O_RDONLY)
        try:
            entries = archive.expand(ScriptedStream([data, END]), directory, LIMITS, "", None)  # type: ignore[arg-type]
            _check(place, entries)
        except Fault as fault:
            if not fault.reason.startswith("ARCHIVE_"):
                raise
        finally:
            os.close(directory)
        if [path.name for path in Path(outer).iterdir()] != ["tree"]:
            raise AssertionError("something is beside the tree")


def _check(place: Path, entries: archive.Entries) -> None:
    found = {str(path.relative_to(place)) for path in place.rglob("*")}
    if found != set(entries) or len(found) > LIMITS.members:
        raise AssertionError("the tree is not what was told")
    for path in place.rglob("*"):
        if not path.resolve().is_relative_to(place.resolve()):
            raise AssertionError(f"{path} leads out")
        if path.stat(follow_symlinks=False).st_size > LIMITS.size:
            raise AssertionError(f"{path} is too large")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(SEEDS):
            Path(corpus, str(number)).write_bytes(seed)
        atheris.Setup([*sys.argv, corpus], test_one_input)
        atheris.Fuzz()
