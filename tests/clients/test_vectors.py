"""Every case of clients/conformance in every language, against the real server, through the fault proxy.

The languages play at the same time, each its cases one after the other: much of a case is waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clients.conftest import CHOSEN, Drivers
from tests.clients.languages import LANGUAGES, Language
from tests.clients.play import Play
from tests.clients.stage import Stage
from tests.clients.vectors import Case, load

CASES = {case.title: case for case in load()}
Performances = dict[tuple[str, str], "Future[None]"]


def play(case: Case, language: Language, stage: Stage, drivers: Drivers, directory: Path) -> None:
    """One case in one language. Raises what went wrong."""
    server = stage.server(case.server)
    with stage.proxy(server, case.relay) as proxy:
        played = Play(case, drivers.shared(language), server, proxy, directory)
        try:
            played.run()
            played.clean()
        except BaseException:
            drivers.drop(language)
            raise


@pytest.fixture(scope="module")
def performances(
    request: pytest.FixtureRequest,
    drivers: Drivers,
    stages: dict[str, Stage],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Performances]:
    """What the chosen cases come to, by language and title."""
    chosen = [
        item.callspec.params
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == "test_case"
    ]
    with ExitStack() as stack:
        threads = {name: stack.enter_context(ThreadPoolExecutor(1, f"play-{name}")) for name in CHOSEN}
        made: Performances = {}
        for params in chosen:
            name, title = str(params["name"]), str(params["title"])
            work = (CASES[title], LANGUAGES[name], stages[name], drivers, tmp_path_factory.mktemp(name))
            made[name, title] = threads[name].submit(play, *work)
        yield made
        for thread in threads.values():
            thread.shutdown(cancel_futures=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.parametrize("title", CASES)
def test_case(name: str, title: str, performances: Performances, table: dict[str, dict[str, str]]) -> None:
    outcomes = table.setdefault(title, {})
    outcomes[name] = "FAILED"
    performances[name, title].result()
    outcomes[name] = "ok"


def test_the_table_has_no_holes(performances: Performances, table: dict[str, dict[str, str]]) -> None:
    """Whoever ran all of this file has every case in every language."""
    if set(performances) < {(name, title) for name in LANGUAGES for title in CASES}:
        pytest.skip("a selection of the cases was run")
    assert {title: sorted(outcomes) for title, outcomes in table.items()} == {
        title: sorted(LANGUAGES) for title in CASES
    }
