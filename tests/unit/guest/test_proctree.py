"""Who belongs to a tree, and above all who never does."""

from __future__ import annotations

import os
import subprocess

from workspaced_guest.proctree import ID_VARIABLE, KEY_VARIABLE, Table, entry

_KEY = "0123456789abcdef"


def test_without_a_pid_nobody_is_found() -> None:
    assert Table().tree(0, 0, "p", _KEY) == []
    assert Table().tree(1, 0, "p", _KEY) == []


def test_a_pid_that_was_used_again_is_not_the_leader() -> None:
    sleeping = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        found = entry(sleeping.pid)
        assert found is not None
        assert [member.pid for member in Table().tree(sleeping.pid, found.start, "p", _KEY)] == [sleeping.pid]
        assert Table().tree(sleeping.pid, found.start - 1, "p", _KEY) == []
        assert not Table().lives(sleeping.pid, found.start - 1)
    finally:
        sleeping.kill()
        sleeping.wait()


def test_the_guest_and_its_ancestors_are_spared() -> None:
    pid = os.getpid()
    while pid:
        found = entry(pid)
        assert found is not None
        assert not {os.getpid(), pid, 1} & {member.pid for member in Table().tree(pid, found.start, "p", _KEY)}
        pid = found.parent


def test_a_mark_counts_only_with_the_key_of_the_guest() -> None:
    env = {**os.environ, ID_VARIABLE.decode(): "marked", KEY_VARIABLE.decode(): _KEY}
    sleeping = subprocess.Popen(["sleep", "60"], env=env, start_new_session=True)
    try:
        assert [member.pid for member in Table().tree(0, 0, "marked", _KEY)] == [sleeping.pid]
        assert Table().tree(0, 0, "marked", "another") == []
        assert Table().tree(0, 0, "mark", _KEY) == []
    finally:
        sleeping.kill()
        sleeping.wait()
