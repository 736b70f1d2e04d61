"""The `workspaced` command. `main` is the whole of it; what a command needs is imported when the command runs."""

from __future__ import annotations

from .group import main

__all__ = ["main"]
