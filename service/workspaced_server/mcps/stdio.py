"""MCP over the standard streams of a process in the workspace: newline-delimited JSON over one `pipe.spawn`."""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from typing import TYPE_CHECKING, Any, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, JSONRPCNotification
from pydantic import ValidationError

from workspaced_guest import wire
from workspaced_server.errors import WorkspacedError
from workspaced_server.guest.channel import ChannelLost
from workspaced_server.mcps.failures import McpFailure, tail
from workspaced_server.mcps.messages import message_of
from workspaced_server.mcps.pace import Pace

if TYPE_CHECKING:
    from workspaced_server.guest.channel import GuestChannel
    from workspaced_server.guest.stream import GuestStream

# A server whose first message has not come may write so much in one line; later ones may be as large as configured.
_FIRST_MESSAGE_BYTES = 1 << 20
# Lines in a row that are no messages: some servers greet on their standard output, none does only that.
_MAX_NOISE_LINES = 200
# Messages for a server that does not read.
_MAX_UNREAD_BYTES = 64 << 20
_MAX_UNREAD_MESSAGES = 1000
_TELL_SECONDS = 0.05
# After the end of its standard input a server has so long to end by itself; then it is stopped.
_GOODBYE_SECONDS = 1.0
_EXCERPT = 120
# A line that is too long is read to its end, up to so many times the limit, and so much of both of its ends is kept.
_MAX_SKIPPED = 16
_END_BYTES = 512
# Where an answer says which request it answers: at the beginning, or at the end, depending on the server's SDK.
_HEAD = re.compile(rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,18})\s*,\s*"(?:result|error)"')
_END = re.compile(rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,18})\s*\}\s*$')
_TAIL_BYTES = 8192
_TAIL_SECONDS = 2.0
_EXIT_SECONDS = 1.0


class PipeReader:
    """The read half that a session wants: messages from the server's standard output.

    It ends when the process or its output does; ``failure`` then says why, and ``ended`` is set.
    """

    def __init__(self, stream: GuestStream, max_bytes: int) -> None:
        self.ended = asyncio.Event()
        self.failure: McpFailure | ChannelLost | None = None
        self.exit: dict[str, Any] | None = None
        self.noise = b""  # the first line that was no message
        self._stream = stream
        self._max_bytes = max_bytes
        self._limit = min(_FIRST_MESSAGE_BYTES, max_bytes)
        self._parts: list[bytes] = []  # of a line whose end has not come
        self._size = 0
        self._lines: deque[bytes] = deque()
        self._skipped = 0  # bytes of a line that is too long, of which only both ends are kept
        self._ends = (b"", b"")
        self._noisy = 0
        self._pace = Pace()

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        await self._pace.turn()
        while not self.ended.is_set():
            while self._lines:
                message = self._parse(self._lines.popleft())
                if message is not None:
                    return message
                if self.failure is not None:
                    break
            if self.failure is None:
                await self._fill()
            if self.failure is not None:
                self.ended.set()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """No more is read."""
        self.ended.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _fill(self) -> None:
        """Wait for bytes, and cut them into lines."""
        try:
            item = await self._stream.receive()
        except ChannelLost as lost:
            self.failure = lost
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the session ends and says so
            self.failure = McpFailure("MCP_CRASHED", f"its pipe broke: {error}")
            return
        if item is None:
            self.exit = self._stream.result.get("exit")
        if not isinstance(item, bytes) or not item:
            self.failure = McpFailure("MCP_CRASHED", "it closed its standard output")
            return
        if self._skipped:
            item = self._skip(item)
            if not item:
                return
        first, *rest = item.split(b"\n")
        self._parts.append(first)
        self._size += len(first)
        if rest:
            for line in (b"".join(self._parts), *rest[:-1]):
                if len(line) <= self._limit:
                    self._lines.append(line)
                elif self.failure is None:
                    self._refuse(line[:_END_BYTES], line[-_END_BYTES:])
            self._parts = [rest[-1]]
            self._size = len(rest[-1])
        if self._size > self._limit:
            long = b"".join(self._parts)
            self._parts, self._size = [], 0
            if self._limit < self._max_bytes:
                self._too_long()
            else:
                self._skipped, self._ends = len(long), (long[:_END_BYTES], long[-_END_BYTES:])

    def _skip(self, item: bytes) -> bytes:
        """Drop what belongs to a line that is too long; returns what follows it."""
        part, newline, following = item.partition(b"\n")
        self._skipped += len(part)
        self._ends = (self._ends[0], (self._ends[1] + part[-_END_BYTES:])[-_END_BYTES:])
        if newline:
            self._skipped = 0
            self._refuse(*self._ends)
        elif self._skipped > _MAX_SKIPPED * self._max_bytes:
            self._too_long()
        return following

    def _refuse(self, head: bytes, end: bytes) -> None:
        """Let a line that is too long fail the request that it answers, and no other; without one the session ends."""
        refusal = (
            None
            if self._limit < self._max_bytes
            else answer_to(head, end, f"the server's answer has more than {self._max_bytes} bytes")
        )
        if refusal is None:
            self._too_long()
        else:
            self._lines.append(refusal)

    def _too_long(self) -> None:
        self._lines.clear()
        text = f"it wrote a line of more than {self._limit} bytes"
        self.failure = McpFailure("MCP_PROTOCOL_ERROR", text)

    def _parse(self, line: bytes) -> SessionMessage | None:
        if not line.strip():
            return None
        self._pace.taken()
        try:
            message = message_of(line)
        except ValidationError:
            refusal = answer_to(line[:_END_BYTES], line[-_END_BYTES:], "the server's answer cannot be read")
            if refusal is not None:
                return SessionMessage(message_of(refusal))
            self.noise = self.noise or line[:_EXCERPT]
            self._noisy += 1
            if self._noisy >= _MAX_NOISE_LINES:
                text = f"it writes lines that are no JSON-RPC messages, such as {excerpt(self.noise)}"
                self.failure = McpFailure("MCP_PROTOCOL_ERROR", text)
            return None
        self._noisy = 0
        self._limit = self._max_bytes
        return SessionMessage(message)


class PipeWriter:
    """The write half: messages to the server's standard input, each whole or not at all."""

    def __init__(self, stream: GuestStream) -> None:
        self._stream = stream
        self._lock = asyncio.Lock()
        self._long: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._unread = 0
        self._closed = False

    async def send(self, item: SessionMessage) -> None:
        """Send one message. A message that has begun is finished also when the caller is cancelled.

        Raises BrokenResourceError when the server does not read, or is gone.
        """
        data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if self._closed:
            raise anyio.ClosedResourceError
        if self._waiting >= _MAX_UNREAD_MESSAGES or self._unread + len(data) > _MAX_UNREAD_BYTES:
            raise anyio.BrokenResourceError
        told = isinstance(item.message, JSONRPCNotification)
        if len(data) <= wire.MAX_DATA and not told and not self._lock.locked():
            await self._write(data)  # one frame, which is sent or not
            return
        task = asyncio.create_task(self._write(data))
        self._long.add(task)
        task.add_done_callback(self._written)
        if told:
            # Whoever only tells something, above all that a call was cancelled, does not wait for a server that is
            # stuck; what is sent next waits behind it.
            await asyncio.wait([task], timeout=_TELL_SECONDS)
        else:
            await asyncio.shield(task)

    async def aclose(self) -> None:
        """Nothing more is sent."""
        self._closed = True
        tasks = list(self._long)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _written(self, task: asyncio.Task[None]) -> None:
        self._long.discard(task)
        if not task.cancelled():
            task.exception()  # who waits for it has it; a notification that is lost with its server is no loss

    async def _write(self, data: bytes) -> None:
        self._waiting += 1
        self._unread += len(data)
        try:
            async with self._lock:
                await self._stream.send(data)
        except OSError:
            raise anyio.BrokenResourceError from None
        finally:
            self._waiting -= 1
            self._unread -= len(data)


def answer_to(head: bytes, end: bytes, message: str) -> bytes | None:
    """An error in the place of an answer of which only both ends are known; None when it answers no request."""
    found = _HEAD.match(head) or (_END.search(end) if b'"method"' not in head else None)
    if found is None:
        return None
    error = {"code": INTERNAL_ERROR, "message": message}
    return json.dumps({"jsonrpc": "2.0", "id": int(found[1]), "error": error}).encode()


def excerpt(data: bytes) -> str:
    """Bytes of a server in a text for people."""
    return repr(data[:_EXCERPT].decode("utf-8", "replace").strip())


def ending(gone: dict[str, Any]) -> str:
    """How the process ended, for people."""
    if gone.get("signal"):
        text = f"it was killed by signal {gone['signal']}"
    elif gone.get("code") is not None:
        text = f"it exited with code {gone['code']}"
    else:
        text = "it ended"
    return f"{text}, out of memory" if gone.get("reason") == "OOM_KILLED" else text


async def say_goodbye(stream: GuestStream) -> None:
    """Close the server's standard input, and give it time to end by itself."""
    stream.end()
    try:
        async with asyncio.timeout(_GOODBYE_SECONDS):
            while await stream.receive() is not None:
                pass
    except (TimeoutError, OSError, WorkspacedError):
        return  # leaving the stream stops what is left


async def exit_of(stream: GuestStream, reader: PipeReader) -> dict[str, Any] | None:
    """How the process ended, when it does so soon."""
    if reader.exit is None and reader.failure is not None and not isinstance(reader.failure, ChannelLost):
        try:
            async with asyncio.timeout(_EXIT_SECONDS):
                while await stream.receive() is not None:
                    pass
                reader.exit = stream.result.get("exit")
        except (TimeoutError, OSError):
            return None
        except Exception:  # noqa: BLE001 - an ERROR of the guest; how it ended stays unknown
            return None
    return reader.exit


async def stderr_tail(guest: GuestChannel, process_id: str) -> str:
    """The end of what the process wrote to its standard error; empty when it cannot be had."""
    try:
        async with asyncio.timeout(_TAIL_SECONDS):
            found = (await guest.call("process.get", {"process_id": process_id}))["process"]
            start = max(int(found["first_offset"]), int(found["next_offset"]) - _TAIL_BYTES)
            data = bytearray()
            params = {"process_id": process_id, "offset": start, "follow": False}
            async with guest.open("process.attach", params) as stream:
                while (item := await stream.receive()) is not None and len(data) < 2 * _TAIL_BYTES:
                    if isinstance(item, bytes):
                        data += item[9:]  # after the tag and the offset
        return tail(bytes(data))
    except Exception:  # noqa: BLE001 - the tail is an extra; the failure itself is told in any case
        return ""
