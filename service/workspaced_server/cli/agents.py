"""Options that say as which agent, and in which session, a command acts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def agent_option(function: F) -> F:
    """``--agent``."""
    return click.option("--agent", "agent_id", metavar="AGENT", help="As this agent; else as one without an id.")(
        function
    )


def session_option(function: F) -> F:
    """``--session``."""
    return click.option(
        "--session", "session_id", metavar="SESSION", help="In this session; else in one without an id."
    )(function)
