"""Skills on every backend: real archives, hostile ones, edits of the agent itself, seeds."""

from __future__ import annotations

import asyncio
import hashlib
import io
import shutil
import subprocess
import time
import zipfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest

import workspaced
from tests.conformance.conftest import Make
from tests.support import skill_archives as archives
from tests.support.real_guest import error_info, reason
from tests.support.server import ServerProcess
from tests.support.skill_client import SkillClient
from workspaced.v1 import skill_pb2

pytestmark = pytest.mark.anyio

FILES = {
    "SKILL.md": archives.skill_md("pdf"),
    "scripts/run.sh": b"#!/bin/sh\necho run\n",
    "references/long-name/" + "n" * 90 + ".md": b"text\n",
    "caf\u00e9.txt": b"\xff\xfe\0",
    "empty.txt": b"",
}
LISTED = sorted((path, len(content), content.startswith(b"#!")) for path, content in FILES.items())


@pytest.fixture
async def channel(server: ServerProcess) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address, [("grpc.max_receive_message_length", 8 << 20)]) as opened:
        yield opened


@pytest.fixture
def skills(ws: workspaced.Workspace, channel: grpc.aio.Channel) -> SkillClient:
    return SkillClient(channel, ws.id)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    top = tmp_path / "pdf"
    for path, content in FILES.items():
        file = top / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(0o755 if content.startswith(b"#!") else 0o644)
    return top


async def run(ws: workspaced.Workspace, command: str) -> str:
    """What a command prints, in the workspace."""
    result = await ws.run(command)
    assert result.exit.code == 0, result
    return result.stdout.decode()


async def staging_is_gone(ws: workspaced.Workspace) -> None:
    """A failed call has answered before the guest has removed everything: wait until it has."""
    async with asyncio.timeout(30):
        while await run(ws, "ls -A skills 2>/dev/null | grep '^.staging' || true"):
            await asyncio.sleep(0.02)


def tool(command: str, package: str) -> str:
    found = shutil.which(command)
    assert found, f"{command} is missing: install {package}"
    return found


def gnu_tar(directory: Path, *options: str, wrapped: bool) -> bytes:
    names = [directory.name] if wrapped else ["."]
    place = directory.parent if wrapped else directory
    return subprocess.run([tool("tar", "tar"), "-c", *options, "-C", place, *names], check=True, capture_output=True).stdout


def bsdtar(directory: Path, *options: str, wrapped: bool) -> bytes:
    names = [directory.name] if wrapped else ["."]
    place = directory.parent if wrapped else directory
    command = [tool("bsdtar", "libarchive-tools"), "-c", *options, "-f", "-", "-C", place, *names]
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


@pytest.mark.parametrize("kind", REAL)
async def test_archives_of_real_tools(skills: SkillClient, directory: Path, kind: str) -> None:
    archive = REAL[kind](directory)
    added = await skills.add(archive, sha256=hashlib.sha256(archive).hexdigest())
    assert (added.skill.name, added.existing, added.replaced) == ("pdf", False, False)
    found = await skills.get("pdf")
    assert found.skill == added.skill
    assert found.markdown.encode() == FILES["SKILL.md"]
    assert sorted((file.path, file.size_bytes, file.executable) for file in found.files) == LISTED
    # The same content by another tool is the same skill.
    assert (await skills.add(archives.tar(FILES, mode="w:gz"))).existing


async def test_a_zip_of_windows(ws: workspaced.Workspace, skills: SkillClient) -> None:
    added = await skills.add(archives.windows_zip(FILES, "pdf"))
    found = await skills.get("pdf")
    # Windows knows no programs.
    assert sorted((file.path, file.size_bytes, file.executable) for file in found.files) == [
        (path, size, False) for path, size, _ in LISTED
    ]
    assert added.skill.path == f"{ws.info.workdir}/skills/default/pdf"
    assert (await run(ws, "cat 'skills/default/pdf/scripts/run.sh'")) == FILES["scripts/run.sh"].decode()
