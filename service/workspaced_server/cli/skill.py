"""`skill`: the skills of a workspace's agents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .agents import agent_option
from .arguments import Command
from .names import workspace_names
from .output import age, size
from .session import Session

if TYPE_CHECKING:
    import workspaced

workspace_argument = click.argument("workspace_id", metavar="ID", shell_complete=workspace_names)


@click.group()
def skill() -> None:
    """Install, list, show and remove skills. They belong to an agent."""


@skill.command(cls=Command)
@workspace_argument
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@click.option("--replace", is_flag=True, help="Replace a skill of the same name.")
@agent_option
@click.pass_obj
def add(session: Session, workspace_id: str, source: Path, replace: bool, agent_id: str | None) -> None:
    """Install a skill from a directory or an archive (zip, tar, tar.gz) of this machine, and print its name."""

    async def call() -> workspaced.SkillInfo:
        async with session.connect() as client:
            return await client.workspace(workspace_id).skills.add(source, replace=replace, agent_id=agent_id)

    info = session.run(call)
    if session.json:
        session.printer.document(info)
    else:
        session.printer.text(info.name)


@skill.command(cls=Command)
@workspace_argument
@agent_option
@click.pass_obj
def ls(session: Session, workspace_id: str, agent_id: str | None) -> None:
    """List the skills of an agent; what is no valid skill is told on standard error."""

    async def call() -> tuple[list[workspaced.SkillInfo], list[workspaced.SkillProblem]]:
        async with session.connect() as client:
            skills = client.workspace(workspace_id).skills
            return await skills.list(agent_id=agent_id), await skills.problems(agent_id=agent_id)

    found, problems = session.run(call)
    if session.json:
        session.printer.document({"skills": found, "problems": problems})
        return
    rows = [(info.name, age(info.update_time), info.description) for info in found]
    session.printer.table(("NAME", "CHANGED", "DESCRIPTION"), rows)
    for problem in problems:
        session.printer.note(f"{problem.path}: {problem.message} ({problem.reason})")


@skill.command(cls=Command)
@workspace_argument
@click.argument("name")
@click.option("--files", is_flag=True, help="List its files instead.")
@agent_option
@click.pass_obj
def show(session: Session, workspace_id: str, name: str, files: bool, agent_id: str | None) -> None:
    """Show the text of a skill."""

    async def call() -> workspaced.SkillDetail:
        async with session.connect() as client:
            return await client.workspace(workspace_id).skills.get(name, agent_id=agent_id)

    detail = session.run(call)
    if session.json:
        session.printer.document(detail)
    elif files:
        session.printer.table(("FILE", "SIZE"), [(file.path, size(file.size)) for file in detail.files])
    else:
        session.printer.text(detail.markdown.rstrip("\n"))


@skill.command(cls=Command)
@workspace_argument
@click.argument("name")
@click.option("-f", "--force", is_flag=True, help="A skill that does not exist is no error.")
@agent_option
@click.pass_obj
def rm(session: Session, workspace_id: str, name: str, force: bool, agent_id: str | None) -> None:
    """Remove a skill of an agent."""

    async def call() -> bool:
        async with session.connect() as client:
            return await client.workspace(workspace_id).skills.remove(name, allow_missing=force, agent_id=agent_id)

    removed = session.run(call)
    if session.json:
        session.printer.document({"removed": removed})
