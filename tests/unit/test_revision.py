"""The revision of the API goes up with each change of the contract."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("revision", ROOT / "protos/revision.py")
assert _SPEC is not None
assert _SPEC.loader is not None
revision = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(revision)

RECORD = "1 aaaa\n2 bbbb\n"


def test_the_contract_has_its_revision() -> None:
    number, digest = revision.current()
    record = revision.RECORD.read_text("utf-8")
    assert revision.check(number, digest, record) == record
    assert subprocess.run([sys.executable, ROOT / "protos/revision.py", "check"], check=False).returncode == 0


def test_a_new_revision_is_added_to_the_record() -> None:
    assert revision.check(3, "cccc", RECORD) == RECORD + "3 cccc\n"
    assert revision.check(2, "bbbb", RECORD) == RECORD


def test_a_changed_contract_without_a_new_revision_is_told_what_to_do() -> None:
    with pytest.raises(revision.RevisionError, match=r"server\.proto to 3 and run protos/generate"):
        revision.check(2, "cccc", RECORD)


@pytest.mark.parametrize("number", [1, 4])
def test_a_revision_is_neither_taken_back_nor_skipped(number: int) -> None:
    with pytest.raises(revision.RevisionError, match="it must be 2, or 3"):
        revision.check(number, "bbbb", RECORD)


@pytest.mark.parametrize("record", ["2 bbbb\n", "1 aaaa\n1 bbbb\n", "2 bbbb\n1 aaaa\n"])
def test_a_record_with_holes_is_refused(record: str) -> None:
    with pytest.raises(revision.RevisionError, match="one line for each revision"):
        revision.check(2, "bbbb", record)
