"""The server with faults between it and its guests: ``python -m tests.support.faulty_server serve …``.

WORKSPACED_TEST_FAULTS holds the seed and the rates as JSON. Everything else is the real server.
"""

from __future__ import annotations

import json
import os
from typing import Any

from tests.support.faults import FaultPlan, FaultRates, FaultyDriver
from workspaced_server.cli import main
from workspaced_server.drivers import registry

settings: dict[str, Any] = json.loads(os.environ.pop("WORKSPACED_TEST_FAULTS"))
plan = FaultPlan(settings.pop("seed"), FaultRates(**settings))
load = registry.load


def load_with_faults(*arguments: Any, **options: Any) -> dict[str, Any]:
    """The real drivers, wrapped."""
    return {name: FaultyDriver(driver, plan) for name, driver in load(*arguments, **options).items()}


registry.load = load_with_faults

if __name__ == "__main__":
    main()
