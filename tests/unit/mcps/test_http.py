"""Servers over HTTP, dialled from inside the workspace: Streamable HTTP and SSE, with TLS and without."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import mcp_types as types
import pytest
import trustme

from tests.support.real_guest import Handle
from tests.unit.mcps.conftest import SERVER, Start
from workspaced.v1 import mcp_pb2
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.mcps.mcps import Mcps
from workspaced_server.partitions import Pair

pytestmark = pytest.mark.anyio
PAIR = Pair()
KINDS = {
    "streamable-http": (mcp_pb2.MCP_HTTP_KIND_STREAMABLE, "mcp"),
    "sse": (mcp_pb2.MCP_HTTP_KIND_SSE, "sse"),
}


@asynccontextmanager
async def serving(transport: str, *arguments: str, port: int = 0) -> AsyncIterator[int]:
    """The test server on a port of the host, which is the network of a Local workspace too."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVER), "--transport", transport, "--port", str(port), *arguments,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield int(await process.stdout.readline())
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def http(transport: str, port: int, scheme: str = "http", host: str = "127.0.0.1") -> mcp_pb2.Mcp:
    kind, path = KINDS[transport]
    return mcp_pb2.Mcp(name="m", http=mcp_pb2.McpHttp(url=f"{scheme}://{host}:{port}/{path}", kind=kind))


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    """A private CA; ``ca.pem`` and ``server.pem`` lie in the test's directory."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    ca.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    return ca


def text(result: types.CallToolResult) -> str:
    (item,) = result.content
    assert isinstance(item, types.TextContent)
    return item.text


@pytest.mark.parametrize("transport", sorted(KINDS))
async def test_calls_progress_logs_and_changed_lists(mcps: Mcps, handle: Handle, transport: str) -> None:
    async with serving(transport) as port:
        status, _ = await mcps.add(handle, PAIR, http(transport, port))
        assert (status.server_name, status.process_id) == ("support", "")
        assert text(await mcps.call(handle, PAIR, "m", "echo", {"text": "hi"})) == "hi"
        seen: list[float] = []
        lines: list[object] = []
        await mcps.call(
            handle, PAIR, "m", "slow", {"seconds": 0.2}, on_progress=lambda progress, *_: seen.append(progress)
        )
        await mcps.call(handle, PAIR, "m", "log", {"text": "hi"}, on_log=lambda line: lines.append(line.data))
        assert seen == [1, 2, 3, 4, 5]
        assert lines == ["hi", "hi!"]
        await mcps.call(handle, PAIR, "m", "add_tool", {"name": "later"})
        async with asyncio.timeout(5):
            while "later" not in [item.tool.name for item in (await mcps.tools(handle, PAIR))[0]]:
                await asyncio.sleep(0.02)
        assert len(text(await mcps.call(handle, PAIR, "m", "big", {"size": 700_000}))) == 700_000
        assert await mcps.remove(handle, PAIR, "m")


@pytest.mark.parametrize("transport", sorted(KINDS))
async def test_cancellation(mcps: Mcps, handle: Handle, transport: str, tmp_path: Path) -> None:
    async with serving(transport) as port:
        await mcps.add(handle, PAIR, http(transport, port))
        began = asyncio.Event()
        mark = tmp_path / "mark"
        task = asyncio.create_task(
            mcps.call(handle, PAIR, "m", "slow", {"seconds": 60, "mark": str(mark)}, on_progress=lambda *_: began.set())
        )
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            while not mark.exists() or mark.read_text() != "cancelled":
                await asyncio.sleep(0.01)
        assert text(await mcps.call(handle, PAIR, "m", "echo", {"text": "hi"})) == "hi"


@pytest.mark.parametrize("transport", sorted(KINDS))
async def test_tls_with_a_private_authority(
    start: Start, handle: Handle, transport: str, tmp_path: Path, authority: trustme.CA
) -> None:
    trusting, plain = await start(ca_file=tmp_path / "ca.pem"), await start()
    async with serving(transport, "--certificate", str(tmp_path / "server.pem")) as port:
        mcp = http(transport, port, "https", "localhost")
        with pytest.raises(WorkspacedError) as caught:
            await plain.add(handle, PAIR, mcp)
        assert (caught.value.code, caught.value.reason) == (Code.FAILED_PRECONDITION, "MCP_CONNECT_FAILED")
        assert "certificate is not trusted" in caught.value.message
        await trusting.add(handle, PAIR, mcp)
        assert text(await trusting.call(handle, PAIR, "m", "echo", {"text": "sealed"})) == "sealed"


@pytest.mark.parametrize("transport", sorted(KINDS))
async def test_what_cannot_be_reached_is_told(mcps: Mcps, handle: Handle, transport: str) -> None:
    async with serving(transport) as port:
        cases = [
            (http(transport, 1), "it cannot be reached"),
            (http(transport, port, host="nowhere.invalid"), "it cannot be reached"),
            (http(transport, port, "https"), "TLS could not be agreed on"),
        ]
        missing = http(transport, port)
        missing.http.url = f"http://127.0.0.1:{port}/elsewhere"
        cases.append((missing, "it answered HTTP 404"))
        for mcp, message in cases:
            with pytest.raises(WorkspacedError) as caught:
                await mcps.add(handle, PAIR, mcp)
            assert (caught.value.code, caught.value.reason) == (Code.FAILED_PRECONDITION, "MCP_CONNECT_FAILED")
            assert message in caught.value.message
    assert await mcps.statuses(handle, PAIR) == []


@pytest.mark.parametrize("transport", sorted(KINDS))
async def test_a_server_that_goes_is_seen_at_once_and_connected_again(
    start: Start, handle: Handle, transport: str
) -> None:
    mcps = await start(retry_first_seconds=0.05)
    async with serving(transport) as port:
        await mcps.add(handle, PAIR, http(transport, port))
        with pytest.raises(WorkspacedError) as caught:
            await mcps.call(handle, PAIR, "m", "crash", {})
        assert (caught.value.code, caught.value.reason) == (Code.UNAVAILABLE, "MCP_UNAVAILABLE")
    async with serving(transport, port=port):
        async with asyncio.timeout(10):
            while (answer := await tried(mcps, handle)) is None:
                await asyncio.sleep(0.05)
        assert answer == "back"


async def tried(mcps: Mcps, handle: Handle) -> str | None:
    """The answer, or None while the server is not usable."""
    try:
        return text(await mcps.call(handle, PAIR, "m", "echo", {"text": "back"}))
    except WorkspacedError as error:
        if error.reason != "MCP_UNAVAILABLE":
            raise
        return None


async def test_headers_reach_the_server_and_are_no_environment_of_the_workspace(
    mcps: Mcps, handle: Handle, tmp_path: Path
) -> None:
    requests: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        mcp = http("streamable-http", port)
        mcp.http.headers["Authorization"] = "Bearer hush-hush"
        with pytest.raises(WorkspacedError) as caught:
            await mcps.add(handle, PAIR, mcp)
    assert "it answered HTTP 401" in caught.value.message
    assert "hush-hush" not in str(caught.value)
    assert b"authorization: bearer hush-hush" in requests[0].lower()


@pytest.mark.parametrize("transport", sorted(KINDS))
async def test_one_that_never_answers_is_left_at_once(mcps: Mcps, handle: Handle, transport: str) -> None:
    accepted = asyncio.Event()

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    async with await asyncio.start_server(silence, "127.0.0.1", 0) as listener:
        mcp = http(transport, listener.sockets[0].getsockname()[1])
        task = asyncio.create_task(mcps.add(handle, PAIR, mcp))
        await accepted.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        mcp.call_timeout.FromMilliseconds(300)
        with pytest.raises(WorkspacedError) as caught:
            await mcps.add(handle, PAIR, mcp)
        assert (caught.value.code, caught.value.reason) == (Code.DEADLINE_EXCEEDED, "MCP_TIMEOUT")
        async with asyncio.timeout(5):
            while handle.guest.streams:
                await asyncio.sleep(0.01)


async def test_answers_are_bounded(start: Start, handle: Handle) -> None:
    mcps = await start(max_message_bytes=100_000)
    async with serving("streamable-http") as port:
        await mcps.add(handle, PAIR, http("streamable-http", port))
        with pytest.raises(WorkspacedError):
            await mcps.call(handle, PAIR, "m", "big", {"size": 200_000})
        assert text(await mcps.call(handle, PAIR, "m", "echo", {"text": "still"})) == "still"
