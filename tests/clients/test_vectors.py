"""Every case of clients/conformance in every language, against the real server, through the fault proxy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.conftest import CHOSEN, Drivers
from tests.clients.languages import LANGUAGES
from tests.clients.play import Play
from tests.clients.stage import Stage
from tests.clients.vectors import Case, load

CASES = load()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
@pytest.mark.parametrize("name", CHOSEN)
def test_case(
    name: str, case: Case, drivers: Drivers, stage: Stage, table: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    language = LANGUAGES[name]
    outcomes = table.setdefault(case.title, {})
    outcomes[name] = "FAILED"
    server = stage.server(case.server)
    driver = drivers.shared(language)
    with stage.proxy(server, case.relay) as proxy:
        play = Play(case, driver, server, proxy, tmp_path)
        try:
            play.run()
            play.clean()
        except BaseException:
            drivers.drop(language)
            raise
    outcomes[name] = "ok"


def test_the_table_has_no_holes(request: pytest.FixtureRequest, table: dict[str, dict[str, str]]) -> None:
    """Whoever ran all of this file has every case in every language."""
    played = {f"{name}-{case.title}" for case in CASES for name in LANGUAGES}
    chosen = {item.callspec.id for item in request.session.items if hasattr(item, "callspec")}
    if not played <= {identity.replace("[", "") for identity in chosen}:
        pytest.skip("a selection of the cases was run")
    assert set(table) == {case.title for case in CASES}
    assert {title: sorted(outcomes) for title, outcomes in table.items() if set(outcomes) != set(LANGUAGES)} == {}
