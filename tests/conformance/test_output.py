"""Output is bytes: binary-safe, in order, as long as it likes, in bounded memory."""

from __future__ import annotations

import hashlib

import anyio
import pytest

import workspaced
from tests.support.server import ServerProcess

pytestmark = pytest.mark.anyio

GIB = 1 << 30
CHUNK = 1 << 20


async def test_every_byte_value(ws: workspaced.Workspace) -> None:
    every = bytes(range(256)) * 64
    await ws.files.write("every", every)
    assert (await ws.run("cat every")).stdout == every
    assert (await ws.run("cat every >&2")).stderr == every


async def test_a_line_of_a_hundred_megabytes(ws: workspaced.Workspace) -> None:
    size, digest = 0, hashlib.sha256()
    async with ws.exec("head -c 104857600 /dev/zero | tr '\\0' x") as process:
        async for event in process:
            size += len(event.data)
            digest.update(event.data)
    assert size == 104857600
    assert digest.hexdigest() == hashlib.sha256(b"x" * 104857600).hexdigest()


async def test_three_hundred_thousand_lines(ws: workspaced.Workspace) -> None:
    output = bytearray()
    async with ws.exec("seq 1 300000") as process:
        async for event in process:
            output += event.data
    assert bytes(output) == b"".join(b"%d\n" % n for n in range(1, 300001))


async def test_interleaved_streams_in_order(ws: workspaced.Workspace) -> None:
    script = "i=0; while [ $i -lt 200 ]; do echo out$i; read x < go1; echo err$i >&2; read x < go1; i=$((i+1)); done"
    # The program waits between its writes until a byte comes through a pipe: the order in which they happened is known.
    await ws.run("mkfifo go1")
    seen: list[tuple[str, bytes]] = []
    async with (
        ws.exec(script) as process,
        ws.exec("exec 3>go1; while read x; do echo x >&3; done", stdin=True) as pacer,
    ):
        async for event in process:
            for line in event.data.splitlines():
                seen.append((event.stream, line))
                await pacer.write(b"x\n")
        await pacer.close_stdin()
    expected = []
    for number in range(200):
        expected += [("stdout", b"out%d" % number), ("stderr", b"err%d" % number)]
    assert seen == expected


async def test_offsets_are_contiguous_over_both_streams(ws: workspaced.Workspace) -> None:
    offset = 0
    async with ws.exec("for i in $(seq 500); do echo $i; echo $i >&2; done") as process:
        async for event in process:
            assert event.offset == offset
            offset += len(event.data)
    whole = [(e.stream, e.offset, e.data) async for e in await ws.attach(process.process_id)]
    assert sum(len(data) for _, _, data in whole) == offset


@pytest.mark.slow
async def test_a_gibibyte_out_and_in_byte_exact_in_bounded_memory(
    ws: workspaced.Workspace, server: ServerProcess
) -> None:
    peak = server.rss_bytes()
    digest, size = hashlib.sha256(), 0
    async with ws.exec(["bash", "-c", "head -c 1073741824 /dev/urandom | tee >(sha256sum > sum)"]) as process:
        async for event in process:
            digest.update(event.data)
            size += len(event.data)
            if size % (64 << 20) < len(event.data):
                peak = max(peak, server.rss_bytes())
    assert size == GIB
    await ws.run("while [ ! -s sum ]; do sleep 0.05; done")
    assert (await ws.files.read("sum")).split()[0].decode() == digest.hexdigest()

    block = bytes(range(256)) * (CHUNK // 256)
    expected = hashlib.sha256()
    async with ws.exec("sha256sum", stdin=True) as process:

        async def feed() -> None:
            nonlocal peak
            for number in range(GIB // CHUNK):
                piece = number.to_bytes(8, "big") + block[8:]
                expected.update(piece)
                await process.write(piece)
                if number % 64 == 0:
                    peak = max(peak, server.rss_bytes())
            await process.close_stdin()

        async with anyio.create_task_group() as group:
            group.start_soon(feed)
            answer = b"".join([event.data async for event in process])
    assert answer.split()[0].decode() == expected.hexdigest()
    assert peak < 300 << 20, f"the server grew to {peak >> 20} MiB"
    guest = int((await ws.run("cat /proc/$PPID/status | sed -n 's/VmHWM: *\\t* *\\([0-9]*\\) kB/\\1/p'")).stdout)
    assert guest < 200 << 10, f"the guest grew to {guest >> 10} MiB"


async def test_a_reader_that_never_reads_slows_nobody(ws: workspaced.Workspace, server: ServerProcess) -> None:
    before = server.rss_bytes()
    async with ws.exec("yes", process_id="flood") as stalled:
        first = await anext(aiter(stalled))
        assert first.data
        for number in range(200):
            with anyio.fail_after(60):
                assert (await ws.run(["echo", str(number)])).stdout == b"%d\n" % number
        assert server.rss_bytes() - before < 100 << 20
    await ws.process("flood").signal("KILL")
