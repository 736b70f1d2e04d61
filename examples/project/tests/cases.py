"""One test method for each row of a table, so that each is run, named and counted on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T", bound=type)


def each(rows: Iterable[tuple[Any, ...]]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Marks a method to be run for every row."""

    def mark(method: Callable[..., None]) -> Callable[..., None]:
        method.rows = list(rows)  # type: ignore[attr-defined]
        return method

    return mark


def expand(cls: T) -> T:
    """Replaces each marked method of a test case by one for each of its rows."""
    for name, method in list(vars(cls).items()):
        rows = getattr(method, "rows", None)
        if rows is None:
            continue
        delattr(cls, name)
        for number, row in enumerate(rows):

            def test(self: Any, method: Callable[..., None] = method, row: tuple[Any, ...] = row) -> None:
                method(self, *row)

            test.__name__ = f"{name}_{number:03}"
            test.__qualname__ = f"{cls.__qualname__}.{test.__name__}"
            setattr(cls, test.__name__, test)
    return cls
