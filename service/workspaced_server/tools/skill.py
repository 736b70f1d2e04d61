"""Skill: the instructions of a skill."""

from __future__ import annotations

from typing import Protocol

from workspaced_server.errors import WorkspacedError
from workspaced_server.skills.listing import Listing
from workspaced_server.skills.skills import SkillContent
from workspaced_server.tools.outcome import Call, Outcome, failed, said
from workspaced_server.workspaces.handle import Handle

_MAX_FILES = 200


class Skills(Protocol):
    """The skills of all workspaces."""

    async def get(self, handle: Handle, agent_id: str | None, name: str) -> SkillContent:
        """One skill. Raises WorkspacedError SKILL_NOT_FOUND, SKILL_INVALID."""
        ...

    async def list(self, handle: Handle, agent_id: str | None) -> Listing:
        """The skills that there are."""
        ...


async def skill(skills: Skills, call: Call) -> Outcome:
    """Show it."""
    name = call.input["skill"]
    try:
        found = await skills.get(call.handle, call.pair.agent_id, name)
    except WorkspacedError as error:
        if error.reason == "SKILL_NOT_FOUND":
            names = [found.name for found in (await skills.list(call.handle, call.pair.agent_id)).skills]
            return failed(f"There is no skill {name!r}. There are: {', '.join(names) or 'none'}.")
        if error.reason == "SKILL_INVALID":
            return failed(error.message)
        raise
    return said(shown(found))


def shown(found: SkillContent) -> str:
    """The text of a skill, with where its files are."""
    names = [file.path for file in found.files if file.path != "SKILL.md"]
    parts = [f"The skill is in {found.skill.path}; paths in it start there.", ""]
    if names:
        parts[1:1] = ["Its other files:", *names[:_MAX_FILES]]
        if len(names) > _MAX_FILES or found.files_truncated:
            parts.insert(-1, "[and more]")
    return "\n".join([*parts, found.markdown])
