"""The backends that the conformance suite runs on: how to ask for a workspace, and what the suite may expect of it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DOCKER_IMAGE = os.environ.get("WORKSPACED_TEST_IMAGE", "workspaced-test:bookworm")


@dataclass(frozen=True)
class BackendUnderTest:
    """One backend. ``arguments`` go to ``client.initialize``; ``remove_sandbox`` does that behind the server's back;
    where a workspace may not mount, ``replace_disk`` of a persistent one that runs gives what to call once it is
    closed, to make it find an empty disk of 1 MiB next time.
    """

    name: str
    arguments: dict[str, Any]
    persistent_by_default: bool
    remove_sandbox: Callable[[str], None] | None
    replace_disk: Callable[[str], Callable[[], None]] | None


def _remove_container(workspace_id: str) -> None:
    subprocess.run(["docker", "rm", "-f", _container(workspace_id)], check=True, capture_output=True)


def _replace_volume(workspace_id: str) -> Callable[[], None]:
    names = '{{range .Mounts}}{{if eq .Type "volume"}}{{.Name}}{{end}}{{end}}'
    volume = _docker("inspect", "--format", names, _container(workspace_id)).strip()

    def replace() -> None:
        labels = json.loads(_docker("volume", "inspect", "--format", "{{json .Labels}}", volume))
        _docker("volume", "rm", volume)
        given = [f"--label={name}={value}" for name, value in labels.items()]
        options = [f"--opt={option}" for option in ("type=tmpfs", "device=tmpfs", "o=size=1m")]
        _docker("volume", "create", *given, *options, volume)

    return replace


def _docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout


def _container(workspace_id: str) -> str:
    listed = subprocess.run(
        ["docker", "ps", "-aq", "--filter", f"label=workspaced.workspace_id={workspace_id}"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert len(listed) == 1, listed
    return listed[0]


BACKENDS = {
    "local": BackendUnderTest("local", {"backend": "local"}, True, None, None),
    "docker": BackendUnderTest(
        "docker", {"backend": "docker", "image": DOCKER_IMAGE}, False, _remove_container, _replace_volume
    ),
}
