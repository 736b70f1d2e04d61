"""FileService over a real guest."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TypeAlias

import grpc
import pytest

from tests.support.real_guest import WORKSPACE, RealGuest, RunningServer, error_info, reason, violations
from workspaced.v1 import file_pb2 as file_pb
from workspaced.v1 import file_pb2_grpc

pytestmark = pytest.mark.anyio

Stub: TypeAlias = "file_pb2_grpc.FileServiceAsyncStub"


def header(path: str, **fields: object) -> file_pb.WriteFileRequest:
    return file_pb.WriteFileRequest(header=file_pb.WriteFileHeader(workspace_id=WORKSPACE, path=path, **fields))  # type: ignore[arg-type]


def upload(path: str, *data: bytes, **fields: object) -> Iterator[file_pb.WriteFileRequest]:
    yield header(path, **fields)
    for chunk in data:
        yield file_pb.WriteFileRequest(data=chunk)


async def read(files: Stub, path: str, **fields: object) -> tuple[bytes, file_pb.ReadFileEnd]:
    data, end = bytearray(), file_pb.ReadFileEnd()
    request = file_pb.ReadFileRequest(workspace_id=WORKSPACE, path=path, **fields)  # type: ignore[arg-type]
    async for response in files.ReadFile(request):
        data += response.data
        if response.WhichOneof("part") == "end":
            end = response.end
    return bytes(data), end


async def failure(call: object) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call  # type: ignore[misc]
    return caught.value


def parts(guest: RealGuest) -> list[Path]:
    return [path for path in guest.workdir.rglob("*") if path.name.endswith(".part")]


async def test_what_is_written_is_read(files: Stub, guest: RealGuest) -> None:
    data = random.Random(3).randbytes(3_000_001)
    response = await files.WriteFile(
        upload(
            "a/b/c.bin", data[:1_000_000], b"", data[1_000_000:2_000_000], data[2_000_000:], parents=True, mode=0o640
        )
    )
    digest = hashlib.sha256(data).hexdigest()
    assert (response.info.path, response.info.sha256, response.info.mode) == ("a/b/c.bin", digest, 0o640)
    assert response.next_offset == len(data)
    assert (guest.workdir / "a/b/c.bin").read_bytes() == data
    assert await read(files, "a/b/c.bin", hash=True) == (
        data,
        file_pb.ReadFileEnd(bytes=len(data), sha256=digest, eof=True),
    )
    assert await read(files, "a/b/c.bin", offset=10, limit=5) == (data[10:15], file_pb.ReadFileEnd(bytes=5))
    assert (await read(files, "a/b/c.bin", offset=1 << 40))[0] == b""


async def test_preconditions_and_hashes(files: Stub, guest: RealGuest) -> None:
    await files.WriteFile(upload("f", b"old"))
    error = await failure(files.WriteFile(upload("f", b"new", create_only=True)))
    assert (error.code(), reason(error)) == (grpc.StatusCode.ALREADY_EXISTS, "FILE_EXISTS")
    error = await failure(files.WriteFile(upload("f", b"new", if_match="0" * 64)))
    assert (error.code(), reason(error)) == (grpc.StatusCode.ABORTED, "CONTENT_CHANGED")
    error = await failure(files.WriteFile(upload("f", b"new", sha256="0" * 64)))
    assert (error.code(), reason(error)) == (grpc.StatusCode.DATA_LOSS, "HASH_MISMATCH")
    assert (guest.workdir / "f").read_bytes() == b"old"
    await files.WriteFile(
        upload(
            "f",
            b"new",
            if_match=hashlib.sha256(b"old").hexdigest().upper(),
            sha256=hashlib.sha256(b"new").hexdigest(),
        )
    )
    assert (guest.workdir / "f").read_bytes() == b"new"
    assert not parts(guest)


async def test_a_broken_off_upload_replaces_nothing(files: Stub, guest: RealGuest, server: RunningServer) -> None:
    """Cancelled at many points, also right after the last byte: without the half-close the file is not whole."""
    await files.WriteFile(upload("f", b"old"))
    generator = random.Random(4)
    for _ in range(60):
        call = files.WriteFile()
        await call.write(header("f", no_sync=True))
        for _ in range(generator.randrange(3)):
            await call.write(file_pb.WriteFileRequest(data=bytes(generator.randrange(1, 100_000))))
        await asyncio.sleep(generator.random() * 0.003)
        call.cancel()
    await _idle(server)
    assert (await read(files, "f"))[0] == b"old"
    assert not parts(guest)


async def test_an_upload_resumes_at_its_offset(files: Stub, guest: RealGuest, server: RunningServer) -> None:
    data = random.Random(5).randbytes(900_000)
    call = files.WriteFile()
    await call.write(header("f", upload_id="u"))
    await call.write(file_pb.WriteFileRequest(data=data[:500_000]))
    async with asyncio.timeout(5):
        while (await _offset(files)) < 500_000:
            pass
    call.cancel()
    await _idle(server)
    offset = await _offset(files)
    assert offset == 500_000
    assert not (guest.workdir / "f").exists()
    error = await failure(files.WriteFile(upload("f", b"x", upload_id="u", offset=offset + 1)))
    assert (error.code(), reason(error)) == (grpc.StatusCode.OUT_OF_RANGE, "UPLOAD_OFFSET_INVALID")
    assert error_info(error).metadata["expected_offset"] == str(offset)
    digest = hashlib.sha256(data).hexdigest()
    response = await files.WriteFile(upload("f", data[offset:], upload_id="u", offset=offset, sha256=digest))
    assert response.info.sha256 == digest
    assert (guest.workdir / "f").read_bytes() == data
    assert await _offset(files) == 0


async def _offset(files: Stub) -> int:
    response = await files.WriteFile(upload("f", upload_id="u", query_offset=True))
    return response.next_offset


async def _idle(server: RunningServer) -> None:
    """Wait until no call uses the workspace, and the guest has dealt with what was sent before."""
    async with asyncio.timeout(5):
        await server.workspaces.idle.wait()
    await server.workspaces.channel.call("file.stat", {"path": "."})


async def test_uploads_that_make_no_sense(files: Stub, guest: RealGuest) -> None:
    async def messages(*requests: file_pb.WriteFileRequest) -> AsyncIterator[file_pb.WriteFileRequest]:
        for request in requests:
            yield request

    data = file_pb.WriteFileRequest(data=b"x")
    cases = [
        ((), "header"),
        ((data,), "header"),
        ((header("f"), header("f")), "header"),
        ((header("f"), file_pb.WriteFileRequest(data=bytes((1 << 20) + 1))), "data"),
        ((header(""), data), "path"),
        ((header("f" * 4097), data), "path"),
        ((header("f\0g"), data), "path"),
        ((header("f", mode=0o10000), data), "mode"),
        ((header("f", sha256="abc"), data), "sha256"),
        ((header("f", offset=1), data), "offset"),
    ]
    for requests, field in cases:
        error = await failure(files.WriteFile(messages(*requests)))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert field in violations(error)
    assert not list(guest.workdir.iterdir())


async def test_directories(files: Stub, guest: RealGuest) -> None:
    make = file_pb.MakeDirectoryRequest(workspace_id=WORKSPACE, path="d/e", parents=True)
    assert (await files.MakeDirectory(make)).created
    error = await failure(files.MakeDirectory(make))
    assert reason(error) == "FILE_EXISTS"
    make.exist_ok = True
    assert not (await files.MakeDirectory(make)).created
    for name in ("a", "b", "c"):
        await files.WriteFile(upload(f"d/{name}", name.encode()))
    found, token = [], ""
    while True:
        request = file_pb.ListFilesRequest(workspace_id=WORKSPACE, recursive=True, page_size=2, page_token=token)
        page = await files.ListFiles(request)
        found += [info.path for info in page.files]
        token = page.next_page_token
        if not token:
            break
    assert found == ["d", "d/a", "d/b", "d/c", "d/e"]
    only = file_pb.ListFilesRequest(workspace_id=WORKSPACE, path="d", glob="[ab]")
    assert [info.path for info in (await files.ListFiles(only)).files] == ["d/a", "d/b"]
    remove = file_pb.RemoveFileRequest(workspace_id=WORKSPACE, path="d")
    error = await failure(files.RemoveFile(remove))
    assert reason(error) in ("DIRECTORY_NOT_EMPTY", "IS_A_DIRECTORY")
    remove.recursive = True
    assert (await files.RemoveFile(remove)).removed == 5
    error = await failure(files.RemoveFile(remove))
    assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "FILE_NOT_FOUND")
    remove.allow_missing = True
    assert (await files.RemoveFile(remove)).removed == 0


async def test_move_copy_and_stat(files: Stub, guest: RealGuest) -> None:
    await files.WriteFile(upload("a", b"content"))
    copy = file_pb.CopyFileRequest(workspace_id=WORKSPACE, source="a", destination="b")
    assert (await files.CopyFile(copy)).info.path == "b"
    move = file_pb.MoveFileRequest(workspace_id=WORKSPACE, source="a", destination="b")
    assert reason(await failure(files.MoveFile(move))) == "FILE_EXISTS"
    move.overwrite = True
    assert (await files.MoveFile(move)).info.size == 7
    (guest.workdir / "link").symlink_to("b")
    stat = file_pb.StatFileRequest(workspace_id=WORKSPACE, path="link", hash=True)
    info = (await files.StatFile(stat)).info
    assert (info.type, info.sha256) == (file_pb.FILE_TYPE_FILE, hashlib.sha256(b"content").hexdigest())
    link = file_pb.StatFileRequest(workspace_id=WORKSPACE, path="link", no_follow=True)
    info = (await files.StatFile(link)).info
    assert (info.type, info.link_target) == (file_pb.FILE_TYPE_SYMLINK, "b")


async def test_names_that_are_not_utf8_are_told_as_bytes(files: Stub, guest: RealGuest) -> None:
    guest.workdir.joinpath(os.fsdecode(b"na\xefve")).write_bytes(b"x")
    page = await files.ListFiles(file_pb.ListFilesRequest(workspace_id=WORKSPACE))
    assert [(info.path, info.raw_path) for info in page.files] == [("na\ufffdve", b"na\xefve")]


async def test_what_is_no_file(files: Stub, guest: RealGuest) -> None:
    (guest.workdir / "d").mkdir()
    os.mkfifo(guest.workdir / "fifo")
    for path, expected in (("d", "IS_A_DIRECTORY"), ("fifo", "NOT_A_FILE"), ("d/x/y", "FILE_NOT_FOUND")):
        request = file_pb.ReadFileRequest(workspace_id=WORKSPACE, path=path)
        error = await failure(anext(aiter(files.ReadFile(request))))
        assert reason(error) == expected


async def test_a_watch_tells_ready_then_changes(files: Stub, guest: RealGuest) -> None:
    call = files.WatchFiles(file_pb.WatchFilesRequest(workspace_id=WORKSPACE, path=".", recursive=True))
    events = aiter(call)
    assert (await anext(events)).WhichOneof("event") == "ready"
    (guest.workdir / "new").write_bytes(b"x")
    change = (await anext(events)).change
    assert (change.kind, change.path) == (file_pb.FileChange.KIND_CREATED, "new")
    call.cancel()


async def test_a_dead_guest_is_never_a_missing_file(files: Stub, guest: RealGuest) -> None:
    guest.process.kill()
    error = await failure(files.StatFile(file_pb.StatFileRequest(workspace_id=WORKSPACE, path="f")))
    assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "WORKSPACE_UNREACHABLE")
