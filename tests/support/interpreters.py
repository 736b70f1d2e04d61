"""Every CPython on this machine that can run the guest, one for each minor version.

``python tests/support/interpreters.py`` prints them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 9)

_PROBE = (
    "import sys, sysconfig; assert sys.implementation.name == 'cpython'; "
    "import ctypes, ssl, zipapp; print('%d.%d.%d' % sys.version_info[:3])"
)
_NAME = re.compile(r"python3(\.\d+)?")


@dataclass(frozen=True, order=True)
class Interpreter:
    """An interpreter that was started once and told its version."""

    version: tuple[int, int, int]
    path: Path

    @property
    def name(self) -> str:
        """The minor version, for the ids of parametrised tests: ``3.9``."""
        return f"{self.version[0]}.{self.version[1]}"


def discover(oldest: tuple[int, int] = OLDEST) -> list[Interpreter]:
    """Returns one interpreter a minor version from ``oldest`` on, ascending; the newest patch release of each.

    Looks at ``PATH``, the usual places of the system, version managers (``PYENV_ROOT``, ``~/.pyenv``,
    ``~/.local/share/uv/python``), and the neighbours of the interpreter that runs this. One that cannot start,
    or was built without ``ctypes`` or ``ssl``, is left out.
    """
    best: dict[tuple[int, int], Interpreter] = {}
    for path in _candidates():
        found = _probe(path)
        if found is None or found.version[:2] < oldest:
            continue
        known = best.get(found.version[:2])
        if known is None or found.version > known.version:
            best[found.version[:2]] = found
    return sorted(best.values())


def _candidates() -> list[Path]:
    directories = [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    directories += [Path("/usr/bin"), Path("/usr/local/bin"), Path(sys.base_prefix, "bin")]
    managers = [
        Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions"),
        Path.home() / ".local/share/uv/python",
        Path(sys.base_prefix).parent,
    ]
    for manager in managers:
        directories += sorted(manager.glob("*/bin"))
    found: dict[Path, Path] = {}
    for directory in directories:
        if directory.name == "shims" or not os.access(directory, os.R_OK | os.X_OK):
            continue  # a shim runs whichever version its manager thinks of at that moment
        if (directory.parent / "pyvenv.cfg").exists():
            continue  # resolving the link would lead out of the virtual environment, to a base that is found anyway
        for entry in sorted(directory.iterdir()):
            if _NAME.fullmatch(entry.name) and os.access(entry, os.X_OK):
                found.setdefault(entry.resolve(), entry)
    return list(found.values())


def _probe(path: Path) -> Interpreter | None:
    command = [str(path), "-I", "-c", _PROBE]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode:
        return None
    major, minor, patch = answer.stdout.strip().split(".")
    return Interpreter((int(major), int(minor), int(patch)), path)


if __name__ == "__main__":
    for item in discover():
        print(".".join(map(str, item.version)), item.path)
