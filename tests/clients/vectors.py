"""The conformance vectors: clients/conformance/*.json, one file a subject."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.support.server import ROOT

DIRECTORY = ROOT / "clients" / "conformance"
_CASE_KEYS = {"name", "why", "backend", "server", "relay", "client", "setup", "workspace", "steps", "within"}
_STEP_KINDS = ("op", "start", "await", "cancel", "fault", "check", "local_file", "for")
_STEP_KEYS = {
    *_STEP_KINDS, "args", "expect", "error", "save", "eventually", "within", "steps", "is", "data", "why",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One case.

    Unless `setup` is "none", a client is connected (with `client`: more args of `connect`) and a workspace made (with
    `workspace`: more args of `initialize`) before the steps. `server` is "shared", "fragile" for a case that harms it,
    or a table of its configuration; `relay` makes it look like another version (tests/clients/other_version.py).
    """

    subject: str
    name: str
    steps: list[dict[str, Any]]
    server: str | dict[str, Any] = "shared"
    relay: dict[str, Any] | None = None
    client: dict[str, Any] = field(default_factory=dict)
    workspace: dict[str, Any] = field(default_factory=dict)
    setup: str = "workspace"
    backend: str = "local"

    @property
    def title(self) -> str:
        """Subject and name."""
        return f"{self.subject}/{self.name}"


def load() -> list[Case]:
    """Every case, by subject. Raises :class:`ValueError` for one that is not well formed."""
    cases: list[Case] = []
    for path in sorted(DIRECTORY.glob("*.json")):
        for entry in json.loads(path.read_text())["cases"]:
            if unknown := set(entry) - _CASE_KEYS:
                raise ValueError(f"{path.name}: {entry.get('name')}: unknown {unknown}")
            _check(entry["steps"], f"{path.name}: {entry['name']}")
            given = {name: value for name, value in entry.items() if name not in ("why", "within")}
            cases.append(Case(path.stem, **given))
    titles = [case.title for case in cases]
    if len(set(titles)) != len(titles):
        raise ValueError(f"a case twice: {sorted(title for title in titles if titles.count(title) > 1)}")
    return cases


def _check(steps: list[dict[str, Any]], where: str) -> None:
    for number, step in enumerate(steps, 1):
        if not any(kind in step for kind in _STEP_KINDS) or set(step) - _STEP_KEYS:
            raise ValueError(f"{where}: step {number} is not well formed: {step}")
        _check(step.get("steps", []), where)
