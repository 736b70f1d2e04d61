"""The text for the system prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.real_guest import Handle
from workspaced.v1 import mcp_pb2, workspace_pb2
from workspaced_server.errors import WorkspacedError
from workspaced_server.instructions import DEFAULT, PLACEHOLDERS, Instructions, check_template, render
from workspaced_server.partitions import Pair
from workspaced_server.skills.listing import Listing, Skill

pytestmark = pytest.mark.anyio

GOLDEN = Path(__file__).with_name("default_instructions.md")


NO_GUEST: Any = None


def workspace(instructions: str = "", workdir: str = "/workspace") -> Handle:
    """As much of a workspace as the text needs."""
    spec = workspace_pb2.WorkspaceSpec(backend=workspace_pb2.BACKEND_DOCKER, instructions=instructions)
    return Handle(NO_GUEST, "w1", workdir=workdir, spec=spec)


def skill(name: str, description: str = "What it is for.") -> Skill:
    return Skill(name, description, name, f"/workspace/skills/a/{name}", 0, "0" * 64, {})


class SomeSkills:
    """Skills of an agent that are known."""

    def __init__(self, *skills: Skill) -> None:
        self.skills = list(skills)
        self.asked: list[str | None] = []

    async def list(self, handle: object, agent_id: str | None) -> Listing:
        self.asked.append(agent_id)
        return Listing("/workspace/skills/a", skills=self.skills)


class SomeMcps:
    """MCP servers that are known."""

    def __init__(self, *statuses: mcp_pb2.McpStatus) -> None:
        self.known = list(statuses)
        self.asked = 0

    async def statuses(
        self, handle: object, pair: Pair, *, start: bool = True, wait: float | None = None
    ) -> list[mcp_pb2.McpStatus]:
        self.asked += 1
        return self.known


def mcp(name: str, state: mcp_pb2.McpState.ValueType = mcp_pb2.MCP_STATE_READY, **fields: Any) -> mcp_pb2.McpStatus:
    return mcp_pb2.McpStatus(mcp=mcp_pb2.Mcp(name=name), state=state, **fields)


def instructions(skills: SomeSkills, mcps: SomeMcps | None = None) -> Instructions:
    return Instructions(skills, mcps)  # type: ignore[arg-type]


async def test_the_default_text() -> None:
    skills = SomeSkills(skill("charts"), skill("pdf", "Read PDF\n\n# files.\n"))
    mcps = SomeMcps(
        mcp("files", tool_count=3, has_resources=True, instructions="Use it\nfor files."),
        mcp("one", tool_count=1),
        mcp("idle", mcp_pb2.MCP_STATE_IDLE, tool_count=2, has_prompts=True),
        mcp("dead", mcp_pb2.MCP_STATE_FAILED, error=mcp_pb2.McpError(mcp="dead", reason="MCP_START_FAILED")),
        mcp("slow", mcp_pb2.MCP_STATE_CONNECTING),
    )
    text, errors = await instructions(skills, mcps).text(workspace(), Pair("a", "s"))
    assert text == GOLDEN.read_text(encoding="utf-8")
    assert [(error.mcp, error.reason) for error in errors] == [("dead", "MCP_START_FAILED"), ("slow", "MCP_TIMEOUT")]
    assert skills.asked == ["a"]


async def test_without_skills_and_servers() -> None:
    text, errors = await instructions(SomeSkills()).text(workspace(), Pair())
    assert "A directory in `/workspace/skills/default` with a `SKILL.md`" in text
    assert "None is connected" in text
    assert "`/workspace/sessions/default/context.jsonl`" in text
    assert "{{" not in text
    assert errors == []
    many = [skill(f"s{number:03}") for number in range(300)]
    text, _ = await instructions(SomeSkills(*many)).text(workspace(), Pair())
    assert "**s199**" in text
    assert "**s200**" not in text
    assert "and 100 more" in text


async def test_a_template_pays_for_what_it_uses() -> None:
    skills, mcps = SomeSkills(skill("pdf")), SomeMcps(mcp("files"))
    made = instructions(skills, mcps)
    text, _ = await made.text(workspace("{{workdir}} {{ backend }} {{workspace_id}} {one} }} {{{{two}}"), Pair())
    assert text == "/workspace docker w1 {one} }} {{two}}"
    assert (skills.asked, mcps.asked) == ([], 0)
    text, _ = await made.text(workspace("{{skills}}"), Pair())
    assert (text.count("**pdf**"), mcps.asked) == (1, 0)
    text, _ = await made.text(workspace("Before.\n{{default}}After."), Pair())
    assert text.startswith("Before.\n# Your workspace")
    assert text.endswith("commits.\nAfter.")
    assert mcps.asked == 1


async def test_what_is_filled_in_is_not_looked_at_again() -> None:
    made = instructions(SomeSkills(skill("pdf", "{{workdir}} {{{{ {{nope}}")), SomeMcps(mcp("m", instructions="{{x}}")))
    text, _ = await made.text(workspace("{{skills}}{{mcps}}"), Pair())
    assert "{{workdir}} {{{{ {{nope}}" in text
    assert "{{x}}" in text
    text, _ = await made.text(workspace(), Pair())
    assert "{{workdir}} {{{{ {{nope}}" in text


@pytest.mark.parametrize(
    ("template", "named"),
    [
        ("{{nope}}", "nope"),
        ("{{}}", ""),
        ("{{workdir.__class__}}", "workdir.__class__"),
        ("{{WORKDIR}}", "WORKDIR"),
        ("a\n{{workdir", "{{"),
        ("{{ {{workdir}}", "{{"),
        ("{{a}b}}", "{{"),
    ],
)
async def test_a_broken_template_is_told(template: str, named: str) -> None:
    skills, mcps = SomeSkills(), SomeMcps()
    with pytest.raises(WorkspacedError) as caught:
        await instructions(skills, mcps).text(workspace("{{skills}}{{mcps}}" + template), Pair())
    assert (caught.value.code.name, caught.value.reason) == ("FAILED_PRECONDITION", "INSTRUCTIONS_TEMPLATE_INVALID")
    assert caught.value.metadata["placeholder"] == named
    assert (skills.asked, mcps.asked) == ([], 0), "nothing is started for it"


def test_every_placeholder_is_filled_in_and_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "skills.md").read_text(encoding="utf-8")
    for name in PLACEHOLDERS:
        assert render(f"{{{{{name}}}}}", workspace(), Pair(), [], []).strip()
        assert f"`{{{{{name}}}}}`" in page
    assert check_template(DEFAULT) <= set(PLACEHOLDERS)
    assert check_template("{{{{") == set()


def test_a_workspace_at_the_root() -> None:
    text = render(
        "{{workdir}} {{skills_directory}} {{session_directory}}",
        workspace(workdir="/"),
        Pair("default", "s/"[:1]),
        [],
        [],
    )
    assert text == "/ /skills/%64efault /sessions/s"
