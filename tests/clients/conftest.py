"""Drivers and servers for a session, and the table of what was played in which language."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.clients.driver import Driver
from tests.clients.languages import LANGUAGES, Language, environment
from tests.clients.stage import Stage

_CHOSEN = os.environ.get("WORKSPACED_TEST_LANGUAGES")
CHOSEN = sorted(LANGUAGES) if _CHOSEN is None else _CHOSEN.split(",")
_table: dict[str, dict[str, str]] = {}


class Drivers:
    """Builds the driver of each language once, and keeps one of each running."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._commands: dict[str, list[str]] = {}
        self._running: dict[str, Driver] = {}
        self._building = threading.Lock()

    def new(self, language: Language) -> Driver:
        """A driver of one's own."""
        with self._building:
            if language.name not in self._commands:
                self._commands[language.name] = language.command(self._directory)
        return Driver(self._commands[language.name], self._directory / f"{language.name}.log", environment())

    def shared(self, language: Language) -> Driver:
        """The one that cases share, as long as it is in order."""
        if language.name in self._running and not self._running[language.name].alive:
            self.drop(language)
        if language.name not in self._running:
            self._running[language.name] = self.new(language)
        return self._running[language.name]

    def drop(self, language: Language) -> None:
        """After a failure: the next case begins with a new one."""
        driver = self._running.pop(language.name, None)
        if driver is not None:
            driver.kill()

    def close(self) -> None:
        """End those that run; each has to end by itself."""
        for name, driver in self._running.items():
            assert driver.close() == 0, f"the {name} driver did not end well"


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    made = Drivers(tmp_path_factory.mktemp("drivers"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def portal() -> Iterator[BlockingPortal]:
    """An event loop in a thread, for the proxies."""
    with start_blocking_portal() as opened:
        yield opened


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory, portal: BlockingPortal) -> Iterator[dict[str, Stage]]:
    """One for each language: they play at the same time, and one may kill its servers."""
    made = {name: Stage(tmp_path_factory.mktemp(f"stage-{name}"), portal) for name in CHOSEN}
    yield made
    for stage in made.values():
        stage.close()


@pytest.fixture(params=CHOSEN)
def language(request: pytest.FixtureRequest) -> Language:
    return LANGUAGES[request.param]


@pytest.fixture
def stage(language: Language, stages: dict[str, Stage]) -> Stage:
    return stages[language.name]


@pytest.fixture
def driver(language: Language, drivers: Drivers) -> Iterator[Driver]:
    """A driver of the test's own, which has to end well."""
    made = drivers.new(language)
    yield made
    assert not made.alive or made.close() == 0


@pytest.fixture
def new_driver(language: Language, drivers: Drivers) -> Iterator[Callable[[], Driver]]:
    """The same, for a test that needs several."""
    made: list[Driver] = []

    def new() -> Driver:
        made.append(drivers.new(language))
        return made[-1]

    yield new
    for one in made:
        assert not one.alive or one.close() == 0


@pytest.fixture(scope="session")
def table() -> dict[str, dict[str, str]]:
    """What was played: case, language, outcome."""
    return _table


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the table: a row a case, a column a language."""
    if not _table:
        return
    terminalreporter.section("conformance: cases and languages", sep="-")
    width = max(map(len, _table))
    terminalreporter.line(f"{'':{width}}  " + "  ".join(f"{name:10}" for name in CHOSEN))
    for title, outcomes in _table.items():
        row = "  ".join(f"{outcomes.get(name, 'NOT RUN'):10}" for name in CHOSEN)
        terminalreporter.line(f"{title:{width}}  {row}".rstrip())
