"""Files: atomic, byte-exact, resumable, and clear about what is wrong."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import anyio
import pytest

import workspaced
from tests.conformance.conftest import Make
from tests.support.server import ServerProcess

pytestmark = pytest.mark.anyio


async def test_write_and_read(ws: workspaced.Workspace) -> None:
    info = await ws.files.write("a/b.bin", b"\0\xff\n" * 1000, parents=True)
    assert info.size == 3000
    assert info.sha256 == hashlib.sha256(b"\0\xff\n" * 1000).hexdigest()
    assert await ws.files.read("a/b.bin") == b"\0\xff\n" * 1000
    assert await ws.files.read("a/b.bin", offset=1, limit=3) == b"\xff\n\0"
    assert await ws.files.read("a/b.bin", offset=5000) == b""
    await ws.files.write("empty", b"")
    assert await ws.files.read("empty") == b""


async def test_a_gibibyte_both_ways(ws: workspaced.Workspace, server: ServerProcess) -> None:
    block = hashlib.sha256(b"seed").digest() * 8192
    digest = hashlib.sha256()

    async def blocks() -> AsyncIterator[bytes]:
        for number in range((1 << 30) // len(block)):
            piece = number.to_bytes(8, "big") + block[8:]
            digest.update(piece)
            yield piece

    before = server.rss_bytes()
    info = await ws.files.write("big", blocks())
    assert info.sha256 == digest.hexdigest()
    back = hashlib.sha256()
    async for piece in ws.files.read_stream("big"):
        back.update(piece)
    assert back.hexdigest() == digest.hexdigest()
    assert server.rss_bytes() - before < 150 << 20


async def test_replace_is_atomic_and_keeps_mode(ws: workspaced.Workspace) -> None:
    await ws.files.write("script", b"#!/bin/sh\necho one\n", mode=0o750)

    async def breaks() -> AsyncIterator[bytes]:
        yield b"half"
        raise RuntimeError("the source failed")

    with pytest.raises(RuntimeError):
        await ws.files.write("script", breaks())
    assert await ws.files.read("script") == b"#!/bin/sh\necho one\n"
    await ws.files.write("script", b"#!/bin/sh\necho two\n")
    assert (await ws.files.stat("script")).mode & 0o777 == 0o750
    assert (await ws.run(["./script"])).stdout == b"two\n"
    assert (await ws.run("ls -A")).stdout == b"script\n", "a temporary file was left"


async def test_conditions(ws: workspaced.Workspace) -> None:
    first = await ws.files.write("file", b"1", create_only=True)
    with pytest.raises(workspaced.AlreadyExists) as exists:
        await ws.files.write("file", b"2", create_only=True)
    assert exists.value.reason == "FILE_EXISTS"
    second = await ws.files.write("file", b"2", if_match=first.sha256)
    with pytest.raises(workspaced.WorkspacedError) as changed:
        await ws.files.write("file", b"3", if_match=first.sha256)
    assert changed.value.reason == "CONTENT_CHANGED"
    assert second.sha256 == hashlib.sha256(b"2").hexdigest()
    with pytest.raises(workspaced.WorkspacedError) as damaged:
        await ws.files.write("file", b"4", sha256=first.sha256)
    assert damaged.value.reason == "HASH_MISMATCH"
    assert await ws.files.read("file") == b"2"


async def test_disk_full_keeps_the_old_file(ws: workspaced.Workspace) -> None:
    mounted = await ws.run("mount -t tmpfs -o size=1m none /mnt 2>/dev/null; df --output=size /dev/shm | tail -1")
    if mounted.exit_code != 0:
        raise AssertionError("no small file system to fill")
    target = "/mnt" if (await ws.run("mountpoint -q /mnt")).exit_code == 0 else "/dev/shm"
    try:
        await ws.files.write(f"{target}/file", b"old")
        size = int((await ws.run(f"df --output=avail -B1 {target} | tail -1")).stdout)
        assert size < 256 << 20, f"{target} is too large to fill: run as root, who can mount a small file system"

        async def more_than_fits() -> AsyncIterator[bytes]:
            for _ in range(size // 262144 + 2):
                yield bytes(262144)

        with pytest.raises(workspaced.ResourceExhausted) as full:
            await ws.files.write(f"{target}/file", more_than_fits())
        assert full.value.reason == "DISK_FULL"
        assert await ws.files.read(f"{target}/file") == b"old"
        assert (await ws.run(f"ls -A {target}")).stdout == b"file\n"
    finally:
        await ws.run(f"rm -f {target}/file; umount /mnt 2>/dev/null || true")


async def test_wrong_kinds(ws: workspaced.Workspace) -> None:
    await ws.run("mkdir -p dir/sub; mkfifo fifo; ln -s nowhere dangling; ln -s loop loop; touch file")
    for path, reason in {
        "dir": "IS_A_DIRECTORY",
        "fifo": "NOT_A_FILE",
        "dangling": "FILE_NOT_FOUND",
        "missing": "FILE_NOT_FOUND",
        "file/below": "NOT_A_DIRECTORY",
    }.items():
        with pytest.raises(workspaced.WorkspacedError) as caught:
            await ws.files.read(path)
        assert caught.value.reason == reason, path
        assert path.split("/")[0] in str(caught.value)
    with pytest.raises(workspaced.WorkspacedError) as directory:
        await ws.files.write("dir", b"")
    assert directory.value.reason == "IS_A_DIRECTORY"
    with pytest.raises(workspaced.WorkspacedError) as loop:
        await ws.files.read("loop")
    assert "loop" in str(loop.value)
    with pytest.raises(workspaced.WorkspacedError) as full:
        await ws.files.remove("dir")
    assert full.value.reason == "DIRECTORY_NOT_EMPTY"
    await ws.files.remove("dir", recursive=True)
    with pytest.raises(workspaced.FileNotFound):
        await ws.files.remove("dir")
    await ws.files.remove("dir", allow_missing=True)
    for path in ["", "a\0b", "x" * 5000]:
        with pytest.raises(workspaced.InvalidArgument) as invalid:
            await ws.files.read(path)
        assert invalid.value.violations[0].field == "path"


async def test_a_link_is_removed_never_its_target(ws: workspaced.Workspace) -> None:
    await ws.run("mkdir target; touch target/file; ln -s target link")
    await ws.files.remove("link", recursive=True)
    assert (await ws.files.stat("target/file")).type == "FILE"


async def test_a_file_that_grows_is_read_to_some_end(ws: workspaced.Workspace) -> None:
    async with ws.exec("while :; do echo line; done > grows", disconnect_policy="kill"):
        await ws.run("while [ ! -s grows ]; do sleep 0.02; done")
        with anyio.fail_after(60):
            data = await ws.files.read("grows", limit=50 << 20)
    assert set(data.split(b"\n")[:-1]) <= {b"line"}


async def test_listing_pages_globs_and_odd_names(ws: workspaced.Workspace) -> None:
    await ws.run("mkdir -p src/a src/b; touch src/x.py src/a/y.py src/b/z.txt src/b/.hidden")
    await ws.run("touch \"$(printf 'new\\nline')\"")
    names = [f.path for f in await ws.files.list("src", recursive=True)]
    assert names == ["src/a", "src/a/y.py", "src/b", "src/b/.hidden", "src/b/z.txt", "src/x.py"]
    assert [f.path for f in await ws.files.list("src", recursive=True, glob="**/*.py")] == ["src/a/y.py", "src/x.py"]
    assert "new\nline" in [f.path for f in await ws.files.list()]


async def test_move_copy_mkdir(ws: workspaced.Workspace) -> None:
    await ws.files.write("one", b"1", mode=0o600)
    await ws.files.copy("one", "two")
    assert (await ws.files.stat("two")).mode & 0o777 == 0o600
    with pytest.raises(workspaced.AlreadyExists):
        await ws.files.move("one", "two")
    await ws.files.move("one", "two", overwrite=True)
    await ws.files.mkdir("d/e", parents=True)
    await ws.files.mkdir("d/e", exist_ok=True)
    with pytest.raises(workspaced.AlreadyExists):
        await ws.files.mkdir("d/e")
    await ws.files.copy("d", "f", recursive=True)
    assert (await ws.files.stat("f/e")).type == "DIRECTORY"


async def test_watch_reports_what_happens(ws: workspaced.Workspace) -> None:
    async with ws.files.watch(".", recursive=True) as changes:

        async def until(kind: str, path: str) -> None:
            with anyio.fail_after(60):
                async for change in changes:
                    if isinstance(change, workspaced.FileChange) and (change.kind, change.path) == (kind, path):
                        return

        assert isinstance(await anext(aiter(changes)), workspaced.WatchReady)
        await ws.run("mkdir d")
        await until("CREATED", "d")
        await ws.run("echo 1 > d/f")
        await until("CREATED", "d/f")
        await ws.run("echo 2 >> d/f")
        await until("MODIFIED", "d/f")
        await ws.run("mv d/f d/g")
        await until("MOVED", "d/f")
        await ws.run("rm d/g")
        await until("DELETED", "d/g")


async def test_files_of_another_user_are_a_clear_error(make: Make) -> None:
    ws = await make()
    await ws.run("mkdir locked; touch locked/f; chmod 0 locked/f locked")
    if (await ws.run("id -u")).stdout != b"0\n" or (await ws.run("cat locked/f")).exit_code != 0:
        with pytest.raises(workspaced.PermissionDenied):
            await ws.files.read("locked/f")
    await ws.run("chmod 700 locked")
