"""What people write."""

from __future__ import annotations

import unittest

from intervals import IntervalSet, parse, render

from tests.cases import each, expand


@expand
class Text(unittest.TestCase):
    @each(
        [
            ("", []),
            ("  ", []),
            ("5", [(5, 6)]),
            ("0-2", [(0, 3)]),
            ("-3--1", [(-3, 0)]),
            ("7-9, 0 - 2,5", [(0, 3), (5, 6), (7, 10)]),
            ("1,2,3", [(1, 4)]),
        ]
    )
    def test_parse(self, text: str, expected: list[tuple[int, int]]) -> None:
        self.assertEqual(list(parse(text)), expected)

    @each([("a",), ("1-",), ("1,,2",), ("--1",), ("1 2",), ("1-2-3",)])
    def test_what_is_no_set_is_quoted(self, text: str) -> None:
        with self.assertRaisesRegex(ValueError, "neither a number nor"):
            parse(text)

    def test_backwards(self) -> None:
        with self.assertRaisesRegex(ValueError, "'9-3' runs backwards"):
            parse("1, 9-3")

    @each([(start, width) for start in (-12, -1, 0, 3, 40) for width in range(1, 7)])
    def test_rendered_text_reads_back(self, start: int, width: int) -> None:
        numbers = IntervalSet([(start, start + width), (start + width + 2, start + width + 3)])
        self.assertEqual(parse(render(numbers)), numbers)
