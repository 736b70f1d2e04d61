"""The languages that have a client: how to build the driver of each, and how to start it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.server import ROOT

GO = ROOT / "clients" / "go"
TYPESCRIPT = ROOT / "clients" / "typescript"


@dataclass(frozen=True)
class Language:
    """A language. `command` builds the driver if that is needed, and says how to start it."""

    name: str
    command: Callable[[Path], list[str]]


def _python(_: Path) -> list[str]:
    return [sys.executable, "-m", "tests.clients.python_driver"]


def _go(directory: Path) -> list[str]:
    driver = directory / "go-driver"
    _build([_program("go"), "build", "-o", str(driver), "./internal/conformance"], GO)
    return [str(driver)]


def _typescript(_: Path) -> list[str]:
    _build([_program("npm"), "run", "--silent", "build"], TYPESCRIPT)
    return [_program("node"), str(TYPESCRIPT / "dist" / "tests" / "conformance" / "driver.js")]


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"the {name} driver needs {name} on the PATH")
    return found


def _build(command: list[str], directory: Path) -> None:
    built = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if built.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{built.stdout}{built.stderr}")


LANGUAGES = {
    language.name: language
    for language in (Language("python", _python), Language("go", _go), Language("typescript", _typescript))
}


@cache
def environment() -> dict[str, str]:
    """What a driver is started with: Python ones find this repository."""
    return dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), *sys.path]))
