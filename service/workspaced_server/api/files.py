"""FileService: files of a workspace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from workspaced.v1 import file_pb2
from workspaced_guest import wire
from workspaced_server.api import answers
from workspaced_server.api.access import Access, use
from workspaced_server.api.encoding import file_data
from workspaced_server.api.fileinfo import file_change, file_info
from workspaced_server.api.limits import MAX_PAGE_SIZE
from workspaced_server.api.upload import upload
from workspaced_server.api.validation import check, page_size
from workspaced_server.errors import FieldViolation, invalid
from workspaced_server.guest.stream import Nothing

Context = grpc.aio.ServicerContext[Any, Any]

WATCH_HEARTBEAT_SECONDS: Final = 15.0


class FileServicer:
    """The RPCs of ``workspaced.v1.FileService``; what each does and its errors are in the proto's comments."""

    def __init__(self, workspaces: Access) -> None:
        self._workspaces = workspaces

    async def ReadFile(self, request: file_pb2.ReadFileRequest, context: Context) -> None:  # noqa: N802
        check(request)
        params: dict[str, object] = {"path": request.path, "offset": request.offset, "hash": request.hash}
        if request.HasField("limit"):
            params["limit"] = request.limit
        async with (
            use(self._workspaces, request.workspace_id) as handle,
            handle.guest.open("file.read", params) as stream,
        ):
            first = answers.message(await stream.receive())
            await context.write(file_pb2.ReadFileResponse(info=file_info(answers.record(first, "stat"))))
            count = 0
            while (item := await stream.receive()) is not None:
                if not isinstance(item, bytes) or len(item) > wire.MAX_DATA:
                    raise answers.malformed()
                count += len(item)
                await context.write(file_data(item))
            result = stream.result
            if answers.integer(result, "bytes") != count:
                raise answers.malformed()
            end = file_pb2.ReadFileEnd(
                bytes=count, sha256=answers.text(result, "sha256"), eof=answers.flag(result, "eof")
            )
            await context.write(file_pb2.ReadFileResponse(end=end))

    async def WriteFile(  # noqa: N802
        self, requests: AsyncIterator[file_pb2.WriteFileRequest | memoryview], context: Context
    ) -> file_pb2.WriteFileResponse:
        iterator = aiter(requests)
        first = await anext(iterator, None)
        if not isinstance(first, file_pb2.WriteFileRequest) or first.WhichOneof("part") != "header":
            raise invalid(FieldViolation("header", "must be the first message of the stream"))
        header = first.header
        check(header)
        async with use(self._workspaces, header.workspace_id) as handle:
            return await upload(handle, header, iterator, context)

    async def StatFile(  # noqa: N802
        self, request: file_pb2.StatFileRequest, context: Context
    ) -> file_pb2.StatFileResponse:
        check(request)
        params: dict[str, object] = {"path": request.path, "follow": not request.no_follow, "hash": request.hash}
        result = await self._call(request.workspace_id, "file.stat", params)
        info = file_info(answers.record(result, "stat"), answers.text(result, "sha256"))
        return file_pb2.StatFileResponse(info=info)

    async def ListFiles(  # noqa: N802
        self, request: file_pb2.ListFilesRequest, context: Context
    ) -> file_pb2.ListFilesResponse:
        check(request)
        params: dict[str, object] = {
            "path": request.path or ".",
            "recursive": request.recursive,
            "page_size": page_size(request.page_size, MAX_PAGE_SIZE),
            "page_token": answers.guest_page_token(request.page_token),
        }
        if request.glob:
            params["glob"] = request.glob
        if request.max_depth:
            params["max_depth"] = request.max_depth
        result = await self._call(request.workspace_id, "file.list", params)
        return file_pb2.ListFilesResponse(
            files=[file_info(entry) for entry in answers.records(result, "entries")],
            next_page_token=answers.page_token(result),
        )

    async def WatchFiles(self, request: file_pb2.WatchFilesRequest, context: Context) -> None:  # noqa: N802
        check(request)
        wake = asyncio.Event()
        params: dict[str, object] = {"path": request.path, "recursive": request.recursive}
        async with (
            use(self._workspaces, request.workspace_id) as handle,
            handle.guest.open("file.watch", params, wake=wake) as stream,
        ):
            while True:
                wake.clear()
                item = stream.receive_nowait()
                if isinstance(item, Nothing):
                    try:
                        async with asyncio.timeout(WATCH_HEARTBEAT_SECONDS):
                            await wake.wait()
                    except TimeoutError:
                        await context.write(_watch_heartbeat())
                elif item is None:
                    return
                else:
                    for response in _watch_responses(answers.message(item)):
                        await context.write(response)

    async def MakeDirectory(  # noqa: N802
        self, request: file_pb2.MakeDirectoryRequest, context: Context
    ) -> file_pb2.MakeDirectoryResponse:
        check(request)
        params: dict[str, object] = {"path": request.path, "parents": request.parents, "exist_ok": request.exist_ok}
        if request.HasField("mode"):
            params["mode"] = request.mode
        result = await self._call(request.workspace_id, "file.mkdir", params)
        return file_pb2.MakeDirectoryResponse(
            info=file_info(answers.record(result, "stat")), created=answers.flag(result, "created")
        )

    async def MoveFile(  # noqa: N802
        self, request: file_pb2.MoveFileRequest, context: Context
    ) -> file_pb2.MoveFileResponse:
        check(request)
        params: dict[str, object] = {
            "path": request.source,
            "to": request.destination,
            "overwrite": request.overwrite,
        }
        result = await self._call(request.workspace_id, "file.move", params)
        return file_pb2.MoveFileResponse(info=file_info(answers.record(result, "stat")))

    async def CopyFile(  # noqa: N802
        self, request: file_pb2.CopyFileRequest, context: Context
    ) -> file_pb2.CopyFileResponse:
        check(request)
        params: dict[str, object] = {
            "path": request.source,
            "to": request.destination,
            "recursive": request.recursive,
            "overwrite": request.overwrite,
        }
        result = await self._call(request.workspace_id, "file.copy", params)
        return file_pb2.CopyFileResponse(info=file_info(answers.record(result, "stat")))

    async def RemoveFile(  # noqa: N802
        self, request: file_pb2.RemoveFileRequest, context: Context
    ) -> file_pb2.RemoveFileResponse:
        check(request)
        params: dict[str, object] = {
            "path": request.path,
            "recursive": request.recursive,
            "allow_missing": request.allow_missing,
        }
        if request.if_match:
            params["if_match"] = request.if_match.lower()
        result = await self._call(request.workspace_id, "file.remove", params)
        return file_pb2.RemoveFileResponse(removed=answers.integer(result, "removed"))

    async def _call(self, workspace_id: str, op: str, params: dict[str, object]) -> dict[str, Any]:
        async with use(self._workspaces, workspace_id) as handle:
            return await handle.guest.call(op, params)


def _watch_responses(message: dict[str, Any]) -> list[file_pb2.WatchFilesResponse]:
    responses = []
    if "ready" in message:
        ready = file_pb2.WatchReady(polling=answers.text(message, "mode") == "poll")
        responses.append(file_pb2.WatchFilesResponse(ready=ready))
    if "events" in message:
        events = answers.records(message, "events")
        responses += [file_pb2.WatchFilesResponse(change=file_change(event)) for event in events]
    if answers.flag(message, "overflow"):
        responses.append(file_pb2.WatchFilesResponse(overflow=file_pb2.WatchOverflow()))
    return responses


def _watch_heartbeat() -> file_pb2.WatchFilesResponse:
    now = Timestamp()
    now.FromNanoseconds(time.time_ns())
    return file_pb2.WatchFilesResponse(heartbeat=now)
