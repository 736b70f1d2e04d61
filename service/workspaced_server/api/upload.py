"""WriteFile: the client's stream into one file, all or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from workspaced.v1 import file_pb2
from workspaced_server.api import answers
from workspaced_server.api.access import Handle
from workspaced_server.api.fileinfo import file_info
from workspaced_server.api.half_close import confirm_half_close
from workspaced_server.api.limits import MAX_CHUNK_BYTES
from workspaced_server.companion import companion
from workspaced_server.errors import FieldViolation, WorkspacedError, invalid
from workspaced_server.guest.faults import renamed
from workspaced_server.guest.stream import GuestStream

_NAMES = {"OFFSET_INVALID": "UPLOAD_OFFSET_INVALID"}


async def upload(
    handle: Handle,
    header: file_pb2.WriteFileHeader,
    requests: AsyncIterator[file_pb2.WriteFileRequest | memoryview],
    context: grpc.aio.ServicerContext[Any, Any],
) -> file_pb2.WriteFileResponse:
    """Carry out one WriteFile whose header was checked.

    Raises WorkspacedError, ChannelLost. After an error or cancellation the old file is as it was; what had arrived is
    kept only under an `upload_id`.
    """
    params = _params(header)
    try:
        if header.query_offset or header.discard:
            only = "discard" if header.discard else "query_offset"
            result = await handle.guest.call("file.write", params | {only: True})
            return file_pb2.WriteFileResponse(next_offset=answers.integer(result, "next_offset"))
        async with handle.guest.open("file.write", params) as stream:
            first = answers.message(await stream.receive())
            if answers.integer(first, "offset") != header.offset:
                raise answers.malformed()
            async with companion(_send(stream, requests, context), stream.fail):
                if await stream.receive() is not None:
                    raise answers.malformed()
            info = file_info(answers.record(stream.result, "stat"), answers.text(stream.result, "sha256"))
    except WorkspacedError as error:
        raise renamed(error, _NAMES) from None
    return file_pb2.WriteFileResponse(info=info, next_offset=info.size)


async def _send(
    stream: GuestStream,
    requests: AsyncIterator[file_pb2.WriteFileRequest | memoryview],
    context: grpc.aio.ServicerContext[Any, Any],
) -> None:
    async for request in requests:
        if isinstance(request, memoryview):
            data = request
        elif request.WhichOneof("part") == "data":
            data = memoryview(request.data)
        else:
            raise invalid(FieldViolation("header", "may only be the first message of the stream"))
        if len(data) > MAX_CHUNK_BYTES:
            raise invalid(FieldViolation("data", "must have at most 1 MiB: send it in several messages"))
        await stream.send(data)
    await confirm_half_close(context)
    stream.end()


def _params(header: file_pb2.WriteFileHeader) -> dict[str, object]:
    params: dict[str, object] = {
        "path": header.path,
        "create_only": header.create_only,
        "parents": header.parents,
        "sync": not header.no_sync,
        "hash": not header.no_hash,
        "offset": header.offset,
    }
    if header.HasField("mode"):
        params["mode"] = header.mode
    if header.if_match:
        params["if_match"] = header.if_match.lower()
    if header.sha256:
        params["sha256"] = header.sha256.lower()
    if header.upload_id:
        params["upload_id"] = header.upload_id
    return params
