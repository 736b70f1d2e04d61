"""Sets of numbers as disjoint half-open intervals."""

from .intervalset import IntervalSet
from .text import parse, render

__all__ = ["IntervalSet", "parse", "render"]
