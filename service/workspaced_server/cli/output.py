"""What is printed: tables and notes for people, JSON for programs."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


class Printer:
    """Answers go to standard output, notes to standard error."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    @cached_property
    def console(self) -> Console:
        """Standard output; colours on a terminal only, none with NO_COLOR."""
        from rich.console import Console

        return Console(highlight=False, soft_wrap=True)

    @cached_property
    def notes(self) -> Console:
        """Standard error."""
        from rich.console import Console

        return Console(stderr=True, highlight=False, soft_wrap=True)

    def document(self, value: object) -> None:
        """One JSON document; a line of its own, readable on a terminal."""
        indent = 2 if sys.stdout.isatty() else None
        print(json.dumps(plain(value), ensure_ascii=False, indent=indent), flush=True)

    def line(self, value: object) -> None:
        """One JSON line of a stream."""
        print(json.dumps(plain(value), ensure_ascii=False), flush=True)

    def text(self, text: str) -> None:
        """A line as it is."""
        print(text, flush=True)

    def note(self, text: str) -> None:
        """Something beside the answer, for people; silent with ``--json``."""
        if not self.as_json:
            print(text, file=sys.stderr, flush=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Columns under capitals, without lines, so that other programs can cut it."""
        cells = [[visible(cell) for cell in row] for row in rows]
        if not sys.stdout.isatty():
            lengths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
            for row in (columns, *cells):
                print("  ".join(cell.ljust(length) for cell, length in zip(row, lengths, strict=True)).rstrip())
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for column in columns:
            table.add_column(column, no_wrap=True, overflow="ellipsis")
        for row in cells:
            table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
        self.console.print(table, soft_wrap=False)

    def fields(self, value: Mapping[str, object]) -> None:
        """A nested mapping, one indented ``name: value`` a line."""
        for line in _indented(value, 0):
            print(line)


STYLES = {
    "READY": "green",
    "RUNNING": "green",
    "ok": "green",
    "INITIALIZING": "cyan",
    "CLOSED": "dim",
    "DEGRADED": "yellow",
    "warning": "yellow",
    "FAILED": "red",
    "failed": "red",
}


def visible(text: str) -> str:
    """Text that a stranger chose, without what could move the cursor or start an escape sequence."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def plain(value: Any) -> Any:
    """A value as JSON has it. Messages keep the field names of the API, times are ISO 8601 in UTC."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
    if hasattr(value, "DESCRIPTOR"):
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(value, preserving_proto_field_name=True)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value


def data_fields(data: bytes) -> dict[str, str]:
    """Bytes in JSON: ``data`` when they are UTF-8, else ``data_base64``."""
    try:
        return {"data": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"data_base64": base64.b64encode(data).decode("ascii")}


def _indented(value: object, depth: int) -> list[str]:
    lines: list[str] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            if item in ("", None) or item == {} or item == []:
                continue
            if isinstance(item, (Mapping, list)):
                lines += [f"{'  ' * depth}{visible(str(key))}:", *_indented(item, depth + 1)]
            else:
                lines.append(f"{'  ' * depth}{visible(str(key))}: {visible(_word(item))}")
    elif isinstance(value, list):
        for item in value:
            nested = _indented(item, depth + 1) if isinstance(item, (Mapping, list)) else []
            if nested:
                nested[0] = f"{'  ' * depth}- {nested[0].lstrip()}"
            lines += nested or [f"{'  ' * depth}- {visible(_word(item))}"]
    return lines


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def age(since: datetime | None) -> str:
    """How long ago, in one unit: ``12s``, ``5m``, ``3h``, ``9d``."""
    if since is None:
        return "-"
    seconds = max(0, int((datetime.now(UTC) - since).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def size(count: float) -> str:
    """Bytes in the unit that fits: ``512 B``, ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("the last unit takes all")
