"""The operations on the guest itself."""

from __future__ import annotations

import os

from . import params as read
from .spec import MAX_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .guest import Guest
    from .stream import Handler, Stream

    Params = dict[str, Any]


def _info(guest: Guest, stream: Stream, params: Params) -> None:
    disk = os.statvfs(guest.workdir)
    listen = None
    if guest.listener is not None and guest.listener.web is not None:
        from .websocket import shown

        listen = shown(guest.listener.web)
    stream.result(
        {
            **guest.hello(),
            "rss_bytes": _resident_bytes(),
            "processes": len(guest.processes.by_id),
            "channels": len(guest.channels),
            "listen": listen,
            "disk": {"total_bytes": disk.f_blocks * disk.f_frsize, "free_bytes": disk.f_bavail * disk.f_frsize},
        }
    )


def _shutdown(guest: Guest, stream: Stream, params: Params) -> None:
    from .processes import stop_all

    read.text(params, "reason", "", limit=256)
    grace = read.number(params, "grace", 5.0, high=MAX_SECONDS)

    def done(stopped: int) -> None:
        stream.result({"stopped": stopped})
        guest.end("STOPPED")

    guest.stopping = True
    stop_all(guest, "WORKSPACE_STOPPED", grace, done)


def _upgrade(guest: Guest, stream: Stream, params: Params) -> None:
    from .upgrade import upgrade

    upgrade(guest, stream, params)


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


GUEST_OPS: dict[str, Handler] = {"guest.info": _info, "guest.shutdown": _shutdown, "guest.upgrade": _upgrade}
