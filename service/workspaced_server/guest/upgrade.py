"""Brings a guest that runs another bundle than this server's up to date, without ending its processes."""

from __future__ import annotations

import secrets

import structlog

from workspaced_server.errors import WorkspacedError
from workspaced_server.guest import bundle
from workspaced_server.guest.channel import GuestChannel

_log = structlog.stdlib.get_logger("workspaced.guest")
_CHUNK_BYTES = 256 * 1024


async def upgrade_if_older(channel: GuestChannel) -> bool:
    """Make the guest run this server's bundle. True: it restarts for that, and a new channel is needed.

    A guest that refuses goes on with the bundle it has, since the protocol's version fits; the log says so. Raises
    OSError when the channel breaks.
    """
    ours = bundle.build()
    if channel.hello.bundle == ours.sha256 or "upgrade" not in channel.hello.capabilities:
        return False
    # A name that nobody in the sandbox can occupy before us. The guest verifies the bytes, takes them to its own
    # directory and removes this file.
    path = f"/tmp/.workspaced-{secrets.token_hex(16)}.pyz"  # noqa: S108
    try:
        head = {"path": path, "mode": 0o600, "parents": False, "create_only": True, "offset": 0, "sync": False}
        async with channel.open("file.write", {**head, "sha256": ours.sha256}) as stream:
            for start in range(0, len(ours.data), _CHUNK_BYTES):
                await stream.send(ours.data[start : start + _CHUNK_BYTES])
            stream.end()
            while await stream.receive() is not None:
                pass
        await channel.call("guest.upgrade", {"path": path, "bundle": ours.sha256})
    except WorkspacedError as error:
        await channel.call("file.remove", {"path": path, "allow_missing": True})
        _log.warning("guest not upgraded", bundle=channel.hello.bundle, wanted=ours.sha256, cause=str(error))
        return False
    _log.info("guest upgraded", bundle=ours.sha256)
    return True
