"""What is sent of a directory that is a skill."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from workspaced import skills


def test_a_directory_is_packed_without_owners_and_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "SKILL.md").write_text("---\nname: a\ndescription: b\n---\n")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "scripts" / "run.sh").chmod(0o755)
    (tmp_path / "again").hardlink_to(tmp_path / "SKILL.md")
    (tmp_path / "link").symlink_to("SKILL.md")
    with tarfile.open(fileobj=io.BytesIO(skills._packed(tmp_path))) as archive:
        members = {member.name: member for member in archive.getmembers()}
        assert sorted(members) == ["SKILL.md", "again", "link", "scripts", "scripts/run.sh"]
        assert members["again"].isreg()
        assert members["link"].issym()
        assert members["scripts/run.sh"].mode & 0o111
        assert {member.uid for member in members.values()} == {0}
        again = archive.extractfile("again")
        assert again is not None
        assert again.read() == (tmp_path / "SKILL.md").read_bytes()
    monkeypatch.setattr(skills, "_MAX_DIRECTORY_BYTES", 10)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        skills._packed(tmp_path)
