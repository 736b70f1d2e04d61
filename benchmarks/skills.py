"""Skills: what listing many costs."""

from __future__ import annotations

from benchmarks.agentscope import agentscope
from benchmarks.measure import Row, interleaved, medians, quartiles
from benchmarks.world import World

COUNT = 200
# As an agent itself writes them into its partition.
WRITE = rf"""
cd skills/default
for number in $(seq 0 {COUNT - 1}); do
    mkdir skill-$number
    echo "---\nname: skill-$number\ndescription: does thing $number\n---\n\nDo it." >skill-$number/SKILL.md
done
"""
ARCHIVED = "---\nname: archived\ndescription: came as an archive\n---\n\nDo it.\n"


async def listing(world: World) -> Row:
    """ListSkills with 200 skills, in Docker."""
    directory = world.scratch / "archived"
    directory.mkdir()
    (directory / "SKILL.md").write_text(ARCHIVED)
    await world.docker.skills.add(directory)
    written = await world.docker.run(WRITE)
    assert written.exit_code == 0, written.stderr

    async def ours() -> None:
        assert len(await world.docker.skills.list()) == COUNT + 1

    async with agentscope(world.scratch, docker=True) as peer:
        filled = await peer.do("fill_skills", count=COUNT)
        assert filled["count"] == COUNT, filled

        async def theirs() -> float:
            return await peer.seconds("list_skills")

        taken = await interleaved({"workspaced": ours, "AgentScope": theirs}, rounds=3, warmup=1)
        taken["workspaced"] += (await interleaved({"workspaced": ours}, rounds=40))["workspaced"]
    middle = medians(taken, 1000)
    mine = middle.pop("workspaced")
    return Row(
        f"ListSkills, {COUNT} skills, Docker", "ms", mine, middle, "at most 50 ms", f"{mine:.1f} ms", mine <= 50,
        samples=len(taken["workspaced"]), spread=quartiles(taken, 1000),
    )  # fmt: skip
