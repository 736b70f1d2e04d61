"""Completion of ids: asks the server, briefly. A server that does not answer completes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from .failure import describe
from .session import Session

if TYPE_CHECKING:
    import workspaced


def _ask(
    context: click.Context, incomplete: str, ask: Callable[[workspaced.Client], Awaitable[list[str]]]
) -> list[CompletionItem]:
    session = context.ensure_object(Session)

    async def call() -> list[str]:
        async with session.connect(patient=False) as client:
            return await ask(client)

    try:
        names = session.run(call)
    except Exception as error:
        if describe(error) is None:
            raise
        return []  # a message would land in the middle of the user's command line
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def workspace_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of workspaces."""

    async def ask(client: workspaced.Client) -> list[str]:
        return [info.workspace_id for info in await client.list()]

    return _ask(context, incomplete, ask)


def process_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of processes in the workspace that was named before."""
    workspace_id: str = context.params.get("workspace_id") or ""

    async def ask(client: workspaced.Client) -> list[str]:
        return [info.process_id for info in await client.workspace(workspace_id).processes()]

    return _ask(context, incomplete, ask) if workspace_id else []
