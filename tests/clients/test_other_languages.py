"""The examples of Java and Rust: stubs by buf, compiled, and used with a real server."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.clients.other_languages import JAVA, RUST, Language, program
from tests.support.server import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path_factory.mktemp("languages") / "state")
    running.start()
    yield running
    assert running.stop() == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("language", [JAVA, RUST], ids=lambda language: language.name)
def test_example_builds_and_runs_a_command(server: ServerProcess, language: Language) -> None:
    command = [*program(language), server.address, "echo first; sleep 0.1; echo second; exit 3"]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout.splitlines()
    assert said[0].startswith("server ")
    assert ", API revision " in said[0]
    assert said[1:] == ["first", "second", "exit code 3"]
