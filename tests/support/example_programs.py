"""The programs under ``examples/`` that are of three languages, in a copy where they can be built and run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.server import ROOT


def copy(directory: Path) -> Path:
    """Copy the examples beside the clients, and return where they are."""
    made = directory / "examples"
    shutil.copytree(
        ROOT / "examples", made, ignore=shutil.ignore_patterns("node_modules", "dist", "target", "__pycache__")
    )
    (directory / "clients").symlink_to(ROOT / "clients")
    return made


def run(command: str, directory: Path, **environment: str) -> bytes:
    """Run a command line to its end, which has to be a good one; returns what it wrote to standard output."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=directory,
        env=_environment() | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (
        f"{command} ended with {done.returncode}:\n{(done.stdout + done.stderr).decode()[-4000:]}"
    )
    return done.stdout


def _environment() -> dict[str, str]:
    """That of this process, with its Python first, which finds the client."""
    return os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT / "clients" / "python"),
    }
