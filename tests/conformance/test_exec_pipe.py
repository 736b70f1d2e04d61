"""What is tested over the shared socket elsewhere, where the channel is carried by the exec's standard streams: as with
an engine on another machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

import workspaced
from tests.conformance import test_files as files
from tests.conformance import test_output as output
from tests.conformance.backends import BACKENDS, BackendUnderTest
from tests.support.server import ServerProcess

pytestmark = pytest.mark.anyio
SIZE = 128 << 20

test_a_long_line = output.test_a_line_of_a_hundred_megabytes
test_a_deaf_reader = output.test_a_reader_that_never_reads_slows_nobody
test_every_byte = output.test_every_byte_value
test_in_order = output.test_interleaved_streams_in_order
test_many_lines = output.test_three_hundred_thousand_lines
test_files = files.test_write_and_read
test_listing = files.test_listing_pages_globs_and_odd_names


@pytest.fixture(scope="module")
def backend() -> BackendUnderTest:
    """Docker only."""
    return BACKENDS["docker"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that is told not to look for a shared socket."""
    running = ServerProcess(tmp_path_factory.mktemp("server") / "state", config='[docker]\nsocket_channel = "never"\n')
    running.start()
    yield running
    assert running.stop() == 0


async def test_bytes_are_exact_both_ways(ws: workspaced.Workspace) -> None:
    made = "sys.stdout.buffer.write(r.randbytes(1 << 20))"
    source = f"import random, sys; r = random.Random(7)\nfor _ in range({SIZE >> 20}): {made}"
    digest, size = hashlib.sha256(), 0
    async with ws.exec(["python3", "-c", source]) as process:
        async for event in process:
            digest.update(event.data)
            size += len(event.data)
    assert size == SIZE
    check = "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    again = await ws.run(["sh", "-c", f"python3 -c '{source}' | python3 -c '{check}'"])
    assert again.stdout.decode().strip() == digest.hexdigest()


async def test_the_guest_is_found_again_over_the_pipe(ws: workspaced.Workspace, server: ServerProcess) -> None:
    process = await ws.start("for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.2; done")
    server.kill()
    server.start()
    seen = b""
    async for event in process:
        seen += event.data
    assert seen == b"1\n2\n3\n4\n5\n6\n7\n8\n9\n"
    assert (await process.wait()).exit_code == 0
