"""The quick start's three programs do the same: what they print is compared byte by byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import workspaced
from tests.support import example_programs
from tests.support.server import ServerProcess

PROGRAMS = {
    "go": "go run ./quickstart {}",
    "typescript": "node dist/quickstart/quickstart.js {}",
    "python": "python3 quickstart/quickstart.py {}",
}
PRINTED = b"1\n2\n3\nexit code 0\nBash\nRead\nWrite\nEdit\nGlob\nGrep\nSkill\n1 count.sh\n[exit code 0]\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("quickstart") / "state")
    server.start()
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = example_programs.copy(tmp_path_factory.mktemp("programs"))
    example_programs.run("npm --prefix ../clients/typescript run build", copy)
    example_programs.run("npm install --no-package-lock && npm run build", copy)
    return copy


@pytest.mark.timeout(300)
@pytest.mark.parametrize("language", PROGRAMS)
def test_every_language_prints_the_same(language: str, server: ServerProcess, examples: Path) -> None:
    assert example_programs.run(PROGRAMS[language].format(server.address), examples) == PRINTED
    with workspaced.sync.connect(server.address) as client:
        assert client.list() == []
