"""What a guest tells of a partition, and what it means: skills, and directories that are none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workspaced_guest.front import MAX_FRONT_BYTES
from workspaced_server.guest import answers
from workspaced_server.skills.frontmatter import FrontMatter, FrontMatterInvalid, folded, parse

MAX_FILE_BYTES = 1024 * 1024
_MAX_DIRECTORY_BYTES = 200
_TOO_LARGE = "SKILL.md is larger than 1 MiB"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LAST_NS = 253_402_300_799 * 10**9
_UNREADABLE = {
    "link": "is a link, and no directory of this partition",
    "not_a_file": "SKILL.md is no regular file",
    "unreadable": "cannot be read",
    "too_large": _TOO_LARGE,
}


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill. ``directory`` is its name below the partition as the guest writes it, ``path`` is absolute inside the
    workspace; ``update_ns`` is in nanoseconds of the epoch.
    """

    name: str
    description: str
    directory: str
    path: str
    update_ns: int
    sha256: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """A directory that is no valid skill."""

    path: str
    reason: str
    message: str


@dataclass(slots=True)
class Listing:
    """A partition: skills by name, and problems by path. ``directories`` maps every name that is taken, folded, to the
    directory that has it, also when its SKILL.md is too large to be a skill.
    """

    partition: str
    skills: list[Skill] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    directories: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, entry: answers.Answer) -> None:
        """Take in one directory. Raises WorkspacedError GUEST_ERROR when the entry is malformed."""
        directory = entry.get("directory")
        if not isinstance(directory, str) or not directory:
            raise answers.malformed()
        path = f"{self.partition}/{answers.printable(directory)}"
        problem = answers.text(entry, "problem")
        if problem == "missing":
            self.problems.append(Problem(path, "SKILL_MD_MISSING", "there is no SKILL.md"))
            return
        if problem and problem != "too_large":
            detail = answers.text(entry, "detail")
            text = _UNREADABLE.get(problem, "cannot be read") + (f": {detail[:200]}" if detail else "")
            self.problems.append(Problem(path, "SKILL_UNREADABLE", text))
            return
        try:
            front = front_matter(entry)
        except FrontMatterInvalid as error:
            self.problems.append(Problem(path, "SKILL_FRONT_MATTER_INVALID", str(error)))
            return
        taken = self.directories.setdefault(folded(front.name), (front.name, directory))
        if taken[1] != directory:
            text = f"the name {front.name!r} is that of the skill {taken[0]!r} in {answers.printable(taken[1])}"
            self.problems.append(Problem(path, "SKILL_NAME_DUPLICATE", text))
        elif problem:
            self.problems.append(Problem(path, "SKILL_UNREADABLE", _TOO_LARGE))
        else:
            self.skills.append(skill_of(entry, front, path, directory))

    def finish(self, truncated: bool) -> None:
        """All directories are told."""
        self.skills.sort(key=lambda skill: skill.name)
        if truncated:
            text = "has too many directories or front matters that are too long; not all of it is listed"
            self.problems.append(Problem(self.partition, "SKILL_UNREADABLE", text))

    def find(self, name: str) -> Skill | None:
        """The skill of just this name."""
        return next((skill for skill in self.skills if skill.name == name), None)

    def directory_of(self, name: str) -> str | None:
        """The directory whose front matter has just this name, whatever else is wrong with it."""
        taken = self.directories.get(folded(name))
        return taken[1] if taken is not None and taken[0] == name else None


def front_matter(entry: answers.Answer) -> FrontMatter:
    """The front matter of an entry. Raises FrontMatterInvalid, WorkspacedError GUEST_ERROR."""
    front = entry.get("front")
    if front is not None and (not isinstance(front, str) or len(front) > MAX_FRONT_BYTES):
        raise answers.malformed()
    return parse(front)


def skill_of(entry: answers.Answer, front: FrontMatter, path: str, directory: str) -> Skill:
    """The skill that an entry stands for. Raises WorkspacedError GUEST_ERROR."""
    digits = answers.text(entry, "mtime_ns", "0")
    sha256 = answers.text(entry, "sha256")
    if not _SHA256.fullmatch(sha256) or not re.fullmatch(r"-?[0-9]{1,20}", digits):
        raise answers.malformed()
    update_ns = max(0, min(int(digits), _LAST_NS))
    return Skill(front.name, front.description, directory, path, update_ns, sha256, front.metadata)


def directory_for(name: str) -> str:
    """The directory that a new skill gets, when it is free: its name, without what is awkward in a path."""
    text = "".join(character if character.isalnum() or character in "._-" else "-" for character in name)
    text = text.strip(".-").encode()[:_MAX_DIRECTORY_BYTES].decode("utf-8", "ignore")
    return text or "skill"
