"""What offloading does in a workspace: the calls of the API, and what other parts of the server offload by."""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from workspaced.v1 import content_pb2, offload_pb2
from workspaced_server.errors import FieldViolation, invalid
from workspaced_server.guest import answers
from workspaced_server.offload import layout, messages
from workspaced_server.offload.layout import CONTEXT, KIND_NAMES, Location, describe
from workspaced_server.offload.media import DEFAULT_MEDIA_TYPE, extension_of
from workspaced_server.offload.parcel import Parcel, Workspace, inline_blocks
from workspaced_server.offload.text import result_text
from workspaced_server.partitions import directory_name
from workspaced_server.session_calls import SessionCalls
from workspaced_server.workspaces.locks import KeyedLocks

# A larger message is hashed and made a line in a thread, so that it holds up nobody else.
_LARGE_BYTES: Final = 64 * 1024
_HASHED: Final = "%sha256-"


class Offloads:
    """Offloading in any workspace. Holds nothing but the calls that run and the order of each session's."""

    def __init__(self, calls: SessionCalls | None = None) -> None:
        self.calls = calls or SessionCalls()
        self._locks = KeyedLocks()

    async def context(
        self,
        workspace: Workspace,
        session_id: str | None,
        entries: AsyncIterator[content_pb2.Message],
        *,
        request_id: str = "",
        complete: Callable[[], Awaitable[None]] | None = None,
    ) -> offload_pb2.OffloadContextResponse:
        """Append messages to a session's context: all or none, and together. They are changed: bytes of data blocks
        become URLs, and what is missing is filled in. `complete` is awaited after the last one, before anything is
        written. Idempotent with a `request_id`.

        Raises WorkspacedError, ChannelLost, and what `entries` and `complete` raise. Cancelled before all was sent it
        has written nothing, later all or nothing.
        """
        digest = hashlib.sha256(b"context\n")
        count = 0
        now = time.time_ns()
        with self.calls.running(workspace.key, session_id):
            async with Parcel(workspace, "offload.append", _session(session_id, request_id)) as parcel:
                async for message in entries:
                    if request_id:
                        await _add(digest, message)
                    await parcel.move(inline_blocks(message.content))
                    if not message.id:
                        message.id = uuid.uuid4().hex
                    if not message.HasField("create_time"):
                        message.create_time.FromNanoseconds(now)
                    if message.ByteSize() > messages.MAX_MESSAGE_BYTES:
                        rule = f"must have at most {messages.MAX_MESSAGE_BYTES} bytes: offload what is in it as data"
                        raise invalid(FieldViolation(f"message[{count}]", rule))
                    await parcel.text(await _line(message))
                    count += 1
                if complete is not None:
                    await complete()
                async with self._locks.hold(f"{workspace.key}/{directory_name(session_id)}"):
                    answer = await parcel.deliver({"count": count, "digest": digest.hexdigest()})
        place = Location(directory_name(session_id), CONTEXT)
        return offload_pb2.OffloadContextResponse(
            offload=_of(describe(workspace, place, answer), session_id),
            start_offset=answers.integer(answer, "start"),
            end_offset=answers.integer(answer, "end"),
            message_count=answers.integer(answer, "count", high=(1 << 32) - 1),
            existing=answers.flag(answer, "existing"),
        )

    async def tool_result(
        self, workspace: Workspace, session_id: str | None, block: content_pb2.ToolResultBlock, *, request_id: str = ""
    ) -> offload_pb2.Offload:
        """Store the output of a tool call as a file of its session, which `block.id` names; the id has to be one that
        a file can be named after (`api.pairs.check_id`). Idempotent with a `request_id`; nothing is overwritten.

        Raises WorkspacedError, ChannelLost. Cancelled, it has stored all or nothing. `block` stays as it is.
        """
        return (await self.store_tool_result(workspace, session_id, block, request_id=request_id))[0]

    async def store_tool_result(
        self, workspace: Workspace, session_id: str | None, block: content_pb2.ToolResultBlock, *, request_id: str = ""
    ) -> tuple[offload_pb2.Offload, bool]:
        """As `tool_result`; also says whether the answer is that of an earlier call."""
        digest = hashlib.sha256(b"tool_result\n")
        if request_id:
            await _add(digest, block)
        moved = content_pb2.ToolResultBlock()
        moved.CopyFrom(block)
        params = {**_session(session_id, request_id), "id": block.id}
        with self.calls.running(workspace.key, session_id):
            async with Parcel(workspace, "offload.tool_result", params) as parcel:
                await parcel.move(inline_blocks(moved.output))
                await parcel.text(result_text(moved.output).encode())
                async with self._locks.hold(f"{workspace.key}/{directory_name(session_id)}"):
                    answer = await parcel.deliver({"digest": digest.hexdigest()})
        place = Location(directory_name(session_id), answers.text(answer, "name"))
        offload = _of(describe(workspace, place, answer), session_id)
        offload.tool_call_id = block.id
        return offload, answers.flag(answer, "existing")

    async def data(
        self, workspace: Workspace, data: bytes, media_type: str, name: str = ""
    ) -> tuple[offload_pb2.Offload, content_pb2.DataBlock]:
        """Store bytes as a data file; also gives a block that refers to it. Idempotent.

        Raises WorkspacedError, ChannelLost. Cancelled, it has stored all or nothing.
        """

        async def whole() -> AsyncIterator[bytes]:
            yield data

        offload, block, _ = await self.store_data(workspace, whole(), media_type, name=name)
        return offload, block

    async def store_data(
        self,
        workspace: Workspace,
        chunks: AsyncIterator[bytes],
        media_type: str,
        *,
        sha256: str = "",
        name: str = "",
        complete: Callable[[], Awaitable[None]] | None = None,
    ) -> tuple[offload_pb2.Offload, content_pb2.DataBlock, bool]:
        """As `data`, for bytes that come in chunks; also says whether they were there before. `complete` is awaited
        after the last chunk, before anything is stored. Raises HASH_MISMATCH when the bytes are not those of `sha256`.
        """
        media_type = media_type or DEFAULT_MEDIA_TYPE
        params: dict[str, object] = {"ext": extension_of(media_type)}
        if sha256:
            params["sha256"] = sha256
        async with workspace.guest.open("offload.data", params) as stream:
            async for chunk in chunks:
                await stream.send(chunk)
                if stream.receive_nowait() is None:
                    raise answers.malformed()
            if complete is not None:
                await complete()
            stream.end()
            if await stream.receive() is not None:
                raise answers.malformed()
            answer = stream.result
        place = Location(None, answers.text(answer, "name"))
        offload = describe(workspace, place, answer, media_type=media_type)
        offload.sha256 = answers.text(answer, "sha256")
        block = content_pb2.DataBlock(media_type=media_type, url=place.url, name=name)
        return offload, block, answers.flag(answer, "existing")

    async def list(
        self,
        workspace: Workspace,
        *,
        session_id: str | None = None,
        kind: offload_pb2.OffloadKind.ValueType = offload_pb2.OFFLOAD_KIND_UNSPECIFIED,
        page_size: int = 100,
        page_token: str = "",
    ) -> tuple[list[offload_pb2.Offload], str]:
        """A page of what is stored, by path, and the token of the next; None stands for all sessions and data.

        Raises WorkspacedError, ChannelLost.
        """
        params: dict[str, object] = {"page_size": page_size, "page_token": answers.guest_page_token(page_token)}
        if session_id is not None:
            params["session"] = directory_name(session_id)
        if kind:
            params["kind"] = KIND_NAMES[kind]
        answer = await workspace.guest.call("offload.list", params)
        entries = answers.records(answer, "entries")
        found = [describe(workspace, layout.location_of(entry), entry) for entry in entries]
        return found, answers.page_token(answer)

    async def purge(self, workspace: Workspace, session_id: str) -> int:
        """Remove a session's directory; how many files that were. Idempotent. Calls of the session that still run have
        to be ended before (`calls`). Raises WorkspacedError, ChannelLost; cancelled half-way, call it again.
        """
        directory = directory_name(session_id)
        async with self._locks.hold(f"{workspace.key}/{directory}"):
            answer = await workspace.guest.call("offload.purge", {"session": directory})
        return answers.integer(answer, "removed", high=(1 << 32) - 1)


def _session(session_id: str | None, request_id: str) -> dict[str, object]:
    params: dict[str, object] = {"session": directory_name(session_id)}
    if session_id is not None and str(params["session"]).startswith(_HASHED):
        params["label"] = session_id
    if request_id:
        params["request_id"] = request_id
    return params


def _of(offload: offload_pb2.Offload, session_id: str | None) -> offload_pb2.Offload:
    offload.session_id = session_id or ""
    return offload


async def _add(digest: hashlib._Hash, message: content_pb2.Message | content_pb2.ToolResultBlock) -> None:
    if message.ByteSize() < _LARGE_BYTES:
        _add_now(digest, message)
    else:
        await asyncio.to_thread(_add_now, digest, message)


def _add_now(digest: hashlib._Hash, message: content_pb2.Message | content_pb2.ToolResultBlock) -> None:
    data = message.SerializeToString(deterministic=True)
    digest.update(len(data).to_bytes(8, "big") + data)


async def _line(message: content_pb2.Message) -> bytes:
    if message.ByteSize() < _LARGE_BYTES:
        return _encode(message)
    return await asyncio.to_thread(_encode, message)


def _encode(message: content_pb2.Message) -> bytes:
    try:
        line = messages.encode(message) + b"\n"
    except (ValueError, OverflowError) as error:
        raise invalid(FieldViolation("message.create_time", "must be a time in the years 1 to 9999")) from error
    if len(line) > messages.MAX_LINE_BYTES:
        # Characters that JSON escapes take six bytes each.
        raise invalid(FieldViolation("message", f"must have at most {messages.MAX_LINE_BYTES} bytes as JSON"))
    return line
