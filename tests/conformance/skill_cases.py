"""What the tests of skills share: a skill, a client of its RPCs, and a look into the workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

import workspaced
from tests.support import skill_archives as archives

FILES = {
    "SKILL.md": archives.skill_md("pdf"),
    "scripts/run.sh": b"#!/bin/sh\necho run\n",
    "references/long-name/" + "n" * 90 + ".md": b"text\n",
    "caf\u00e9.txt": b"\xff\xfe\0",
    "empty.txt": b"",
}


async def run(ws: workspaced.Workspace, command: str) -> str:
    """What a command prints, in the workspace."""
    result = await ws.run(command)
    assert result.exit.ok, result
    return result.stdout.decode()


async def staging_is_gone(ws: workspaced.Workspace) -> None:
    """A failed call has answered before the guest has removed everything: wait until it has."""
    async with asyncio.timeout(30):
        while await run(ws, "ls -A skills 2>/dev/null | grep '^.staging' || true"):
            await asyncio.sleep(0.02)


async def refusal(work: Awaitable[object]) -> workspaced.WorkspacedError:
    with pytest.raises(workspaced.WorkspacedError) as caught:
        await work
    return caught.value
