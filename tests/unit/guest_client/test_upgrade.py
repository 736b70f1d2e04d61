"""A server brings its bundle to a guest that runs another one."""

from __future__ import annotations

from pathlib import Path

from tests.support.real_guest import real_guest
from workspaced_server.guest import bundle
from workspaced_server.guest.upgrade import upgrade_if_older


async def test_a_guest_is_brought_up_to_date_once(tmp_path: Path) -> None:
    brought = set(Path("/tmp").glob(".workspaced-*.pyz"))
    async with real_guest(tmp_path) as guest:
        old = await guest.connect()
        assert old.hello.bundle != bundle.build().sha256
        await old.call("process.start", {"process_id": "p", "spec": {"shell": "sleep 1000"}, "fingerprint": "f"})
        assert await upgrade_if_older(old)
        await old.aclose()
        new = await guest.connect()
        assert new.hello.bundle == bundle.build().sha256
        assert (await new.call("process.get", {"process_id": "p"}))["process"]["state"] == "running"
        assert not await upgrade_if_older(new)
        await new.call("guest.shutdown", {"reason": "WORKSPACE_STOPPED", "grace": 1})
        await new.aclose()
    assert set(Path("/tmp").glob(".workspaced-*.pyz")) == brought


async def test_a_guest_that_refuses_goes_on_and_keeps_nothing(tmp_path: Path) -> None:
    brought = set(Path("/tmp").glob(".workspaced-*.pyz"))
    async with real_guest(tmp_path) as guest:
        channel = await guest.connect()
        # It cannot take the bundle over where something else is in its place.
        (guest.directory / "state" / f"guest-{bundle.build().sha256}.pyz").mkdir()
        assert not await upgrade_if_older(channel)
        assert (await channel.call("guest.info", {}))["channels"] == 1
        assert list((guest.directory / "state").glob("*.new")) == []
        await channel.aclose()
    assert set(Path("/tmp").glob(".workspaced-*.pyz")) == brought
