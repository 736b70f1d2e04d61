"""The backends that the conformance suite runs on: how to ask for a workspace, and what the suite may expect of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DOCKER_IMAGE = os.environ.get("WORKSPACED_TEST_IMAGE", "workspaced-test:bookworm")


@dataclass(frozen=True)
class BackendUnderTest:
    """One backend. ``arguments`` go to ``client.initialize``; ``remove_sandbox`` does that behind the server's back."""

    name: str
    arguments: dict[str, Any]
    persistent_by_default: bool
    remove_sandbox: Callable[[str], None] | None


def _remove_container(workspace_id: str) -> None:
    listed = subprocess.run(
        ["docker", "ps", "-aq", "--filter", f"label=workspaced.workspace_id={workspace_id}"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert len(listed) == 1, listed
    subprocess.run(["docker", "rm", "-f", listed[0]], check=True, capture_output=True)


BACKENDS = {
    "local": BackendUnderTest("local", {"backend": "local"}, True, None),
    "docker": BackendUnderTest("docker", {"backend": "docker", "image": DOCKER_IMAGE}, False, _remove_container),
}
