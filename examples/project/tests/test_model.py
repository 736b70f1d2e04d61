"""Random operations on the set and on its model, a plain set of integers. These take their time."""

from __future__ import annotations

import random
import time
import unittest

from intervals import IntervalSet

from tests.cases import each, expand

UNIVERSE = range(-60, 60)
STEPS = 60
PAUSE_SECONDS = 0.05  # as if something slower were asked too


def random_intervals(rng: random.Random) -> list[tuple[int, int]]:
    starts = [rng.randrange(-60, 60) for _ in range(rng.randrange(6))]
    return [(start, min(60, start + rng.randrange(12))) for start in starts]


def numbers_of(intervals: list[tuple[int, int]]) -> set[int]:
    return {number for start, end in intervals for number in range(start, end)}


@expand
class Model(unittest.TestCase):
    @each([(seed,) for seed in range(200)])
    def test_agrees_with_a_plain_set(self, seed: int) -> None:
        rng = random.Random(seed)
        actual, model = IntervalSet(), set()
        for _ in range(STEPS):
            given = random_intervals(rng)
            other, other_model = IntervalSet(given), numbers_of(given)
            operation = rng.choice(["or", "and", "sub", "xor", "or", "xor"])
            if operation == "or":
                actual, model = actual | other, model | other_model
            elif operation == "and":
                actual, model = actual & other, model & other_model
            elif operation == "sub":
                actual, model = actual - other, model - other_model
            else:
                actual, model = actual ^ other, model ^ other_model
            self.assertEqual({number for number in UNIVERSE if number in actual}, model)
            self.assertEqual(len(actual), len(model))
        time.sleep(PAUSE_SECONDS)
