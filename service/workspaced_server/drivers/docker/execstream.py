"""The standard streams of a ``docker exec`` as a byte stream.

The SDK's own way to the hijacked socket loses bytes that came together with the answer's head, so the request is made
here.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
import struct

from workspaced_server.drivers.base import ByteStream
from workspaced_server.drivers.pause import Pause

_HEAD_LIMIT = 65536
_FRAME = struct.Struct(">B3xI")  # stream, length
_STDERR = 2
_STDERR_KEPT = 4096
_CHUNK = 262144
_BULK_BYTES = 4096
_GATHER_SECONDS = 0.0003


class ExecRefusedError(OSError):
    """The engine answered the start of an exec with an HTTP error; ``status`` is its number."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(errno.EPROTO, text)
        self.status = status


class ExecStream:
    """stdin and stdout of an exec without a terminal; the end of stderr is kept in ``complaint``."""

    def __init__(self, raw: ByteStream, early: bytes) -> None:
        self._raw = raw
        self._buffer = memoryview(early)
        self._left = 0  # of the frame that is being read
        self._kind = 0
        self._bulk = False
        self._pause: Pause | None = None
        self._head = b""  # an incomplete frame header
        self._stderr = bytearray()

    @property
    def complaint(self) -> str:
        """The last of what the program wrote to stderr."""
        return self._stderr.decode(errors="replace").strip()

    async def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of ``data`` to stdin. Raises OSError when the stream is broken. Cancellation breaks the stream."""
        await self._raw.send(data)

    async def receive(self, max_bytes: int = 262144) -> bytes:
        """Return 1 to ``max_bytes`` bytes of stdout, or ``b""`` at the end. Raises OSError.

        Cancellation loses nothing.
        """
        while True:
            data = self._take(max_bytes)
            if data:
                return data
            if self._bulk:
                # The engine passes on pieces of 4 to 32 KiB, and whoever waits for the next makes it wake up for each.
                # In this time it fills the socket.
                if self._pause is None:
                    self._pause = Pause(_GATHER_SECONDS)
                await self._pause.wait()
            chunk = await self._raw.receive(_CHUNK)
            if not chunk:
                return b""
            self._bulk = len(chunk) >= _BULK_BYTES
            self._buffer = memoryview(chunk)

    async def aclose(self) -> None:
        """Close both directions. Idempotent; never raises. The engine then closes the program's stdin."""
        if self._pause is not None:
            self._pause.close()
        await self._raw.aclose()

    def _take(self, max_bytes: int) -> bytes:
        """Join what the buffer holds of stdout, frame headers removed; empty when more has to be read."""
        parts: list[memoryview] = []
        room = max_bytes
        buffer = self._buffer
        position, size = 0, len(buffer)
        while position < size and room:
            if self._left == 0:
                if self._head or size - position < _FRAME.size:
                    missing = _FRAME.size - len(self._head)
                    self._head += bytes(buffer[position : position + missing])
                    position += missing
                    if len(self._head) < _FRAME.size:
                        break
                    self._kind, self._left = _FRAME.unpack(self._head)
                    self._head = b""
                else:
                    self._kind, self._left = _FRAME.unpack_from(buffer, position)
                    position += _FRAME.size
                continue
            end = min(position + min(self._left, room), size)
            self._left -= end - position
            if self._kind == _STDERR:
                self._stderr += buffer[position:end]
                del self._stderr[:-_STDERR_KEPT]
            else:
                parts.append(buffer[position:end])
                room -= end - position
            position = end
        self._buffer = buffer[position:]
        return b"".join(parts)


async def start_exec(raw: ByteStream, version: str, exec_id: str) -> ExecStream:
    """Start the exec and take over ``raw``, which is closed on failure. Raises ExecRefusedError and OSError."""
    body = json.dumps({"Detach": False, "Tty": False}).encode()
    head = (
        f"POST /v{version}/exec/{exec_id}/start HTTP/1.1\r\nHost: docker\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    )
    try:
        await raw.send(head.encode() + body)
        answer = b""
        while b"\r\n\r\n" not in answer:
            part = await raw.receive(_CHUNK)
            if not part or len(answer) > _HEAD_LIMIT:
                raise ConnectionResetError(errno.ECONNRESET, "the engine did not answer the start of an exec")
            answer += part
        head_bytes, _, rest = answer.partition(b"\r\n\r\n")
        match = re.match(rb"HTTP/1\.[01] (\d{3})", head_bytes)
        status = int(match[1]) if match else 0
        if status not in (101, 200):
            raise ExecRefusedError(status, await _explain(raw, head_bytes, rest))
    except BaseException:
        await raw.aclose()
        raise
    return ExecStream(raw, rest)


async def _explain(raw: ByteStream, head: bytes, body: bytes) -> str:
    match = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    length = min(int(match[1]), _HEAD_LIMIT) if match else 0
    while len(body) < length:
        part = await raw.receive(_CHUNK)
        if not part:
            break
        body += part
    with contextlib.suppress(ValueError, AttributeError):
        return str(json.loads(body).get("message"))
    return "the engine refused the exec"
