"""Files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from tests.clients.data import Sink, bytes_of, chunks_of
from tests.clients.python_operations.registry import Args, Objects, SourceFailed, chosen, operation, with_deadline
from workspaced import FileChange, FileInfo, Stream, WatchOverflow, WatchReady


def file_of(info: FileInfo) -> dict[str, Any]:
    """FILE."""
    return {
        "path": info.path,
        "type": str(info.type),
        "size": info.size,
        "mode": info.mode,
        "sha256": info.sha256,
        "link_target": info.link_target,
    }


async def _source(data: Any, fail_after: int | None) -> AsyncIterator[bytes]:
    given = 0
    for chunk in chunks_of(data):
        if fail_after is not None and given + len(chunk) > fail_after:
            yield chunk[: fail_after - given]
            raise SourceFailed(f"after {fail_after} bytes")
        given += len(chunk)
        yield chunk
    if fail_after is not None:
        raise SourceFailed(f"after {given} bytes")


@operation
async def file_write(objects: Objects, args: Args) -> dict[str, Any]:
    options = chosen(args, "if_match", "create_only", "mode", "parents", "sha256")
    if "hash" in args:
        options["hashed"] = args["hash"]
    streamed = args.get("as_stream") or "fail_after" in args
    data = _source(args["data"], args.get("fail_after")) if streamed else bytes_of(args["data"])
    return file_of(await objects.workspace(args).files.write(args["path"], data, **options))


@operation
async def file_read(objects: Objects, args: Args) -> dict[str, Any]:
    sink = Sink()
    async with objects.workspace(args).files.read_stream(args["path"], **chosen(args, "offset", "limit")) as chunks:
        async for chunk in chunks:
            sink.add(chunk)
    return sink.result()


@operation
async def file_open(objects: Objects, args: Args) -> dict[str, Any]:
    stream = objects.workspace(args).files.read_stream(args["path"], **chosen(args, "offset", "limit"))
    objects.put(args, "stream", stream)
    return {}


@operation
async def stream_read(objects: Objects, args: Args) -> dict[str, Any]:
    stream: Stream[bytes] = objects.get(args, "stream", Stream)
    sink, end = Sink(), False
    while "bytes" not in args or sink.size < args["bytes"]:
        chunk = await anext(stream, None)
        if chunk is None:
            end = True
            break
        sink.add(chunk)
    return {**sink.result(), "end": end}


@operation
async def stream_close(objects: Objects, args: Args) -> dict[str, Any]:
    await objects.get(args, "stream", Stream).aclose()
    return {}


@operation
async def stat(objects: Objects, args: Args) -> dict[str, Any]:
    return file_of(await objects.workspace(args).files.stat(args["path"], **chosen(args, "follow", "sha256")))


@operation
async def exists(objects: Objects, args: Args) -> dict[str, Any]:
    return {"exists": await objects.workspace(args).files.exists(args["path"])}


@operation
async def list_files(objects: Objects, args: Args) -> dict[str, Any]:
    found = await objects.workspace(args).files.list(args["path"], **chosen(args, "recursive", "glob", "max_depth"))
    return {"paths": sorted(info.path for info in found), "types": {info.path: str(info.type) for info in found}}


@operation
async def remove(objects: Objects, args: Args) -> dict[str, Any]:
    options = chosen(args, "recursive", "allow_missing", "if_match")
    return {"removed": await objects.workspace(args).files.remove(args["path"], **options)}


@operation
async def move(objects: Objects, args: Args) -> dict[str, Any]:
    files = objects.workspace(args).files
    return file_of(await files.move(args["path"], args["to"], **chosen(args, "overwrite")))


@with_deadline
async def copy(objects: Objects, args: Args) -> dict[str, Any]:
    options = chosen(args, "overwrite", "recursive", "timeout")
    return file_of(await objects.workspace(args).files.copy(args["path"], args["to"], **options))


@operation
async def mkdir(objects: Objects, args: Args) -> dict[str, Any]:
    options = chosen(args, "parents", "exist_ok", "mode")
    return file_of(await objects.workspace(args).files.mkdir(args["path"], **options))


@operation
async def watch_files(objects: Objects, args: Args) -> dict[str, Any]:
    objects.put(args, "stream", objects.workspace(args).files.watch(args["path"], **chosen(args, "recursive")))
    return {}


@operation
async def watch_next(objects: Objects, args: Args) -> dict[str, Any]:
    stream: Stream[FileChange | WatchReady | WatchOverflow] = objects.get(args, "stream", Stream)
    change = await anext(stream)
    if isinstance(change, FileChange):
        return {"kind": str(change.kind), "path": change.path, "to": change.to}
    return {"kind": "READY" if isinstance(change, WatchReady) else "OVERFLOW"}


@operation
async def upload(objects: Objects, args: Args) -> dict[str, Any]:
    files = objects.workspace(args).files
    return file_of(await files.upload(args["local"], args["path"], **chosen(args, "mode")))


@operation
async def download(objects: Objects, args: Args) -> dict[str, Any]:
    return file_of(await objects.workspace(args).files.download(args["path"], args["local"]))
