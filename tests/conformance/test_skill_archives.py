"""Skills from real archives of several tools, and from hostile ones, on every backend."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import workspaced
from tests.conformance.skill_cases import FILES, refusal, run, staging_is_gone
from tests.support import skill_archives as archives
from tests.support.skill_client import SkillClient

pytestmark = pytest.mark.anyio

LISTED = sorted((path, len(content), content.startswith(b"#!")) for path, content in FILES.items())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    top = tmp_path / "pdf"
    for path, content in FILES.items():
        file = top / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(0o755 if content.startswith(b"#!") else 0o644)
    return top


def tool(command: str, package: str) -> str:
    found = shutil.which(command)
    assert found, f"{command} is missing: install {package}"
    return found


def gnu_tar(directory: Path, *options: str, wrapped: bool) -> bytes:
    names = [directory.name] if wrapped else ["."]
    place = directory.parent if wrapped else directory
    return subprocess.run(
        [tool("tar", "tar"), "-c", *options, "-C", place, *names], check=True, capture_output=True
    ).stdout


def bsdtar(directory: Path, *options: str, wrapped: bool) -> bytes:
    names = [directory.name] if wrapped else ["."]
    place = directory.parent if wrapped else directory
    command = [tool("bsdtar", "libarchive-tools"), "-c", *options, "-f", "-", "-C", str(place), *names]
    return subprocess.run(command, check=True, capture_output=True).stdout


def python_zip(directory: Path, wrapped: bool, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    base = directory.parent if wrapped else directory
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for path in sorted(directory.rglob("*")):
            archive.write(path, path.relative_to(base))
    return buffer.getvalue()


REAL: dict[str, Callable[[Path], bytes]] = {
    "gnu-tar": lambda directory: gnu_tar(directory, "--format=gnu", wrapped=True),
    "gnu-tar-flat": lambda directory: gnu_tar(directory, "--format=gnu", wrapped=False),
    "gnu-tar-posix-gz": lambda directory: gnu_tar(directory, "--format=posix", "-z", wrapped=True),
    "gnu-tar-ustar": lambda directory: gnu_tar(directory, "--format=ustar", wrapped=False),
    "bsdtar-pax": lambda directory: bsdtar(directory, "--format=pax", wrapped=True),
    "bsdtar-ustar-gz": lambda directory: bsdtar(directory, "--format=ustar", "-z", wrapped=False),
    "bsdtar-gnutar": lambda directory: bsdtar(directory, "--format=gnutar", wrapped=True),
    "bsdtar-zip": lambda directory: bsdtar(directory, "--format=zip", wrapped=True),
    "python-zip": lambda directory: python_zip(directory, wrapped=True),
    "python-zip-flat": lambda directory: python_zip(directory, wrapped=False),
    "python-zip-stored": lambda directory: python_zip(directory, True, zipfile.ZIP_STORED),
    "python-tar-gz": lambda directory: archives.tar(FILES, mode="w:gz"),
    "macos-zip": lambda directory: archives.macos_zip(FILES, "pdf"),
}


async def test_archives_of_real_tools(skills: SkillClient, directory: Path) -> None:
    for kind, pack in REAL.items():
        archive, mine = pack(directory), skills.of(kind)
        added = await mine.add(archive, sha256=hashlib.sha256(archive).hexdigest())
        assert (added.skill.name, added.existing, added.replaced) == ("pdf", False, False), kind
        found = await mine.get("pdf")
        assert found.skill == added.skill, kind
        assert found.markdown.encode() == FILES["SKILL.md"], kind
        assert sorted((file.path, file.size_bytes, file.executable) for file in found.files) == LISTED, kind
        # The same content by another tool is the same skill.
        assert (await mine.add(archives.tar(FILES, mode="w:gz"))).existing, kind


async def test_a_zip_of_windows(ws: workspaced.Workspace, skills: SkillClient) -> None:
    added = await skills.add(archives.windows_zip(FILES, "pdf"))
    found = await skills.get("pdf")
    # Windows knows no programs.
    assert sorted((file.path, file.size_bytes, file.executable) for file in found.files) == [
        (path, size, False) for path, size, _ in LISTED
    ]
    assert added.skill.path == f"{(await ws.info()).workdir}/skills/default/pdf"
    assert (await run(ws, "cat 'skills/default/pdf/scripts/run.sh'")) == FILES["scripts/run.sh"].decode()


SKILL = archives.tar_member("SKILL.md", archives.skill_md())
HOSTILE: dict[str, tuple[bytes, str]] = {
    "parent": (archives.hostile_skill(archives.tar_member("../evil", b"x")), "ARCHIVE_UNSAFE"),
    "parent-inside": (archives.hostile_skill(archives.tar_member("a/../../evil", b"x")), "ARCHIVE_UNSAFE"),
    "absolute": (archives.hostile_skill(archives.tar_member("/tmp/evil", b"x")), "ARCHIVE_UNSAFE"),
    "drive": (archives.zip_of({"SKILL.md": archives.skill_md(), "C:evil": b"x"}), "ARCHIVE_UNSAFE"),
    "drive-backslash": (archives.windows_zip({"SKILL.md": archives.skill_md(), "C:\\evil": b"x"}), "ARCHIVE_UNSAFE"),
    "unc": (archives.windows_zip({"SKILL.md": archives.skill_md(), "\\\\host\\evil": b"x"}), "ARCHIVE_UNSAFE"),
    "parent-backslash": (archives.windows_zip({"SKILL.md": archives.skill_md(), "..\\evil": b"x"}), "ARCHIVE_UNSAFE"),
    "zip-parent": (archives.zip_of({"SKILL.md": archives.skill_md(), "a/../../evil": b"x"}), "ARCHIVE_UNSAFE"),
    "zip-nul": (archives.zip_of({"SKILL.md": archives.skill_md(), "a\0b": b"x"}), "ARCHIVE_UNSAFE"),
    "newline": (archives.hostile_skill(archives.tar_member("a\nb", b"x")), "ARCHIVE_UNSAFE"),
    "backslash-in-tar": (archives.hostile_skill(archives.tar_member("a\\b", b"x")), "ARCHIVE_UNSAFE"),
    "link-out": (archives.hostile_skill(archives.tar_member("l", kind=b"2", link="../x")), "ARCHIVE_UNSAFE"),
    "link-absolute": (archives.hostile_skill(archives.tar_member("l", kind=b"2", link="/etc")), "ARCHIVE_UNSAFE"),
    "link-through-link": (
        archives.hostile_skill(
            archives.tar_member("s", kind=b"2", link="."), archives.tar_member("t", kind=b"2", link="s/..")
        ),
        "ARCHIVE_UNSAFE",
    ),
    "file-through-link": (
        archives.hostile_skill(archives.tar_member("d/f", b"x"), archives.tar_member("l", kind=b"2", link="d"),
                               archives.tar_member("l/evil", b"x")),
        "ARCHIVE_UNSAFE",
    ),
    "zip-link-out": (
        archives.raw_zip([
            archives.ZipMember(b"SKILL.md", archives.skill_md()),
            archives.ZipMember(b"l", b"/etc/passwd", mode=0o120777),
        ]),
        "ARCHIVE_UNSAFE",
    ),
    "hard-link": (archives.hostile_skill(archives.tar_member("h", kind=b"1", link="SKILL.md")), "ARCHIVE_UNSAFE"),
    "hard-link-out": (archives.hostile_skill(archives.tar_member("h", kind=b"1", link="/etc/x")), "ARCHIVE_UNSAFE"),
    "fifo": (archives.hostile_skill(archives.tar_member("f", kind=b"6")), "ARCHIVE_UNSAFE"),
    "character-device": (archives.hostile_skill(archives.tar_member("c", kind=b"3")), "ARCHIVE_UNSAFE"),
    "block-device": (archives.hostile_skill(archives.tar_member("b", kind=b"4")), "ARCHIVE_UNSAFE"),
    "zip-fifo": (
        archives.raw_zip([
            archives.ZipMember(b"SKILL.md", archives.skill_md()),
            archives.ZipMember(b"f", mode=0o010644),
        ]),
        "ARCHIVE_UNSAFE",
    ),
    "twice": (archives.hostile_skill(SKILL), "ARCHIVE_UNSAFE"),
    "zip-twice": (
        archives.raw_zip([archives.ZipMember(b"SKILL.md", archives.skill_md())] * 2),
        "ARCHIVE_UNSAFE",
    ),
    "case": (archives.hostile_skill(archives.tar_member("skill.MD", b"x")), "ARCHIVE_UNSAFE"),
    "case-of-directory": (
        archives.hostile_skill(archives.tar_member("A/x", b"x"), archives.tar_member("a/y", b"x")),
        "ARCHIVE_UNSAFE",
    ),
    "accents": (
        archives.hostile_skill(archives.tar_member("caf\u00e9", b"x"), archives.tar_member("cafe\u0301", b"x")),
        "ARCHIVE_UNSAFE",
    ),
    "directory-and-file": (
        archives.hostile_skill(archives.tar_member("a/x", b"x"), archives.tar_member("a", b"x")),
        "ARCHIVE_UNSAFE",
    ),
    "deep": (archives.hostile_skill(archives.tar_member("a/" * 33 + "x", b"x")), "ARCHIVE_UNSAFE"),
    "not-utf8": (archives.hostile_skill(archives.tar_member("caf\udce9", b"x")), "ARCHIVE_INVALID"),
    "tar-bomb": (archives.tar_bomb(), "ARCHIVE_TOO_LARGE"),
    "lying-tar-bomb": (archives.lying_tar_bomb(), "ARCHIVE_TOO_LARGE"),
    "header-bomb": (archives.header_bomb(), "ARCHIVE_INVALID"),
    "zip-bomb": (archives.zip_bomb(), "ARCHIVE_TOO_LARGE"),
    "lying-zip": (
        archives.raw_zip([
            archives.ZipMember(b"SKILL.md", archives.skill_md()),
            archives.ZipMember(b"zeros", bytes(1 << 20), size=10),
        ]),
        "ARCHIVE_INVALID",
    ),
    "million-members": (archives.million_members(), "ARCHIVE_TOO_LARGE"),
    "many-members-tar": (archives.million_members_tar(), "ARCHIVE_TOO_LARGE"),
    "empty": (b"", "ARCHIVE_INVALID"),
    "rubbish": (b"rubbish" * 200, "ARCHIVE_INVALID"),
    "bzip2": (archives.tar(FILES, mode="w:bz2"), "ARCHIVE_INVALID"),
    "cut-tar": (archives.hostile_skill()[:700], "ARCHIVE_INVALID"),
    "cut-before-end": (archives.hostile_skill()[:-1024], "ARCHIVE_INVALID"),
    "cut-gzip": (archives.tar(FILES, mode="w:gz")[:-9], "ARCHIVE_INVALID"),
    "cut-zip": (archives.zip_of(FILES)[:-30], "ARCHIVE_INVALID"),
    "damaged-zip": (archives.zip_of(FILES).replace(b"PK\x01\x02", b"PK\x01\x03", 1), "ARCHIVE_INVALID"),
    "encrypted": (
        archives.raw_zip([archives.ZipMember(b"SKILL.md", archives.skill_md(), flags=1)]),
        "ARCHIVE_INVALID",
    ),
    "strange-method": (
        archives.raw_zip([archives.ZipMember(b"SKILL.md", archives.skill_md(), method=14)]),
        "ARCHIVE_INVALID",
    ),
    "no-skill": (archives.tar({"README.md": b"x"}), "SKILL_INVALID"),
    "other-case": (archives.tar({"skill.md": archives.skill_md()}), "SKILL_INVALID"),
    "two-wrappers": (archives.tar({"a/SKILL.md": archives.skill_md(), "b/x": b""}), "SKILL_INVALID"),
    "link-skill": (
        archives.raw_tar(
            archives.tar_member("real.md", archives.skill_md()),
            archives.tar_member("SKILL.md", kind=b"2", link="real.md"),
        ),
        "SKILL_INVALID",
    ),
}  # fmt: skip


async def test_hostile_archives_leave_nothing(ws: workspaced.Workspace, skills: SkillClient) -> None:
    await skills.add(archives.tar({"SKILL.md": archives.skill_md("kept")}))
    look = "find . | sort; ls -d ../evil ../../evil /evil /tmp/evil 2>/dev/null || true"
    before = await run(ws, look)
    for kind, (archive, expected) in HOSTILE.items():
        began = time.monotonic()
        error = await refusal(skills.add(archive))
        took = time.monotonic() - began
        assert error.reason == expected, (kind, error.message)
        assert took < 30, (kind, "not quick")
        if expected == "ARCHIVE_UNSAFE":
            assert error.metadata["member"], kind
        await staging_is_gone(ws)
        assert await run(ws, look) == before, kind


async def test_links_inside_are_kept(ws: workspaced.Workspace, skills: SkillClient) -> None:
    archive = archives.hostile_skill(
        archives.tar_member("a/b/file", b"content"),
        archives.tar_member("a/up", kind=b"2", link="../a/b/file"),
        archives.tar_member("dir", kind=b"2", link="a"),
        archives.tar_member("dangling", kind=b"2", link="nothing"),
    )
    await skills.add(archive)
    assert await run(ws, "cat skills/default/pdf/a/up skills/default/pdf/dir/b/file") == "contentcontent"


async def test_macos_litter_is_left_out(skills: SkillClient) -> None:
    await skills.add(archives.macos_zip(FILES, "pdf"))
    assert [file.path for file in (await skills.get("pdf")).files] == [path for path, _, _ in LISTED]


async def test_limits_of_the_caller(skills: SkillClient) -> None:
    archive = archives.tar({"SKILL.md": archives.skill_md(), "big": bytes(100_000)}, mode="w:gz")
    for limit, expected in ((50_000, "ARCHIVE_TOO_LARGE"), (1 << 60, "ARGUMENT_INVALID")):
        with pytest.raises(workspaced.WorkspacedError) as caught:
            await skills.add(archive, max_expanded_bytes=limit)
        assert caught.value.reason == expected
    assert not (await skills.add(archive, max_expanded_bytes=200_000)).existing
