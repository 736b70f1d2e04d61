"""Written by generate_sync.py from workspaced.skills; do not edit."""

from __future__ import annotations

from workspaced import skills as twin
from workspaced.skills import SkillDetail, SkillInfo, SkillProblem, Source

from .portal import call


class Skills:
    """Installs, lists and removes skills. They belong to an agent; without ``agent_id`` to one that no id can name."""

    def __init__(self, asynchronous: twin.Skills) -> None:
        self._twin = asynchronous

    def add(
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
        return call(
            self._twin.add(
                source,
                replace=replace,
                sha256=sha256,
                max_expanded_bytes=max_expanded_bytes,
                agent_id=agent_id,
                timeout=timeout,
            )
        )

    def get(self, name: str, *, agent_id: str | None = None) -> SkillDetail:
        """A skill with its text and the names of its files. Raises :class:`SkillNotFound`."""
        return call(self._twin.get(name, agent_id=agent_id))

    def remove(self, name: str, *, allow_missing: bool = False, agent_id: str | None = None) -> bool:
        """Remove a skill; whether there was one. :class:`SkillNotFound` without ``allow_missing``."""
        return call(self._twin.remove(name, allow_missing=allow_missing, agent_id=agent_id))

    def problems(self, *, agent_id: str | None = None) -> list[SkillProblem]:
        """The directories among an agent's skills that are none, with the reason."""
        return call(self._twin.problems(agent_id=agent_id))

    def list(self, *, agent_id: str | None = None) -> list[SkillInfo]:
        """The skills of an agent by name, as their files are now."""
        return call(self._twin.list(agent_id=agent_id))
