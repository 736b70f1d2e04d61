"""Ports inside a workspace."""

from __future__ import annotations

from typing import Any

from tests.clients.data import Sink, chunks_of
from tests.clients.python_operations.registry import Args, Objects, chosen, operation
from workspaced import Tunnel


@operation
async def list_ports(objects: Objects, args: Args) -> dict[str, Any]:
    return {"ports": sorted(info.port for info in await objects.workspace(args).ports())}


@operation
async def tunnel(objects: Objects, args: Args) -> dict[str, Any]:
    made = objects.workspace(args).tunnel(args["port"], **chosen(args, "host"))
    objects.put(args, "tunnel", await made.__aenter__())
    return {}


@operation
async def tunnel_send(objects: Objects, args: Args) -> dict[str, Any]:
    opened = objects.get(args, "tunnel", Tunnel)
    for chunk in chunks_of(args["data"]):
        await opened.send(chunk)
    return {}


@operation
async def tunnel_close_write(objects: Objects, args: Args) -> dict[str, Any]:
    await objects.get(args, "tunnel", Tunnel).send_eof()
    return {}


@operation
async def tunnel_recv(objects: Objects, args: Args) -> dict[str, Any]:
    opened = objects.get(args, "tunnel", Tunnel)
    sink, end = Sink(), False
    while "bytes" not in args or sink.size < args["bytes"]:
        data = await opened.receive()
        if not data:
            end = True
            break
        sink.add(data)
    return {**sink.result(), "end": end}


@operation
async def tunnel_close(objects: Objects, args: Args) -> dict[str, Any]:
    await objects.get(args, "tunnel", Tunnel).aclose()
    return {}
