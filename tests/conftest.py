"""What every test shares: the event loop, and one seed from which all of a run's randomness comes."""

from __future__ import annotations

import os
import random
import signal
import sys
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support import left_behind

SEED_VARIABLE = "WORKSPACED_TEST_SEED"

# How fast a busy machine makes up an example says nothing about the code.
settings.register_profile("workspaced", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("workspaced")


def pytest_configure() -> None:
    """Programs that tests start on a terminal hear Ctrl-C, also when a shell started the tests in the background."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed",
        type=int,
        default=int(os.environ.get(SEED_VARIABLE, random.SystemRandom().getrandbits(32))),
        help=f"seed of the run's random choices (default: {SEED_VARIABLE}, else a new one, which is printed)",
    )


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.getoption('--seed')} (replay with --seed={config.getoption('--seed')})"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> object:
    """Shows with each failure of a test that drew random numbers how to draw the same again."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        report.sections.append(("seed", f"pytest --seed={item.config.getoption('--seed')} '{item.nodeid}'"))


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ends what failed tests left running, and says so."""
    yield
    found = left_behind.remove(tmp_path_factory.getbasetemp())
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    if found and reporter is not None:
        reporter.section("left behind, and ended", sep="-")
        for line in found:
            reporter.line(line)


@pytest.fixture(autouse=True)
def one_event_loop() -> Iterator[None]:
    """Ends the thread of the synchronous client: grpc.aio wants one running event loop in a process, and the next test
    brings its own.
    """
    yield
    portal = sys.modules.get("workspaced.sync.portal")
    if portal is not None:
        portal.stop()


@pytest.fixture
def anyio_backend() -> str:
    """The server and the client are asyncio programs: grpc.aio runs on no other loop."""
    return "asyncio"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of this test's own, the same for the same ``--seed`` whichever other tests run."""
    run_seed: int = request.config.getoption("--seed")
    return zlib.crc32(request.node.nodeid.encode(), run_seed & 0xFFFFFFFF)


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Random numbers that a failure prints the seed of."""
    return random.Random(seed)
