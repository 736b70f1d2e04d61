"""Rules of the set, one table a rule."""

from __future__ import annotations

import itertools
import unittest

from intervals import IntervalSet

from tests.cases import each, expand

SETS = [
    [],
    [(0, 1)],
    [(0, 10)],
    [(-5, -2), (3, 4)],
    [(0, 2), (4, 6), (8, 10)],
    [(1, 3), (5, 9)],
    [(-100, 100)],
    [(7, 8), (9, 10)],
]
PAIRS = list(itertools.product(SETS, SETS))


@expand
class Construction(unittest.TestCase):
    @each(
        [
            ([(0, 2), (2, 5)], [(0, 5)]),
            ([(0, 3), (1, 2)], [(0, 3)]),
            ([(4, 6), (0, 1)], [(0, 1), (4, 6)]),
            ([(3, 3)], []),
            ([(0, 1), (0, 1)], [(0, 1)]),
            ([(0, 4), (2, 8), (8, 9), (20, 21)], [(0, 9), (20, 21)]),
        ]
    )
    def test_normal_form(self, given: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
        self.assertEqual(list(IntervalSet(given)), expected)

    @each([((1, 0),), ((0, -1),), ((10, -10),)])
    def test_backwards_is_refused(self, interval: tuple[int, int]) -> None:
        with self.assertRaisesRegex(ValueError, "ends before it starts"):
            IntervalSet([interval])


@expand
class Laws(unittest.TestCase):
    @each(PAIRS)
    def test_union_and_intersection_commute(self, a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
        left, right = IntervalSet(a), IntervalSet(b)
        self.assertEqual(left | right, right | left)
        self.assertEqual(left & right, right & left)

    @each(PAIRS)
    def test_parts_add_up(self, a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
        left, right = IntervalSet(a), IntervalSet(b)
        self.assertEqual((left - right) | (left & right), left)
        self.assertEqual(len(left | right), len(left) + len(right) - len(left & right))
        self.assertEqual(left ^ right, (left - right) | (right - left))

    @each([(a,) for a in SETS])
    def test_complement_twice_is_the_set(self, a: list[tuple[int, int]]) -> None:
        numbers = IntervalSet(a)
        self.assertEqual(numbers.complement(-200, 200).complement(-200, 200), numbers)

    @each([(a, distance) for a in SETS for distance in (-7, 0, 1000)])
    def test_shift_and_back(self, a: list[tuple[int, int]], distance: int) -> None:
        numbers = IntervalSet(a)
        self.assertEqual(numbers.shifted(distance).shifted(-distance), numbers)
        self.assertEqual(len(numbers.shifted(distance)), len(numbers))
