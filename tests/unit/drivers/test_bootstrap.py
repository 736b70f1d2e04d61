"""The bootstrap: real interpreters of this machine instead of a sandbox's, over the pipes of a program."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

import pytest

from workspaced_server.drivers import bootstrap
from workspaced_server.drivers.base import DriverError
from workspaced_server.drivers.docker.program import ProgramStream
from workspaced_server.guest import bundle
from workspaced_server.guest.channel import GuestChannel


class Script:
    """A byte stream that delivers the given bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def send(self, data: bytes | bytearray | memoryview) -> None:
        raise AssertionError("nothing is to be sent")

    async def receive(self, max_bytes: int = 262144) -> bytes:
        data, self._data = self._data[:3], self._data[3:]
        return data

    async def aclose(self) -> None:
        return


async def test_puts_a_guest_in_place_twice(tmp_path: Path) -> None:
    built = bundle.build()
    home, workdir = tmp_path / "guest", tmp_path / "work" / "dir"
    token = secrets.token_hex(16)
    instances = set()
    for attempt in range(2):
        stream = await ProgramStream.start(
            bootstrap.command(built, str(workdir), preferred=str(home), mark=str(tmp_path / f"mark{attempt}"))
        )
        site = await bootstrap.perform(
            stream,
            built,
            token,
            lambda site: [
                *("--socket", f"{site.directory}/guest.sock", "--state", site.directory),
                *("--workdir", str(workdir), "--idle-exit", "5"),
            ],
        )
        assert site.directory == str(home)
        assert (site.uid, site.writable) == (os.getuid(), True)
        assert site.have is (attempt == 1)
        assert (tmp_path / f"mark{attempt}").exists()
        channel = await GuestChannel.connect(stream, token)
        assert channel.hello.bundle == built.sha256
        instances.add(channel.hello.instance)
        if attempt == 1:
            await channel.call("guest.shutdown", {"reason": "test", "grace": 0})
        await channel.aclose()
    assert len(instances) == 1
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "token").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in home.glob("guest-*")) == [f"guest-{built.sha256}.pyz"]


async def test_a_damaged_bundle_is_sent_again_and_a_planted_directory_is_left_alone(tmp_path: Path) -> None:
    built = bundle.build()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    home = tmp_path / "guest"
    home.symlink_to(elsewhere)
    stream = await ProgramStream.start(bootstrap.command(built, str(tmp_path), preferred=str(home)))
    assert (await bootstrap.greet(stream)).directory != str(home)
    await stream.aclose()
    home.unlink()
    home.mkdir()
    (home / f"guest-{built.sha256}.pyz").write_bytes(built.data[:-1])
    stream = await ProgramStream.start(bootstrap.command(built, str(tmp_path), preferred=str(home)))
    assert not (await bootstrap.greet(stream)).have
    await stream.aclose()
    assert list(elsewhere.iterdir()) == []


async def test_no_python_names_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = bootstrap.command(bundle.build(), "/")
    script = argv[2].replace("/usr/", f"{tmp_path}/")
    monkeypatch.setenv("PATH", str(tmp_path))
    stream = await ProgramStream.start([*argv[:2], script, *argv[3:]])
    with pytest.raises(DriverError, match="install_python") as caught:
        await bootstrap.greet(stream)
    await stream.aclose()
    assert caught.value.reason == "GUEST_PYTHON_MISSING"


async def test_an_old_python_is_told() -> None:
    answer = {"bootstrap": 1, "have": False, "python": "3.6.8", "dir": "/x", "uid": 0, "gid": 0, "writable": True}
    with pytest.raises(DriverError, match=r"3\.6\.8") as caught:
        await bootstrap.greet(Script(json.dumps(answer).encode() + b"\n"))
    assert caught.value.reason == "GUEST_PYTHON_MISSING"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"no json\n",
        b"[]\n",
        b'{"bootstrap": 2}\n',
        b'{"bootstrap": 1, "python": "3.11.2", "dir": 5}\n',
        b'{"bootstrap": 1, "python": "3.11.2", "dir": "rel", "uid": 0, "gid": 0, "writable": true, "have": true}\n',
        b'{"bootstrap": 1, "python": "3.11.2", "dir": "/x", "uid": "0", "gid": 0, "writable": true, "have": true}\n',
        b"x" * 100_000,
    ],
)
async def test_nonsense_is_refused(answer: bytes) -> None:
    with pytest.raises(bootstrap.BootstrapError):
        await bootstrap.greet(Script(answer))
