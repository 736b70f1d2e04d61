"""Seed skills: directories of the server that every agent of a workspace starts with."""

from __future__ import annotations

import asyncio
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from workspaced.v1.workspace_pb2 import WorkspaceSpec
from workspaced_guest.front import front_of
from workspaced_server.errors import Code, FieldViolation, WorkspacedError, invalid
from workspaced_server.skills.frontmatter import FrontMatterInvalid, folded, parse

MAX_BYTES: Final = 512 << 20
MAX_MEMBERS: Final = 50_000
MAX_SEEDS: Final = 200
_MAX_FILE_BYTES = 1024 * 1024
_SPOOLED_BYTES = 8 << 20


class SeedChecker:
    """Refuses specs whose seed skills cannot be had, before a workspace is made of them."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)

    async def __call__(self, spec: WorkspaceSpec) -> None:
        """Raise INVALID_ARGUMENT naming every seed skill that breaks a rule."""
        if spec.seed_skills:
            violations = await asyncio.to_thread(_violations, tuple(spec.seed_skills), self._roots)
            if violations:
                raise invalid(*violations)


async def pack(paths: Sequence[str], roots: Sequence[Path]) -> IO[bytes]:
    """The seed skills as one tar, each in a directory of its own, rewound; close it.

    Raises FAILED_PRECONDITION, SEED_SKILLS_UNAVAILABLE when they have changed for the worse since.
    """
    return await asyncio.to_thread(_pack, tuple(paths), tuple(roots))


def _pack(paths: Sequence[str], roots: Sequence[Path]) -> IO[bytes]:
    violations = _violations(paths, roots)
    if violations:
        text = "; ".join(f"{violation.field} {violation.description}" for violation in violations[:3])
        raise _unavailable(text)
    archive = tempfile.SpooledTemporaryFile(_SPOOLED_BYTES)  # noqa: SIM115 - the caller closes it
    try:
        with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in paths:
                _add(tar, os.path.realpath(path), Path(path).name)
        archive.seek(0)
    except OSError as error:
        archive.close()
        raise _unavailable(error.strerror or "they cannot be read") from error
    except BaseException:
        archive.close()
        raise
    return archive


def _add(tar: tarfile.TarFile, path: str, name: str) -> None:
    """Add an entry and what is below it. Two names of one file are two files, which a guest takes; what is neither a
    file, a directory nor a link is left out.
    """
    status = os.lstat(path)
    member = tarfile.TarInfo(name)
    member.mode = stat.S_IMODE(status.st_mode) & 0o755
    if stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
        tar.addfile(member)
        for entry in sorted(Path(path).iterdir()):
            _add(tar, str(entry), f"{name}/{entry.name}")
    elif stat.S_ISLNK(status.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, str(Path(path).readlink())
        tar.addfile(member)
    elif stat.S_ISREG(status.st_mode):
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            member.size = os.fstat(file.fileno()).st_size
            tar.addfile(member, file)


def _unavailable(text: str) -> WorkspacedError:
    return WorkspacedError(
        Code.FAILED_PRECONDITION,
        "SEED_SKILLS_UNAVAILABLE",
        f"the workspace's seed skills cannot be had any more: {text}",
    )


def _violations(paths: Sequence[str], roots: Sequence[Path]) -> list[FieldViolation]:
    found: list[FieldViolation] = []
    if len(paths) > MAX_SEEDS:
        return [FieldViolation("spec.seed_skills", f"are more than {MAX_SEEDS}")]
    real_roots = [os.path.realpath(root) for root in roots]
    names: dict[str, str] = {}
    directories: dict[str, str] = {}
    size = members = 0
    for index, path in enumerate(paths):
        field = f"spec.seed_skills[{index}]"
        try:
            name = _check(path, real_roots)
            for status in _content(os.path.realpath(path)):
                members += 1
                size += status.st_size if stat.S_ISREG(status.st_mode) else 0
                if size > MAX_BYTES or members > MAX_MEMBERS:
                    raise _Refused(f"makes the seed larger than {MAX_BYTES >> 20} MiB or {MAX_MEMBERS} files")
        except _Refused as refused:
            found.append(FieldViolation(field, str(refused)))
            continue
        except OSError as error:
            found.append(FieldViolation(field, f"cannot be read: {error.strerror}"))
            continue
        for known, key, what in ((names, name, "name"), (directories, Path(path).name, "directory's name")):
            if folded(key) in known:
                found.append(FieldViolation(field, f"has the same {what} as {known[folded(key)]!r}"))
                break
            known[folded(key)] = path
    return found


class _Refused(Exception):
    """A seed skill breaks a rule."""


def _check(path: str, roots: Sequence[str]) -> str:
    """The name of a seed skill. Raises _Refused, OSError."""
    if not Path(path).is_absolute() or "\0" in path:
        raise _Refused("must be an absolute path on the server")
    if not roots:
        raise _Refused("cannot be used: the server has no `seed_skill_roots` in its configuration")
    real = os.path.realpath(path)
    if not any(real.startswith(root.rstrip("/") + "/") for root in roots):
        # Whether something is there is nothing to tell a stranger.
        raise _Refused("is not below one of the server's `seed_skill_roots`")
    if not Path(real).is_dir():
        raise _Refused("is no directory on the server")
    if Path(path).name.startswith("."):
        raise _Refused("must not begin with a dot")
    try:
        descriptor = os.open(Path(real, "SKILL.md"), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise _Refused(f"has no SKILL.md that can be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _Refused("has a SKILL.md that is no file")
        content = file.read(_MAX_FILE_BYTES + 1)
    if len(content) > _MAX_FILE_BYTES:
        raise _Refused("has a SKILL.md larger than 1 MiB")
    front = front_of(content)
    try:
        return parse(None if front is None else front.decode("utf-8", "surrogateescape")).name
    except FrontMatterInvalid as error:
        raise _Refused(f"is no valid skill: {error}") from None


def _content(directory: str) -> Iterator[os.stat_result]:
    with os.scandir(directory) as entries:
        for entry in entries:
            yield entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                yield from _content(entry.path)
