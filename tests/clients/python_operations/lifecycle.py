"""Clients and workspaces."""

from __future__ import annotations

import warnings as python_warnings
from pathlib import Path
from typing import Any

import workspaced
from tests.clients.python_operations.registry import Args, Objects, chosen, operation, with_deadline
from workspaced.client import Client
from workspaced.lease import LeasedWorkspace


def remember_warnings(messages: list[str]) -> None:
    """Keep what the library warns of, each time, instead of printing it."""

    def remember(message: Warning | str, *_: object, **__: object) -> None:
        messages.append(str(message))

    python_warnings.simplefilter("always")
    python_warnings.showwarning = remember


@operation
async def connect(objects: Objects, args: Args) -> dict[str, Any]:
    options = chosen(args, "token", "insecure", "retry_timeout", "resume_timeout", timeout="call_timeout")
    if "token_file" in args:
        options["token"] = lambda: Path(args["token_file"]).read_text().strip()
    tls = chosen(args, "ca", "cert", "key", "server_name")
    if tls or args.get("tls"):
        options["tls"] = workspaced.TLS(**tls)
    objects.put(args, "client", workspaced.connect(args["address"], **options))
    return {}


@operation
async def close_client(objects: Objects, args: Args) -> dict[str, Any]:
    await objects.get(args, "client", Client).aclose()
    return {}


@operation
async def server_info(objects: Objects, args: Args) -> dict[str, Any]:
    info = await objects.get(args, "client", Client).server_info()
    return {
        "version": info.version,
        "api_revision": info.api_revision,
        "backends": sorted(str(backend.backend) for backend in info.backends if backend.available),
        "default_backend": str(info.default_backend),
        "principal": info.principal,
        "scopes": sorted(info.scopes),
    }


@operation
async def warnings(objects: Objects, args: Args) -> dict[str, Any]:
    return {"messages": list(objects.warned)}


@with_deadline
async def initialize(objects: Objects, args: Args) -> dict[str, Any]:
    options = chosen(
        args, "backend", "image", "env", "labels", "instructions", "idle_timeout", "request_id", "template",
        "persistent", "workdir", "resources", "timeout", workspace_id="id",
    )  # fmt: skip
    ws = await objects.get(args, "client", Client).initialize(wait=not args.get("no_wait", False), **options)
    objects.put(args, "ws", ws)
    return {"workspace_id": ws.id}


@operation
async def workspace(objects: Objects, args: Args) -> dict[str, Any]:
    objects.put(args, "ws", objects.get(args, "client", Client).workspace(args["id"]))
    return {}


@with_deadline
async def acquire(objects: Objects, args: Args) -> dict[str, Any]:
    options = chosen(
        args, "policy", "user_id", "agent_id", "session_id", "backend", "template", "lease_duration", "timeout"
    )
    ws = await objects.get(args, "client", Client).acquire(**options)
    objects.put(args, "lease", ws)
    objects.store(args.get("ws", "ws"), ws)
    return {"workspace_id": ws.id, "lease_id": ws.lease_id, "created": ws.created}


@operation
async def lease_info(objects: Objects, args: Args) -> dict[str, Any]:
    lease = objects.get(args, "lease", LeasedWorkspace)
    return {"lease_id": lease.lease_id, "expire_time": lease.lease_expire_time.timestamp()}


@operation
async def release(objects: Objects, args: Args) -> dict[str, Any]:
    await objects.get(args, "lease", LeasedWorkspace).release()
    return {}


@operation
async def ws_info(objects: Objects, args: Args) -> dict[str, Any]:
    info = await objects.workspace(args).info()
    return {
        "workspace_id": info.workspace_id,
        "state": str(info.state),
        "backend": str(info.backend),
        "labels": dict(info.labels),
        "image": info.image,
        "workdir": info.workdir,
        "state_reason": info.state_reason,
    }


@with_deadline
async def ws_close(objects: Objects, args: Args) -> dict[str, Any]:
    return {"state": str((await objects.workspace(args).close(**chosen(args, "grace", "timeout"))).state)}


@with_deadline
async def ws_reset(objects: Objects, args: Args) -> dict[str, Any]:
    info = await objects.workspace(args).reset(**chosen(args, "wipe_files", "kill_processes", "timeout"))
    return {"state": str(info.state)}


@with_deadline
async def ws_delete(objects: Objects, args: Args) -> dict[str, Any]:
    await objects.workspace(args).delete(**chosen(args, "allow_missing", "timeout"))
    return {}


@operation
async def list_workspaces(objects: Objects, args: Args) -> dict[str, Any]:
    client = objects.get(args, "client", Client)
    found = await client.list(**chosen(args, "labels", "states", "backends", workspace_ids="ids"))
    return {"ids": sorted(info.workspace_id for info in found)}


@operation
async def watch_workspaces(objects: Objects, args: Args) -> dict[str, Any]:
    states: list[str] = []
    async with objects.get(args, "client", Client).watch(workspace_ids=args.get("ids", ())) as changes:
        async for info in changes:
            states.append(str(info.state))
            if states[-1] == args["until"]:
                break
    return {"states": states}
