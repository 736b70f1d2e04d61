"""Who a process runs as, and with which nice value. The tests run as root, as the tests' container does."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.guest_client import TOKEN, GuestClient, GuestError, RunningGuest
from tests.support.interpreters import Interpreter

NOBODY = pwd.getpwnam("nobody")
BASE = os.nice(0)
_WHO = "id -u; id -g; id -G; echo $HOME $USER $LOGNAME; nice"


def _run(client: GuestClient, **spec: object) -> tuple[list[str], dict[str, Any]]:
    attached = client.open("process.start", {"spec": {"shell": _WHO, **spec}, "attach": {"offset": 0}}).records()
    return attached.all().decode().split("\n"), attached.started["started"]


@pytest.mark.parametrize("user", ["nobody", str(NOBODY.pw_uid)])
def test_a_user_by_name_and_by_number(client: GuestClient, user: str) -> None:
    lines, process = _run(client, user=user)
    group = str(NOBODY.pw_gid)
    assert lines[:3] == [str(NOBODY.pw_uid), group, group]
    assert lines[3] == f"{NOBODY.pw_dir} nobody nobody"
    assert process["user"] == "nobody"


def test_numbers_that_nobody_has(client: GuestClient) -> None:
    lines, process = _run(client, user="54321:54322")
    assert lines[:4] == ["54321", "54322", "54322", "/ 54321 54321"]
    assert process["user"] == "54321"


def test_a_known_user_with_another_group(client: GuestClient) -> None:
    lines, _ = _run(client, user=f"{NOBODY.pw_uid}:54322")
    assert lines[:4] == [str(NOBODY.pw_uid), "54322", "54322", f"{NOBODY.pw_dir} nobody nobody"]


def test_the_users_own_variables_give_way_to_the_callers(client: GuestClient) -> None:
    lines, _ = _run(client, user="nobody", env={"HOME": "/tmp/x"})
    assert lines[3] == "/tmp/x nobody nobody"


def test_root_is_what_the_guest_is(client: GuestClient) -> None:
    for user in ("root", "0", "0:0"):
        lines, process = _run(client, user=user)
        assert lines[:2] == ["0", "0"]
        assert process["user"] == "root"


def test_a_terminal_belongs_to_the_user(client: GuestClient) -> None:
    spec = {"shell": "stat -c %u $(tty); echo ok > $(tty)", "user": "nobody", "pty": {}}
    attached = client.open("process.start", {"spec": spec, "attach": {"offset": 0}}).records()
    assert attached.all().decode().split() == [str(NOBODY.pw_uid), "ok"]


@pytest.mark.parametrize(
    "user", ["no-such-user", "54321", "no-such-user:1", "nobody:no-such-group", "nobody:", "-1", "4294967295:0"]
)
def test_unknown(client: GuestClient, user: str) -> None:
    with pytest.raises(GuestError) as caught:
        client.call("process.start", {"spec": {"argv": ["true"], "user": user}})
    assert (caught.value.code, caught.value.reason) == ("NOT_FOUND", "USER_NOT_FOUND")
    assert caught.value.metadata == {"user": user}
    assert client.call("process.list")["processes"] == []


@pytest.mark.parametrize(("nice", "user"), [(7, None), (-7, None), (7, "nobody"), (-7, "nobody"), (5, "54321:54322")])
def test_nice(client: GuestClient, nice: int, user: str | None) -> None:
    lines, _ = _run(client, nice=nice, user=user)
    assert lines[4] == str(BASE + nice)
    if user is not None:
        assert lines[0] == user.partition(":")[0] or lines[0] == str(NOBODY.pw_uid)
    assert _run(client)[0][4] == str(BASE)


def test_nice_in_a_terminal(client: GuestClient) -> None:
    lines, _ = _run(client, nice=3, user="nobody", pty={})
    assert lines[4].strip() == str(BASE + 3)
    spec = {"shell": "stat -c %u $(tty)", "user": "nobody", "nice": 1, "pty": {}}
    attached = client.open("process.start", {"spec": spec, "attach": {"offset": 0}}).records()
    assert attached.all().decode().split() == [str(NOBODY.pw_uid)]


class WeakGuest(RunningGuest):
    """Without the rights that `options` of setpriv take away."""

    rights: tuple[str, ...] = ()

    @property
    def program(self) -> list[str]:
        return ["setpriv", *self.rights, *super().program]


# The test's interpreters may lie where only root can read.
_READING = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
_WEAK = {
    "user": ("--reuid=54321", "--regid=54321", "--clear-groups", *_READING),
    "root": ("--bounding-set=-setuid,-setgid,-sys_nice",),
}


@pytest.fixture(params=_WEAK)
def weak(tmp_path: Path, interpreter: Interpreter, request: pytest.FixtureRequest) -> Iterator[WeakGuest]:
    """A guest of an ordinary user, and one of a root that may not change users."""
    guest = WeakGuest(tmp_path, interpreter.path)
    guest.rights = _WEAK[request.param]
    guest.state.mkdir(mode=0o700)
    if request.param == "user":
        for directory in (tmp_path, guest.state):
            os.chown(directory, 54321, 54321)
        for directory in tmp_path.parents:
            if not directory.stat().st_mode & 0o001:
                directory.chmod(0o711)
    (guest.state / "token").write_text(TOKEN)
    (guest.state / "token").chmod(0o644)
    with guest:
        yield guest


def test_without_the_right_it_is_said(weak: WeakGuest) -> None:
    with weak.connect() as client:
        for spec, what in (({"user": "nobody"}, "nobody"), ({"user": "9:9"}, "9"), ({"nice": -3}, "-3")):
            with pytest.raises(GuestError) as caught:
                client.call("process.start", {"spec": {"argv": ["true"], **spec}})
            assert (caught.value.code, caught.value.reason) == ("PERMISSION_DENIED", "PERMISSION_DENIED")
            assert what in str(caught.value)
        with pytest.raises(GuestError) as caught:
            client.call("process.start", {"spec": {"argv": ["true"], "user": "no-such-user"}})
        assert caught.value.reason == "USER_NOT_FOUND"
        own = str(client.hello["uid"])
        lines, _ = _run(client, user=own, nice=2)
        assert (lines[0], lines[4]) == (own, str(BASE + 2))
        assert client.call("process.list", {"state": "running"})["processes"] == []
