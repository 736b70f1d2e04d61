"""The skills of a workspace's agents."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from .connection import Connection
from .content import plain
from .file_content import BytesContent, Content, PathContent
from .first_status import upload
from .info import when
from .v1 import discovery_pb2, management_pb2, skill_pb2

Source = str | os.PathLike[str] | bytes
"""A directory or an archive (zip, tar, tar.gz) by its path, or the bytes of an archive."""
_MAX_DIRECTORY_BYTES = 512 << 20


@dataclass(frozen=True)
class SkillInfo:
    """A skill: what a model sees of it, and where it lies in the workspace."""

    name: str
    description: str
    path: str
    update_time: datetime | None
    sha256: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_proto(cls, skill: skill_pb2.Skill) -> SkillInfo:
        """From the API."""
        metadata = plain(skill.metadata)
        return cls(skill.name, skill.description, skill.path, when(skill.update_time), skill.sha256, metadata)


@dataclass(frozen=True)
class SkillFile:
    """One file of a skill, by its path below the skill's directory."""

    path: str
    size: int
    executable: bool


@dataclass(frozen=True)
class SkillDetail:
    """A skill with the text of its ``SKILL.md`` and its files, of which the first 1,000 are listed."""

    info: SkillInfo
    markdown: str
    files: tuple[SkillFile, ...]
    files_truncated: bool


@dataclass(frozen=True)
class SkillProblem:
    """A directory that is no valid skill."""

    path: str
    reason: str
    message: str


class Skills:
    """Installs, lists and removes skills. They belong to an agent; without ``agent_id`` to one that no id can name."""

    def __init__(self, connection: Connection, workspace_id: str) -> None:
        self._connection = connection
        self._workspace_id = workspace_id

    async def add(
        self,
        source: Source,
        *,
        replace: bool = False,
        sha256: str = "",
        max_expanded_bytes: int = 0,
        agent_id: str | None = None,
        timeout: float | None = None,
    ) -> SkillInfo:
        """Install a skill from a directory (which is packed here), an archive or its bytes.

        Identical content again is fine; another skill of the name is :class:`SkillExists` unless ``replace``. Raises
        :class:`SkillInvalid`, :class:`ArchiveInvalid`, and :class:`OSError` for the local side. A call that fails or
        is cancelled leaves nothing.
        """
        content = await asyncio.to_thread(_content, source)
        start = management_pb2.AddSkillStart(
            workspace_id=self._workspace_id, agent_id=agent_id, replace=replace, sha256=sha256,
            max_expanded_bytes=max_expanded_bytes,
        )  # fmt: skip
        call = self._connection.management.AddSkill(metadata=self._connection.metadata, timeout=timeout)

        async def requests() -> AsyncGenerator[management_pb2.AddSkillRequest, None]:
            yield management_pb2.AddSkillRequest(start=start)
            async for chunk in content.chunks(0):
                yield management_pb2.AddSkillRequest(chunk=chunk)

        response: management_pb2.AddSkillResponse = await upload(self._connection, call, requests())
        return SkillInfo.from_proto(response.skill)

    async def get(self, name: str, *, agent_id: str | None = None) -> SkillDetail:
        """A skill with its text and the names of its files. Raises :class:`SkillNotFound`."""
        request = discovery_pb2.GetSkillRequest(workspace_id=self._workspace_id, agent_id=agent_id, name=name)
        response = await self._connection.unary(self._connection.discovery.GetSkill, request)
        files = tuple(SkillFile(file.path, file.size_bytes, file.executable) for file in response.files)
        info = SkillInfo.from_proto(response.skill)
        return SkillDetail(info, response.markdown, files, response.files_truncated)

    async def remove(self, name: str, *, allow_missing: bool = False, agent_id: str | None = None) -> bool:
        """Remove a skill; whether there was one. :class:`SkillNotFound` without ``allow_missing``."""
        request = management_pb2.RemoveSkillRequest(
            workspace_id=self._workspace_id, agent_id=agent_id, name=name, allow_missing=allow_missing
        )
        method = self._connection.management.RemoveSkill
        if allow_missing:
            return (await self._connection.unary(method, request)).removed
        return (await self._connection.once(method, request, timeout=self._connection.timeout)).removed

    async def problems(self, *, agent_id: str | None = None) -> list[SkillProblem]:
        """The directories among an agent's skills that are none, with the reason."""
        request = discovery_pb2.ListSkillsRequest(workspace_id=self._workspace_id, agent_id=agent_id, page_size=1)
        response = await self._connection.unary(self._connection.discovery.ListSkills, request)
        return [SkillProblem(problem.path, problem.reason, problem.message) for problem in response.problems]

    async def list(self, *, agent_id: str | None = None) -> list[SkillInfo]:
        """The skills of an agent by name, as their files are now."""
        found: list[SkillInfo] = []
        token = ""
        while True:
            request = discovery_pb2.ListSkillsRequest(
                workspace_id=self._workspace_id, agent_id=agent_id, page_size=1000, page_token=token
            )
            response = await self._connection.unary(self._connection.discovery.ListSkills, request)
            found += map(SkillInfo.from_proto, response.skills)
            token = response.next_page_token
            if not token:
                return found


def _content(source: Source) -> Content:
    if isinstance(source, bytes):
        return BytesContent(source)
    path = Path(source)
    return BytesContent(_packed(path)) if path.is_dir() else PathContent(path)


def _packed(directory: Path) -> bytes:
    """The files of a directory as a tar archive, without owners. Raises :class:`ValueError` when it is too large."""
    buffer = io.BytesIO()
    total = 0

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        nonlocal total
        total += member.size
        if total > _MAX_DIRECTORY_BYTES:
            raise ValueError(f"{directory} holds more than {_MAX_DIRECTORY_BYTES} bytes")
        archive.inodes.clear()  # type: ignore[attr-defined]  # each name of a file is a file of its own
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in sorted(directory.iterdir()):
            archive.add(entry, arcname=entry.name, filter=anonymous)
    return buffer.getvalue()
