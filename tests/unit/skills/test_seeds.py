"""Seed skills: what a spec may name, and what is packed."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from tests.support.skill_archives import skill_md
from workspaced.v1.workspace_pb2 import WorkspaceSpec
from workspaced_server.errors import WorkspacedError
from workspaced_server.skills import seeds
from workspaced_server.skills.seeds import SeedChecker, pack

pytestmark = pytest.mark.anyio


def make(root: Path, directory: str, name: str = "", content: bytes | None = None) -> str:
    path = root / directory
    path.mkdir(parents=True)
    (path / "SKILL.md").write_bytes(skill_md(name or directory) if content is None else content)
    return str(path)


async def violations(roots: list[Path], *paths: str) -> dict[str, str]:
    try:
        await SeedChecker(roots)(WorkspaceSpec(seed_skills=paths))
    except WorkspacedError as error:
        return {violation.field: violation.description for violation in error.violations}
    return {}


async def test_what_is_refused_is_named(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    good = make(root, "good")
    outside = make(other, "outside")
    (root / "link").symlink_to(outside)
    (root / "inner").symlink_to("good")
    (root / "file").write_text("x")
    (root / "bare").mkdir()
    (root / "linked").mkdir()
    (root / "linked" / "SKILL.md").symlink_to(outside + "/SKILL.md")
    (root / "pipe").mkdir()
    os.mkfifo(root / "pipe" / "SKILL.md")
    cases = {
        "relative": "absolute path",
        outside: "not below one of",
        f"{root}/../other/outside": "not below one of",
        f"{root}/link": "not below one of",
        str(root): "not below one of",
        f"{root}/missing": "no directory",
        f"{root}/file": "no directory",
        f"{root}/bare": "no SKILL.md",
        f"{root}/linked": "no SKILL.md",
        f"{root}/pipe": "no file",
        make(root, ".dot"): "with a dot",
        make(root, "large", content=skill_md() + b"x" * (1 << 20)): "larger than 1 MiB",
        make(root, "bad", content=b"nothing"): "no valid skill",
        make(root, "upper", "GOOD"): "same name",
        make(root / "b", "Good", "another"): "same directory's name",
        f"{root}/inner": "same name",
    }
    for path, expected in cases.items():
        found = await violations([root], good, path)
        assert list(found) == ["spec.seed_skills[1]"], (path, found)
        assert expected in found["spec.seed_skills[1]"]
    assert await violations([root], good) == {}
    assert await violations([]) == {}
    assert "no `seed_skill_roots`" in (await violations([], good))["spec.seed_skills[0]"]
    assert "more than 200" in (await violations([root], *[good] * 201))["spec.seed_skills"]


async def test_the_seed_has_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path, "s")
    monkeypatch.setattr(seeds, "MAX_MEMBERS", 1)
    assert await violations([tmp_path], path) == {}
    (Path(path) / "x").touch()
    assert "makes the seed larger" in (await violations([tmp_path], path))["spec.seed_skills[0]"]


async def test_what_is_packed(tmp_path: Path) -> None:
    path = make(tmp_path, "s")
    (Path(path) / "run").write_text("#!/bin/sh\n")
    (Path(path) / "run").chmod(0o4755)
    os.link(Path(path) / "run", Path(path) / "same")
    (Path(path) / "link").symlink_to("run")
    os.mkfifo(Path(path) / "fifo")
    with await pack([path], [tmp_path]) as archive, tarfile.open(fileobj=archive) as tar:
        members = {member.name: member for member in tar}
        assert list(members) == ["s", "s/SKILL.md", "s/link", "s/run", "s/same"]
        assert (members["s/same"].isreg(), members["s/same"].mode, members["s/link"].linkname) == (True, 0o755, "run")
        assert {(member.uid, member.uname) for member in members.values()} == {(0, "")}


async def test_a_seed_that_has_gone(tmp_path: Path) -> None:
    with pytest.raises(WorkspacedError) as caught:
        await pack([f"{tmp_path}/gone"], [tmp_path])
    assert (caught.value.code.name, caught.value.reason) == ("FAILED_PRECONDITION", "SEED_SKILLS_UNAVAILABLE")
    assert "spec.seed_skills[0]" in caught.value.message
