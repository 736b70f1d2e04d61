"""Structs and timestamps of protobuf as plain JSON values, and back."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from google.protobuf.struct_pb2 import ListValue, Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

# A protobuf message has at most 100 levels, and an object in an object takes three of them.
_MAX_DEPTH: Final = 24
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:?\d\d)?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def compact(value: object) -> str:
    """JSON without spaces, characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def text_of(value: object) -> str:
    """A string as protobuf takes it: lone surrogates come out as question marks. Empty for what is no string."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")


def object_of(struct: Struct) -> dict[str, Any]:
    """A Struct as a JSON object; numbers that JSON lacks come out as null."""
    return {name: _plain(value) for name, value in sorted(struct.fields.items())}


def fill_struct(struct: Struct, value: dict[str, Any]) -> None:
    """Make a Struct of a JSON object. What is too deep or too large for one becomes its text."""
    struct.Clear()
    _fill_struct(struct, value, 0)


def time_text(time: Timestamp) -> str:
    """RFC 3339 in UTC, with as many digits as it takes. Raises ValueError, OverflowError for a time that is none."""
    moment = _EPOCH + timedelta(seconds=time.seconds)
    fraction = f".{time.nanos:09d}".rstrip("0") if time.nanos else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + fraction + "Z"


def time_of(text: object) -> Timestamp | None:
    """The time that a text in ISO 8601 tells, UTC where it names no zone; None for anything else."""
    found = _TIME.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    day, clock, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=_zone(zone))
        seconds = (moment - _EPOCH) // timedelta(seconds=1)
    except (ValueError, OverflowError):
        return None
    return Timestamp(seconds=seconds, nanos=int((fraction or "").ljust(9, "0")))


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    offset = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    return timezone(-offset if text[0] == "-" else offset)


def _plain(value: Value) -> Any:
    match value.WhichOneof("kind"):
        case "struct_value":
            return object_of(value.struct_value)
        case "list_value":
            return [_plain(item) for item in value.list_value.values]
        case "number_value":
            return _number(value.number_value)
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
    return None


def _number(number: float) -> float | int | None:
    if not math.isfinite(number):
        return None
    if number.is_integer() and abs(number) < 1 << 53 and (number or math.copysign(1, number) > 0):
        return int(number)
    return number


def _fill_struct(struct: Struct, value: dict[str, Any], depth: int) -> None:
    for name, item in value.items():
        _fill(struct.fields[text_of(name)], item, depth + 1)


def _fill_list(found: ListValue, values: list[Any], depth: int) -> None:
    for item in values:
        _fill(found.values.add(), item, depth + 1)


def _fill(target: Value, value: Any, depth: int) -> None:
    if value is None:
        target.null_value = 0  # type: ignore[assignment]  # NULL_VALUE
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, str):
        target.string_value = text_of(value)
    elif isinstance(value, (int, float)):
        try:
            target.number_value = value
        except (OverflowError, ValueError):
            target.string_value = str(value)
    elif depth >= _MAX_DEPTH:
        target.string_value = text_of(json.dumps(value))
    elif isinstance(value, dict):
        target.struct_value.SetInParent()
        _fill_struct(target.struct_value, value, depth)
    else:
        target.list_value.SetInParent()
        _fill_list(target.list_value, value, depth)
