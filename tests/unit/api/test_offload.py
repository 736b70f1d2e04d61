"""OffloadService and the purges over a real guest."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from tests.support.real_guest import RealGuest, RunningServer, error_info, reason, violations
from workspaced.v1 import content_pb2, management_pb2, management_pb2_grpc, offload_pb2, offload_pb2_grpc
from workspaced_server.api.encoding import offload_chunk
from workspaced_server.partitions import Pair

pytestmark = pytest.mark.anyio

if TYPE_CHECKING:
    Stub = offload_pb2_grpc.OffloadServiceAsyncStub


@pytest.fixture
def offload(server: RunningServer) -> Stub:
    return offload_pb2_grpc.OffloadServiceStub(server.channel)


@pytest.fixture
def management(server: RunningServer) -> management_pb2_grpc.ManagementServiceAsyncStub:
    return management_pb2_grpc.ManagementServiceStub(server.channel)


def text(content: str, **fields: object) -> content_pb2.Message:
    block = content_pb2.ContentBlock(text=content_pb2.TextBlock(text=content))
    return content_pb2.Message(role=content_pb2.ROLE_USER, content=[block], **fields)  # type: ignore[arg-type]


def data(content: bytes, media_type: str = "image/png") -> content_pb2.ContentBlock:
    return content_pb2.ContentBlock(data=content_pb2.DataBlock(media_type=media_type, bytes=content, name="n"))


def start(session_id: str = "s", request_id: str = "") -> offload_pb2.OffloadContextRequest:
    head = offload_pb2.OffloadContextStart(workspace_id="w", session_id=session_id, request_id=request_id)
    return offload_pb2.OffloadContextRequest(start=head)


def context(
    *messages: content_pb2.Message, session_id: str = "s", request_id: str = ""
) -> Iterator[offload_pb2.OffloadContextRequest]:
    yield start(session_id, request_id)
    for message in messages:
        yield offload_pb2.OffloadContextRequest(message=message)


def result(identifier: str = "t", *output: content_pb2.ContentBlock) -> content_pb2.ToolResultBlock:
    return content_pb2.ToolResultBlock(id=identifier, name="Bash", output=output)


async def read(offload: Stub, path: str, **ranges: object) -> list[offload_pb2.ReadOffloadResponse]:
    request = offload_pb2.ReadOffloadRequest(workspace_id="w", path=path, **ranges)  # type: ignore[arg-type]
    return [part async for part in offload.ReadOffload(request)]


async def messages(offload: Stub, path: str, skip: int = 0, limit: int = 0) -> list[content_pb2.Message]:
    parts = await read(offload, path, messages=offload_pb2.OffloadMessageRange(skip=skip, limit=limit))
    assert parts[0].WhichOneof("part") == "header"
    assert [part.message.index for part in parts[1:]] == list(range(skip, skip + len(parts) - 1))
    return [part.message.message for part in parts[1:]]


async def refused(call: object) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call  # type: ignore[misc]
    return caught.value


async def test_messages_come_back_with_their_data_moved(offload: Stub, guest: RealGuest) -> None:
    message = text("hello", name="bob")
    message.content.append(data(b"png"))
    nested = result("call", data(b"wav", "audio/wav"))
    message.content.append(content_pb2.ContentBlock(tool_result=nested))
    message.content.append(content_pb2.ContentBlock(hint=content_pb2.HintBlock(content=[data(b"png")], source="x")))
    message.metadata.update({"a": [1, None, {"b": "c"}]})
    answer = await offload.OffloadContext(context(message))
    assert (answer.message_count, answer.start_offset, answer.existing) == (1, 0, False)
    assert answer.offload.path == str(guest.workdir / "sessions/s/context.jsonl")
    assert answer.offload.url == "workspace:///sessions/s/context.jsonl"
    (stored,) = await messages(offload, answer.offload.path)
    assert stored.id
    assert stored.create_time.seconds
    png = f"workspace:///data/{hashlib.sha256(b'png').hexdigest()}.png"
    assert stored.content[1].data == content_pb2.DataBlock(media_type="image/png", url=png, name="n")
    wav = f"workspace:///data/{hashlib.sha256(b'wav').hexdigest()}.wav"
    assert stored.content[2].tool_result.output[0].data.url == wav
    assert stored.content[3].hint.content[0].data.url == png
    for field in ("role", "name", "metadata"):
        assert getattr(stored, field) == getattr(message, field)
    assert b"".join(part.chunk.data for part in await read(offload, png)) == b"png"
    assert (guest.workdir / png.removeprefix("workspace:///")).read_bytes() == b"png"


async def test_requests_are_idempotent_although_ids_and_times_are_made_here(offload: Stub) -> None:
    first = await offload.OffloadContext(context(text("a"), text("b"), request_id="r"))
    again = await offload.OffloadContext(context(text("a"), text("b"), request_id="r"))
    assert again.existing
    again.existing = False
    assert again == first
    error = await refused(offload.OffloadContext(context(text("a"), text("c"), request_id="r")))
    assert (error.code(), reason(error)) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    request = offload_pb2.OffloadToolResultRequest(workspace_id="w", session_id="s", result=result(), request_id="r")
    assert reason(await refused(offload.OffloadToolResult(request))) == "REQUEST_ID_REUSED"
    assert len(await messages(offload, first.offload.path)) == 2


async def test_nothing_is_a_success_that_writes_nothing(offload: Stub, guest: RealGuest) -> None:
    answer = await offload.OffloadContext(context(request_id="r"))
    assert (answer.message_count, answer.start_offset, answer.end_offset) == (0, 0, 0)
    assert answer.offload.path == str(guest.workdir / "sessions/s/context.jsonl")
    assert list(guest.workdir.iterdir()) == []


async def test_a_call_that_is_given_up_has_stored_nothing(offload: Stub, guest: RealGuest) -> None:
    for large in (False, True):
        call = offload.OffloadContext()
        await call.write(start())
        for _ in range(3):
            message = text("x" * 300_000)
            if large:
                message.content.append(data(b"y" * 500_000))
            await call.write(offload_pb2.OffloadContextRequest(message=message))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        storing = offload.OffloadData()
        head = offload_pb2.OffloadDataStart(workspace_id="w", media_type="image/png")
        await storing.write(offload_pb2.OffloadDataRequest(start=head))
        for _ in range(3 if large else 1):
            await storing.write(offload_pb2.OffloadDataRequest(chunk=b"z" * 300_000))
        storing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await storing
    # What comes next waits behind what the guest still has to undo.
    await offload.OffloadContext(context(text("after")))
    assert len(await messages(offload, "sessions/s/context.jsonl")) == 1
    found = await offload.ListOffloads(offload_pb2.ListOffloadsRequest(workspace_id="w"))
    assert [each.kind for each in found.offloads] == [offload_pb2.OFFLOAD_KIND_CONTEXT]


async def test_an_invalid_message_at_the_end_stores_nothing(offload: Stub, guest: RealGuest) -> None:
    bad = text("x")
    bad.role = content_pb2.ROLE_UNSPECIFIED
    first = text("x" * 1_000_000)
    first.content.append(data(b"y" * 1_000_000))
    error = await refused(offload.OffloadContext(context(first, bad)))
    assert (reason(error), violations(error)) == ("ARGUMENT_INVALID", {"message[1].role"})
    assert not (guest.workdir / "sessions").exists()
    assert not (guest.workdir / "data").exists()


def invalid_blocks() -> Iterable[tuple[content_pb2.ContentBlock, str]]:
    """Blocks, and the field that each violates."""
    block = content_pb2.ContentBlock
    url = content_pb2.DataBlock(url="x:")
    yield block(data=url), "data.media_type"
    yield block(data=content_pb2.DataBlock(media_type="image", url="x:")), "data.media_type"
    yield block(data=content_pb2.DataBlock(media_type="a/b")), "data"
    yield block(data=content_pb2.DataBlock(media_type="a/b", url="")), "data.url"
    yield block(tool_call=content_pb2.ToolCallBlock(name="x")), "tool_call.id"
    yield block(tool_call=content_pb2.ToolCallBlock(id="x")), "tool_call.name"
    yield block(tool_result=content_pb2.ToolResultBlock(name="x")), "tool_result.id"
    yield block(tool_result=result("t", block(data=url))), "tool_result.output[0].data.media_type"
    yield block(tool_result=result("t", block(thinking=content_pb2.ThinkingBlock()))), "tool_result.output[0]"
    yield block(hint=content_pb2.HintBlock(content=[block(hint=content_pb2.HintBlock())])), "hint.content[0]"


async def test_invalid_requests(offload: Stub, guest: RealGuest) -> None:
    for block, field in invalid_blocks():
        message = content_pb2.Message(role=content_pb2.ROLE_ASSISTANT, content=[block])
        assert violations(await refused(offload.OffloadContext(context(message)))) == {f"message[0].content[0].{field}"}
    assert violations(await refused(offload.OffloadContext(iter(())))) == {"start"}
    assert violations(await refused(offload.OffloadContext(iter([start(), start()])))) == {"start"}
    late = text("x")
    late.create_time.seconds = 1 << 60
    assert violations(await refused(offload.OffloadContext(context(late)))) == {"message[0].create_time"}
    for hostile in ("", ".", "..", "../x", "a/b", "a\\b", ".x", "a\nb", "é" * 101, "\0"):
        error = await refused(offload.OffloadContext(context(text("x"), session_id=hostile)))
        assert violations(error) == {"session_id"}, hostile
        request = offload_pb2.OffloadToolResultRequest(workspace_id="w", session_id="s", result=result(hostile))
        assert violations(await refused(offload.OffloadToolResult(request))) == {"result.id"}, hostile
        listing = offload_pb2.ListOffloadsRequest(workspace_id="w", session_id=hostile)
        assert violations(await refused(offload.ListOffloads(listing))) == {"session_id"}
    error = await refused(offload.OffloadContext(context(text("x"), request_id="x" * 129)))
    assert violations(error) == {"request_id"}
    for listing in (
        offload_pb2.ListOffloadsRequest(workspace_id="w", page_size=-1),
        offload_pb2.ListOffloadsRequest(workspace_id="w", page_token="nonsense"),
        offload_pb2.ListOffloadsRequest(workspace_id="w", kind=99),  # type: ignore[arg-type]
    ):
        assert len(violations(await refused(offload.ListOffloads(listing)))) == 1
    assert violations(await refused(read(offload, ""))) == {"path"}
    assert list(guest.workdir.iterdir()) == []


async def test_data(offload: Stub) -> None:
    def chunks(count: int = 5, **fields: str) -> Iterator[offload_pb2.OffloadDataRequest]:
        head = offload_pb2.OffloadDataStart(workspace_id="w", **fields)
        yield offload_pb2.OffloadDataRequest(start=head)
        for _ in range(count):
            yield offload_pb2.OffloadDataRequest(chunk=b"x" * 700_000)

    sha256 = hashlib.sha256(b"x" * 3_500_000).hexdigest()
    first = await offload.OffloadData(chunks(media_type="video/mp4; codecs=x", sha256=sha256.upper(), name="film"))
    assert first.offload.path.endswith(f"/data/{sha256}.mp4")
    assert (first.offload.sha256, first.offload.size_bytes, first.existing) == (sha256, 3_500_000, False)
    assert (first.data.media_type, first.data.name) == ("video/mp4; codecs=x", "film")
    assert (await offload.OffloadData(chunks(media_type="video/mp4"))).existing
    assert not (await offload.OffloadData(chunks())).existing
    error = await refused(offload.OffloadData(chunks(sha256="0" * 64)))
    assert (error.code(), reason(error)) == (grpc.StatusCode.DATA_LOSS, "HASH_MISMATCH")
    # Nothing behind it: a write under way when the refusal comes makes grpc.aio forget the server's status.
    error = await refused(offload.OffloadData(chunks(0, sha256="xyz", media_type="x")))
    assert violations(error) == {"sha256", "media_type"}
    parts = await read(offload, first.data.url, bytes=offload_pb2.OffloadByteRange(offset=5, length=600_000))
    assert parts[0].header.sha256 == sha256
    assert [part.chunk.offset for part in parts[1:]] == [5 + 262_144 * number for number in range(3)]
    assert sum(len(part.chunk.data) for part in parts) == 600_000


async def test_tool_results(offload: Stub) -> None:
    block = content_pb2.ContentBlock(text=content_pb2.TextBlock(text="é\n"))
    request = offload_pb2.OffloadToolResultRequest(
        workspace_id="w", session_id="s", result=result("a b%", block, data(b"x", "a/b"))
    )
    paths = [(await offload.OffloadToolResult(request)).offload for _ in range(2)]
    assert [found.url.rpartition("/")[2] for found in paths] == [
        "tool_result-a%20b%25.txt",
        "tool_result-a%20b%25(1).txt",
    ]
    assert {found.tool_call_id for found in paths} == {"a b%"}
    whole = b"".join(part.chunk.data for part in await read(offload, paths[0].url))
    url = f"workspace:///data/{hashlib.sha256(b'x').hexdigest()}.bin"
    assert whole.decode() == f'é\n<data url="{url}" media_type="a/b" name="n"/>\n'
    error = await refused(read(offload, paths[0].path, messages=offload_pb2.OffloadMessageRange()))
    assert (error.code(), reason(error)) == (grpc.StatusCode.FAILED_PRECONDITION, "OFFLOAD_NOT_A_CONTEXT")


async def test_paths_that_are_no_offload(offload: Stub, guest: RealGuest) -> None:
    await offload.OffloadContext(context(text("x")))
    (guest.workdir / "project").mkdir()
    (guest.workdir / "project" / "file").write_text("mine")
    (guest.workdir / "sessions/s/link.txt").symlink_to("/etc/passwd")
    (guest.workdir / "sessions/s/tool_result-x.txt").symlink_to("/etc/passwd")
    for path in (
        "/etc/passwd",
        "project/file",
        "sessions/s",
        "sessions/s/link.txt",
        "sessions/s/tool_result-x.txt",
        "sessions/../sessions/s/context.jsonl",
        "sessions/s/.requests",
        "workspace:///sessions/s/%2e%2e/context.jsonl",
        "workspace:///sessions/s%2Fcontext.jsonl%00",
        "workspace://host/sessions/s/context.jsonl",
        "workspace:///sessions/%FF/context.jsonl",
        "data/" + "0" * 64,
        "x" * 300,
    ):
        error = await refused(read(offload, path))
        assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "OFFLOAD_NOT_FOUND"), path
    for path in ("sessions/s/context.jsonl", "./sessions/s/context.jsonl", "workspace:///sessions/s/context.jsonl"):
        assert len(await read(offload, path)) == 2
    error = await refused(read(offload, path, bytes=offload_pb2.OffloadByteRange(offset=10_000)))
    assert (error.code(), reason(error)) == (grpc.StatusCode.OUT_OF_RANGE, "OFFSET_INVALID")


async def test_a_line_that_is_no_message(offload: Stub, guest: RealGuest) -> None:
    await offload.OffloadContext(context(*(text(str(number)) for number in range(3))))
    file = guest.workdir / "sessions/s/context.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + b"\n" + lines[1] + b"nonsense\n" + lines[2])
    request = offload_pb2.ReadOffloadRequest(
        workspace_id="w", path=str(file), messages=offload_pb2.OffloadMessageRange()
    )
    seen: list[offload_pb2.ReadOffloadResponse] = []

    async def look() -> None:
        async for part in offload.ReadOffload(request):
            seen.append(part)  # noqa: PERF401 - what came before the error counts

    error = await refused(look())
    assert [part.message.index for part in seen[1:]] == [0, 2], "a blank line is passed over"
    assert (error.code(), reason(error)) == (grpc.StatusCode.DATA_LOSS, "OFFLOAD_LINE_INVALID")
    assert error_info(error).metadata["line"] == "4"
    assert [message.content[0].text.text for message in await messages(offload, str(file), skip=4)] == ["2"]
    assert len(await messages(offload, str(file), skip=2, limit=1)) == 1


async def test_messages_that_fit_no_answer(offload: Stub, guest: RealGuest) -> None:
    most = (4 << 20) - 1024
    large = text("", id="m")
    large.create_time.GetCurrentTime()
    large.content[0].text.text = "x" * (most - large.ByteSize() - 12)
    assert most - 12 < large.ByteSize() <= most
    answer = await offload.OffloadContext(context(large))
    assert (await messages(offload, answer.offload.path))[0] == large
    large.content[0].text.text += "x" * 20
    assert violations(await refused(offload.OffloadContext(context(text("x"), large)))) == {"message[1]"}
    with (guest.workdir / "sessions/s/context.jsonl").open("a") as file:
        source = {"type": "base64", "data": "A" * (6 << 20), "media_type": "a/b"}
        file.write(json.dumps({"role": "user", "content": [{"type": "data", "source": source}]}) + "\n")
    error = await refused(messages(offload, answer.offload.path, skip=1))
    assert (error.code(), reason(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OFFLOAD_MESSAGE_TOO_LARGE")
    assert error_info(error).metadata["line"] == "2"
    with (guest.workdir / "sessions/s/context.jsonl").open("a") as file:
        file.write("x" * (20 << 20))
    error = await refused(messages(offload, answer.offload.path, skip=2))
    assert reason(error) == "OFFLOAD_MESSAGE_TOO_LARGE"
    assert (await offload.OffloadContext(context(text("behind")))).start_offset > 20 << 20
    assert len(await messages(offload, answer.offload.path, skip=3)) == 1
    error = await refused(offload.OffloadContext(context(text("\1" * (3 << 20)))))
    assert violations(error) == {"message"}


async def test_listing(offload: Stub) -> None:
    for session in ("default", "b", "a%", "%" * 200):
        await offload.OffloadContext(context(text("x"), session_id=session))
    sent = text("x")
    sent.content.append(data(b"1"))
    await offload.OffloadContext(context(sent, session_id="b"))
    found = (await offload.ListOffloads(offload_pb2.ListOffloadsRequest(workspace_id="w"))).offloads
    assert sorted(each.session_id for each in found) == sorted(["", "default", "b", "a%", "%" * 200])
    assert found[0].sha256 == hashlib.sha256(b"1").hexdigest()
    assert (found[0].media_type, found[1].media_type) == ("image/png", "application/jsonl")
    for each in found:
        assert (await read(offload, each.url))[0].header == each
        assert (await read(offload, each.path))[0].header == each
    one = offload_pb2.ListOffloadsRequest(workspace_id="w", session_id="default")
    assert [each.session_id for each in (await offload.ListOffloads(one)).offloads] == ["default"]
    paged: list[offload_pb2.Offload] = []
    token = ""
    while True:
        request = offload_pb2.ListOffloadsRequest(workspace_id="w", page_size=2, page_token=token)
        page = await offload.ListOffloads(request)
        paged += page.offloads
        token = page.next_page_token
        if not token:
            break
    assert paged == list(found)


async def test_purging_a_session(
    offload: Stub, management: management_pb2_grpc.ManagementServiceAsyncStub, guest: RealGuest
) -> None:
    for session in ("s", "t"):
        sent = text("x")
        sent.content.append(data(b"1"))
        await offload.OffloadContext(context(sent, session_id=session, request_id="r"))
    request = management_pb2.PurgeSessionRequest(workspace_id="w", session_id="s", agent_id="a")
    assert (await management.PurgeSession(request)).files_removed == 1
    assert (await management.PurgeSession(request)).files_removed == 0
    left = sorted(str(path.relative_to(guest.workdir)) for path in guest.workdir.rglob("*") if path.is_file())
    name = hashlib.sha256(b"1").hexdigest()
    assert left == [f"data/{name}.png", "sessions/t/.requests", "sessions/t/context.jsonl"]
    for hostile in ("", "..", "../t", "a/b"):
        bad = management_pb2.PurgeSessionRequest(workspace_id="w", session_id=hostile)
        assert violations(await refused(management.PurgeSession(bad))) == {"session_id"}
    await management.PurgeAgent(management_pb2.PurgeAgentRequest(workspace_id="w", agent_id="a"))
    assert left == sorted(str(path.relative_to(guest.workdir)) for path in guest.workdir.rglob("*") if path.is_file())


async def test_calls_of_a_session_that_is_purged(
    offload: Stub, management: management_pb2_grpc.ManagementServiceAsyncStub, guest: RealGuest
) -> None:
    arrived = asyncio.Event()
    never = asyncio.Event()

    async def endless(session: str) -> AsyncIterator[offload_pb2.OffloadContextRequest]:
        yield start(session)
        yield offload_pb2.OffloadContextRequest(message=text("x" * 1_000_000))
        arrived.set()
        await never.wait()

    purged, kept = offload.OffloadContext(endless("s")), offload.OffloadContext(endless("t"))
    await arrived.wait()
    request = management_pb2.PurgeSessionRequest(workspace_id="w", session_id="s")
    while not purged.done():
        await management.PurgeSession(request)
    error = await refused(purged)
    assert (error.code(), reason(error)) == (grpc.StatusCode.ABORTED, "SESSION_PURGED")
    assert not kept.done()
    never.set()
    await kept
    assert [path.name for path in (guest.workdir / "sessions").iterdir()] == ["t"]


async def test_many_at_once_keep_their_entries_together(offload: Stub) -> None:
    async def one(number: int) -> None:
        await offload.OffloadContext(context(*(text(f"{number} {each}") for each in range(number % 7 + 1))))

    await asyncio.gather(*map(one, range(300)))
    found = [message.content[0].text.text.split() for message in await messages(offload, "sessions/s/context.jsonl")]
    assert len(found) == sum(number % 7 + 1 for number in range(300))
    position = 0
    while position < len(found):
        number = int(found[position][0])
        count = number % 7 + 1
        assert found[position : position + count] == [[str(number), str(each)] for each in range(count)]
        position += count


def test_chunks_are_encoded_as_the_library_does() -> None:
    for offset in (0, 1, 300, 1 << 40):
        for content in (b"", b"x", b"y" * 300):
            chunk = offload_pb2.OffloadChunk(offset=offset, data=content)
            whole = offload_pb2.ReadOffloadResponse(chunk=chunk)
            assert offload_pb2.ReadOffloadResponse.FromString(offload_chunk(offset, content)) == whole


async def test_a_purge_ends_calls_of_the_agent_and_of_nobody() -> None:
    from workspaced_server.errors import WorkspacedError
    from workspaced_server.session_calls import SessionCalls

    calls = SessionCalls()
    running = asyncio.Event()

    async def call(agent: str | None, session: str) -> str:
        try:
            with calls.running_for("k", Pair(agent, session)):
                running.set()
                await asyncio.Event().wait()
        except WorkspacedError as error:
            return error.reason
        return ""

    tasks = [asyncio.create_task(call(*pair)) for pair in (("a", "s"), ("b", "s"), (None, "s"), ("a", "t"))]
    await running.wait()
    await asyncio.sleep(0)
    assert calls.end("k", Pair("a", "s")) == 1
    assert await tasks[0] == "SESSION_PURGED"
    assert calls.end("other", Pair("b", "s")) == 0
    for task in tasks[1:]:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert calls.end("k", Pair("b", "s")) == 0


async def test_lines_are_agentscope_s(offload: Stub, guest: RealGuest) -> None:
    await offload.OffloadContext(context(text("x", id="m")))
    line = json.loads((guest.workdir / "sessions/s/context.jsonl").read_bytes())
    assert {"name", "content", "role", "id", "metadata", "created_at", "usage", "finished_at"} <= set(line)
    assert (line["role"], line["id"], line["content"][0]["type"]) == ("user", "m", "text")


async def test_the_files_are_not_outside(offload: Stub, guest: RealGuest, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (guest.workdir / "sessions").symlink_to(outside)
    (guest.workdir / "data").symlink_to(outside)
    head = offload_pb2.OffloadDataStart(workspace_id="w")
    tool = offload_pb2.OffloadToolResultRequest(workspace_id="w", session_id="s", result=result())
    for call in (
        offload.OffloadContext(context(text("x"))),
        offload.OffloadToolResult(tool),
        offload.OffloadData(iter([offload_pb2.OffloadDataRequest(start=head)])),
        offload.ListOffloads(offload_pb2.ListOffloadsRequest(workspace_id="w")),
        read(offload, "sessions/s/context.jsonl"),
    ):
        error = await refused(call)
        assert (error.code(), reason(error)) == (grpc.StatusCode.PERMISSION_DENIED, "PATH_ESCAPES")
    assert list(outside.iterdir()) == []
