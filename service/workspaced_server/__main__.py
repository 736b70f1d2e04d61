"""`python -m workspaced_server` is the `workspaced` command."""

from __future__ import annotations

from workspaced_server.cli import main

main(prog_name="workspaced")
