"""Named points between two durable steps, where tests end the server as ``kill -9`` would.

In service nothing is installed and a point costs one comparison.
"""

from __future__ import annotations

from collections.abc import Callable

_hook: Callable[[str], None] | None = None


class Killed(BaseException):
    """Raised by a test's hook: the server stops here, and no cleanup may touch registry or provider any more."""


def install(hook: Callable[[str], None] | None) -> None:
    """Call ``hook`` with the name of each point that is reached; None removes it."""
    global _hook  # noqa: PLW0603 - the one switch of this module
    _hook = hook


def reach(name: str) -> None:
    """Pass the point ``name``."""
    if _hook is not None:
        _hook(name)
