"""The skills of all workspaces: nothing is kept here, the files inside are the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.guest import answers
from workspaced_server.partitions import directory_name
from workspaced_server.skills import seeds
from workspaced_server.skills.frontmatter import FrontMatterInvalid, folded
from workspaced_server.skills.listing import MAX_FILE_BYTES, Listing, Skill, directory_for, front_matter, skill_of
from workspaced_server.workspaces.handle import Handle
from workspaced_server.workspaces.locks import KeyedLocks

if TYPE_CHECKING:
    from workspaced_server.guest.stream import GuestStream

MAX_EXPANDED_BYTES: Final = 512 << 20
MAX_MEMBERS: Final = 10_000
_MAX_FILES = 1000
# More than a guest tells of one partition.
_MAX_LISTED = 3000
_MAX_FRONTS_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class File:
    """A file of a skill; ``path`` is relative to its directory."""

    path: str
    size: int
    executable: bool


@dataclass(frozen=True, slots=True)
class SkillContent:
    """A skill with its text, and its files by path, the first 1,000."""

    skill: Skill
    markdown: str
    files: Sequence[File]
    files_truncated: bool


@dataclass(frozen=True, slots=True)
class Added:
    """What an installation came to."""

    skill: Skill
    existing: bool
    replaced: bool


class Skills:
    """Skills by workspace and agent. Every method raises WorkspacedError and ChannelLost, and fills the agent's
    partition from the seed when the agent has none.
    """

    def __init__(self, seed_roots: Sequence[Path] = ()) -> None:
        """``seed_roots`` are the directories of this server that seed skills may come from."""
        self._seed_roots = tuple(seed_roots)
        self._locks = KeyedLocks()

    async def list(self, handle: Handle, agent_id: str | None) -> Listing:
        """The agent's skills by name as their files are now; one round trip, but for the very first of a workspace
        with seed skills.
        """
        listing = await self._list(handle, agent_id)
        if listing is not None:
            return listing
        async with self._locks.hold(f"{handle.key}/"):
            # Another call may have brought the seed meanwhile.
            listing = await self._list(handle, agent_id)
            if listing is None:
                await self._send_seed(handle)
                listing = await self._list(handle, agent_id)
        if listing is None:
            raise _changed_meanwhile()
        return listing

    async def get(self, handle: Handle, agent_id: str | None, name: str) -> SkillContent:
        """One skill by its exact name. Raises NOT_FOUND, SKILL_NOT_FOUND; FAILED_PRECONDITION, SKILL_INVALID when
        its SKILL.md is larger than 1 MiB or not UTF-8.
        """
        listing = await self.list(handle, agent_id)
        directory = listing.directory_of(name)
        if directory is None:
            raise not_found(name)
        try:
            return await self._read(handle, listing, directory, name)
        except WorkspacedError as error:
            if error.reason == "FILE_NOT_FOUND":
                raise not_found(name) from None
            raise

    async def add(
        self,
        handle: Handle,
        agent_id: str | None,
        send: Callable[[GuestStream], Any],
        *,
        archive_format: str = "",
        replace: bool = False,
        sha256: str = "",
        max_expanded_bytes: int = MAX_EXPANDED_BYTES,
    ) -> Added:
        """Install the archive that ``send(stream)`` sends, an async context manager that does so while it is open.

        ``archive_format`` is ``zip``, ``tar``, ``tar.gz``, or empty. Raises what AddSkill's contract says. A failure
        or a cancellation leaves nothing.
        """
        params: dict[str, object] = {
            "partition": directory_name(agent_id),
            "format": archive_format,
            "max_bytes": max_expanded_bytes,
            "max_members": MAX_MEMBERS,
        }
        if sha256:
            params["sha256"] = sha256
        try:
            async with handle.guest.open("skill.install", params) as stream:
                async with send(stream):
                    entry = answers.record(answers.message(await stream.receive()), "skill")
                name = _acceptable(entry)
                async with self._changing(handle, agent_id):
                    listing = await self.list(handle, agent_id)
                    _, present = listing.directories.get(folded(name), ("", None))
                    await stream.message({"directory": directory_for(name), "present": present, "replace": replace})
                    if await stream.receive() is not None:
                        raise answers.malformed()
        except WorkspacedError as error:
            raise _changed_meanwhile() if error.reason == "FILE_NOT_FOUND" else error from None
        return self._added(listing, entry, stream.result, name)

    async def remove(self, handle: Handle, agent_id: str | None, name: str) -> bool:
        """Remove a skill by its exact name; whether there was one."""
        async with self._changing(handle, agent_id):
            directory = (await self.list(handle, agent_id)).directory_of(name)
            if directory is None:
                return False
            params = {"partition": directory_name(agent_id), "directory": directory}
            try:
                return answers.flag(await handle.guest.call("skill.remove", params), "removed")
            except WorkspacedError as error:
                if error.reason == "FILE_NOT_FOUND":
                    return False  # a reset was faster
                raise

    async def purge(self, handle: Handle, agent_id: str | None) -> int:
        """Remove all skills of an agent; how many there were. Should it come again, it starts from the seed."""
        async with self._changing(handle, agent_id):
            result = await handle.guest.call("skill.purge", {"partition": directory_name(agent_id)})
        return answers.integer(result, "removed", high=(1 << 32) - 1)

    def _changing(self, handle: Handle, agent_id: str | None) -> Any:
        return self._locks.hold(f"{handle.key}/{directory_name(agent_id)}")

    async def _list(self, handle: Handle, agent_id: str | None) -> Listing | None:
        """The listing, or None when the partition needs a seed that is not there."""
        partition = directory_name(agent_id)
        listing = Listing(_path(handle, partition))
        try:
            return await self._told(handle, listing, partition)
        except WorkspacedError as error:
            raise _changed_meanwhile() if error.reason == "FILE_NOT_FOUND" else error from None

    async def _told(self, handle: Handle, listing: Listing, partition: str) -> Listing | None:
        params = {"partition": partition, "seeded": bool(handle.spec.seed_skills)}
        count = size = 0
        async with handle.guest.open("skill.list", params) as stream:
            while (item := await stream.receive()) is not None:
                for entry in answers.records(answers.message(item), "skills"):
                    count += 1
                    size += len(answers.text(entry, "front"))
                    if count > _MAX_LISTED or size > _MAX_FRONTS_BYTES:
                        raise answers.malformed()
                    listing.add(entry)
                # YAML takes its time, and others wait for this loop too.
                await asyncio.sleep(0)
            if answers.flag(stream.result, "seed_missing"):
                return None
            listing.finish(answers.flag(stream.result, "truncated"))
        return listing

    async def _read(self, handle: Handle, listing: Listing, directory: str, name: str) -> SkillContent:
        files: list[File] = []
        content = bytearray()
        params = {"partition": listing.partition.rpartition("/")[2], "directory": directory}
        async with handle.guest.open("skill.read", params) as stream:
            entry = answers.record(answers.message(await stream.receive()), "skill")
            while (item := await stream.receive()) is not None:
                if isinstance(item, dict):
                    files += map(_file, answers.records(item, "files"))
                else:
                    content += item
                if len(files) > _MAX_FILES or len(content) > MAX_FILE_BYTES:
                    raise answers.malformed()
            truncated = answers.flag(stream.result, "truncated")
        if answers.text(entry, "problem") == "too_large":
            raise _invalid_now(name, "its SKILL.md is larger than 1 MiB")
        try:
            front = front_matter(entry)
        except FrontMatterInvalid:
            raise not_found(name) from None  # edited since the listing
        if front.name != name:
            raise not_found(name)
        try:
            markdown = content.decode("utf-8")
        except UnicodeDecodeError:
            raise _invalid_now(name, "its SKILL.md is not UTF-8") from None
        path = f"{listing.partition}/{answers.printable(directory)}"
        return SkillContent(skill_of(entry, front, path, directory), markdown, files, truncated)

    def _added(self, listing: Listing, entry: answers.Answer, result: answers.Answer, name: str) -> Added:
        outcome, directory = answers.text(result, "outcome"), result.get("directory")
        if outcome not in ("installed", "same", "taken", "replaced") or not isinstance(directory, str):
            raise answers.malformed()
        if outcome == "taken":
            raise _exists(
                name, next((taken for taken, place in listing.directories.values() if place == directory), name)
            )
        if outcome == "same":
            found = next((skill for skill in listing.skills if skill.directory == directory), None)
            if found is not None:
                return Added(found, existing=True, replaced=False)
        path = f"{listing.partition}/{answers.printable(directory)}"
        skill = skill_of(entry, front_matter(entry), path, directory)
        return Added(skill, existing=outcome == "same", replaced=outcome == "replaced")

    async def _send_seed(self, handle: Handle) -> None:
        with await seeds.pack(tuple(handle.spec.seed_skills), self._seed_roots) as archive:
            params = {"max_bytes": seeds.MAX_BYTES, "max_members": seeds.MAX_MEMBERS}
            async with handle.guest.open("skill.seed", params) as stream:
                while data := archive.read(256 * 1024):
                    await stream.send(data)
                await stream.message({"end": True})
                if await stream.receive() is not None:
                    raise answers.malformed()


def not_found(name: str) -> WorkspacedError:
    """The agent has no skill of this name."""
    return WorkspacedError(
        Code.NOT_FOUND,
        "SKILL_NOT_FOUND",
        f"there is no skill {name!r}; ListSkills tells the agent's skills, and what is wrong with others",
        {"name": name},
        resource=("skill", name),
    )


def _path(handle: Handle, partition: str) -> str:
    return f"{handle.workdir.rstrip('/')}/skills/{partition}"


def _acceptable(entry: answers.Answer) -> str:
    """The name of a skill that may be installed. Raises INVALID_ARGUMENT, SKILL_INVALID."""
    problem = answers.text(entry, "problem")
    if problem:
        text = "its SKILL.md is larger than 1 MiB" if problem == "too_large" else "its SKILL.md cannot be read"
        raise WorkspacedError(Code.INVALID_ARGUMENT, "SKILL_INVALID", f"the archive holds no valid skill: {text}")
    try:
        return front_matter(entry).name
    except FrontMatterInvalid as error:
        text = f"the archive holds no valid skill: {error}"
        raise WorkspacedError(Code.INVALID_ARGUMENT, "SKILL_INVALID", text) from None


def _exists(name: str, taken: str) -> WorkspacedError:
    other = "" if taken == name else f", as {taken!r}, which differs only in case"
    return WorkspacedError(
        Code.ALREADY_EXISTS,
        "SKILL_EXISTS",
        f"the agent has another skill {name!r}{other}; replace it with `replace`, or remove it first",
        {"name": taken},
        resource=("skill", taken),
    )


def _invalid_now(name: str, why: str) -> WorkspacedError:
    return WorkspacedError(
        Code.FAILED_PRECONDITION, "SKILL_INVALID", f"the skill {name!r} cannot be read: {why}", {"name": name}
    )


def _changed_meanwhile() -> WorkspacedError:
    return WorkspacedError(
        Code.ABORTED, "TREE_CHANGED", "the skills were removed meanwhile, by a reset or from inside; try again"
    )


def _file(entry: answers.Answer) -> File:
    return File(answers.text(entry, "path"), answers.integer(entry, "size"), answers.flag(entry, "executable"))
