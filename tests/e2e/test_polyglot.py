"""One workspace in three languages: the commands of the example's page, with the server killed between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import workspaced
from tests.support import example_programs
from tests.support.doc_commands import extract
from tests.support.server import ServerProcess, free_port

IMAGES = {"local": "", "docker": "workspaced-test:bookworm"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "state")
    server.start()
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = example_programs.copy(tmp_path_factory.mktemp("programs"))
    client, build, *_ = commands(copy)
    example_programs.run(client.replace("npm --prefix ../clients/typescript ci && ", ""), copy)
    example_programs.run(build, copy)
    return copy


def commands(examples: Path) -> tuple[str, ...]:
    """What the page says: build the client, build the example, and run the three programs."""
    [block] = extract(examples / "polyglot" / "README.md")
    return block.commands


@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", IMAGES)
def test_three_programs_in_one_workspace(server: ServerProcess, backend: str, examples: Path) -> None:
    port = free_port()
    environment = {"WORKSPACED_SERVER": server.address, "BACKEND": backend, "IMAGE": IMAGES[backend], "PORT": str(port)}
    outputs = []
    for program in commands(examples)[2:]:
        outputs.append(example_programs.run(program, examples, **environment).decode())
        server.restart()

    started, edited, finished = outputs
    serving = f"Serving HTTP on 127.0.0.1 port {port} (http://127.0.0.1:{port}/) ...\n"
    assert started == f"dev-server: {serving}"
    assert (
        edited == "before: Hello from Go\nEdited index.html: 1 replacement, in line 1.\nafter: Hello from TypeScript\n"
    )
    first, *requests, last = finished.splitlines(keepends=True)
    assert first == serving
    assert [line.partition("] ")[2] for line in requests] == ['"GET / HTTP/1.1" 200 -\n'] * 2
    assert last == "ended: signal TERM\n"
    with workspaced.sync.connect(server.address) as client:
        assert client.list() == []
