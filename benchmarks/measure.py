"""How a figure is taken: interleaved rounds, medians, a target and a verdict."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Sample = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Row:
    """One line of the table. Figures are in ``unit``; ``reached`` is the figure that the target speaks of."""

    measure: str
    unit: str
    ours: float
    peers: Mapping[str, float]
    target: str
    reached: str
    ok: bool
    notes: str = ""
    samples: int = 1
    spread: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


async def interleaved(
    samples: Mapping[str, Sample], rounds: int, warmup: int = 2, pause: float = 0.0, block: int = 1
) -> dict[str, list[float]]:
    """Seconds of each sample, taken in turns, so that whatever else the machine does falls on all of them.

    A turn takes ``block`` samples in a row. ``pause`` seconds before it let what the one before left to be done, such
    as an engine's cleaning up, end. A sample that returns a float has taken its seconds itself.
    """
    for name in samples:
        for _ in range(warmup):
            await samples[name]()
    taken: dict[str, list[float]] = {name: [] for name in samples}
    for _ in range(rounds):
        for name, sample in samples.items():
            if pause:
                await asyncio.sleep(pause)
            for _ in range(block):
                began = time.perf_counter()
                own = await sample()
                taken[name].append(own if isinstance(own, float) else time.perf_counter() - began)
    return taken


def medians(taken: Mapping[str, list[float]], scale: float = 1.0) -> dict[str, float]:
    """Median of each, times ``scale``."""
    return {name: statistics.median(values) * scale for name, values in taken.items()}


def quartiles(taken: Mapping[str, list[float]], scale: float = 1.0) -> dict[str, tuple[float, float]]:
    """First and third quartile of each, times ``scale``."""
    spread = {}
    for name, values in taken.items():
        if len(values) > 1:
            low, _, high = statistics.quantiles(values, n=4)
            spread[name] = (low * scale, high * scale)
    return spread
