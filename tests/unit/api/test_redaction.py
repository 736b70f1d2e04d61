"""Secrets never read back, however many there are: a map that is changed under its iterator skips some."""

from __future__ import annotations

import base64

import pytest

from workspaced.v1 import process_pb2, workspace_pb2
from workspaced_server.processes import REDACTED, _spec_label, process
from workspaced_server.workspaces.spec import redact

COUNTS = [1, 2, 3, 7, 20, 100]


def environment(count: int) -> dict[str, str]:
    return {f"NAME_{number}": "s3cret" for number in range(count)}


@pytest.mark.parametrize("count", COUNTS)
def test_the_spec_of_a_workspace(count: int) -> None:
    spec = workspace_pb2.WorkspaceSpec(env=environment(count))
    mcp = spec.default_mcps.add(name="one")
    mcp.stdio.command = "x"
    mcp.stdio.env.update(environment(count))
    redact(spec)
    assert dict(spec.env) == dict.fromkeys(environment(count), REDACTED)
    assert dict(mcp.stdio.env) == dict.fromkeys(environment(count), REDACTED)


@pytest.mark.parametrize("count", COUNTS)
def test_the_spec_of_a_process(count: int) -> None:
    """Neither in what the guest keeps for us, nor in what a caller reads."""
    spec = process_pb2.ProcessSpec(shell_command="true", env=environment(count))
    labels = _spec_label(spec)
    for label in labels.values():
        assert b"s3cret" not in base64.b64decode(label)
    read = process({
        "process_id": "p", "pid": 1, "state": "running", "shell": "true", "argv": None, "cwd": "/", "user": "root",
        "pty": None, "kind": "process", "start_time": 1.0, "exit_time": None, "first_offset": 0, "next_offset": 0,
        "stdin_open": False, "stdin_offset": 0, "fingerprint": "f", "labels": labels, "exit": None,
    })  # fmt: skip
    assert dict(read.spec.env) == dict.fromkeys(environment(count), REDACTED)
