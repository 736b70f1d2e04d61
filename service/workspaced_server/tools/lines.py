"""Numbered lines, as Read shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

LINE_BYTES: Final = 2000
_CUT: Final = " … [the rest of this line is left out]"


def numbered(lines: Iterable[bytes], first: int) -> str:
    """Each line with its number, from `first` on, without line ends; what is no UTF-8 as U+FFFD."""
    return "\n".join(f"{first + index:>6}\t{_text(line, first + index)}" for index, line in enumerate(lines))


def _text(line: bytes, number: int) -> str:
    cut = len(line) > LINE_BYTES
    if cut:
        end = LINE_BYTES
        while end > LINE_BYTES - 4 and line[end] & 0xC0 == 0x80:
            end -= 1
        line = line[:end]
    text = line.removesuffix(b"\r").decode("utf-8", "replace").replace("\0", "\u2400")
    if number == 1:
        text = text.removeprefix("\ufeff")
    return text + _CUT if cut else text
