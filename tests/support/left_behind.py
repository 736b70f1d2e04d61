"""What a test left running: guests outlive their server by design, so those of a failed test would outlive the run.

Everything is found by what belongs to the tests alone: processes by a path below the directory of the run, containers
and volumes by the installation in a registry below it.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path


def remove(directory: Path) -> list[str]:
    """End and remove it all; returns a line for each thing that was found."""
    return [*_end_processes(directory), *_remove_from_engine(directory)]


def _end_processes(directory: Path) -> Iterator[str]:
    beneath = os.fsencode(directory)
    ours = {os.getpid(), os.getppid()}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) in ours:
            continue
        with suppress(OSError):  # it ended meanwhile
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
            started_by_us = any(argument.startswith(beneath + b"/") for argument in arguments[1:])
            if started_by_us or (entry / "cwd").readlink().is_relative_to(directory):
                os.kill(int(entry.name), signal.SIGKILL)
                yield f"process {entry.name}: {b' '.join(arguments).decode(errors='replace')[:160]}"


def _remove_from_engine(directory: Path) -> Iterator[str]:
    for registry in directory.rglob("registry.db"):
        # Some tests damage theirs, but not one that has owned a sandbox.
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(registry)) as connection:
            for (installation,) in connection.execute("SELECT value FROM properties WHERE name = 'installation_id'"):
                for kind, listing, removal in (
                    ("container", ["ps", "-aq"], ["rm", "-f", "-v"]),
                    ("volume", ["volume", "ls", "-q"], ["volume", "rm"]),
                ):
                    label = f"label=workspaced.installation={installation}"
                    for found in _docker(*listing, "--filter", label).split():
                        _docker(*removal, found)
                        yield f"{kind} {found}, of {registry.parent}"


def _docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout
