"""JSON values between protobuf and Python."""

from __future__ import annotations

import math
from typing import Any

from google.protobuf.struct_pb2 import ListValue, Struct, Value

# Of a number that no double holds, which becomes its text.
_MAX_DIGITS = 400


def object_of(struct: Struct) -> dict[str, Any]:
    """The Python value of a Struct; numbers without a fraction become integers, as they were before the transport."""
    return {name: value_of(value) for name, value in struct.fields.items()}


def value_of(value: Value) -> Any:
    """The Python value of a Value."""
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return int(number) if math.isfinite(number) and number.is_integer() else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return object_of(value.struct_value)
        case "list_value":
            return [value_of(item) for item in value.list_value.values]
        case _:
            return None


def struct_of(value: dict[str, Any]) -> Struct:
    """The Struct of a JSON object. Numbers beyond 2^53 lose precision; what is no JSON becomes its text."""
    return Struct(fields={valid_text(str(name)): protobuf_value(item) for name, item in value.items()})


def protobuf_value(value: Any) -> Value:
    """The Value of a JSON value."""
    match value:
        case None:
            return Value(null_value=0)  # type: ignore[arg-type]  # the enum's only value
        case bool():
            return Value(bool_value=value)
        case int() | float():
            try:
                return Value(number_value=float(value))
            except OverflowError:
                return Value(string_value=str(value)[:_MAX_DIGITS])
        case dict():
            return Value(struct_value=struct_of(value))
        case list() | tuple():
            return Value(list_value=ListValue(values=[protobuf_value(item) for item in value]))
        case _:
            return Value(string_value=valid_text(str(value)))


def valid_text(text: str) -> str:
    """Text that can be sent: JSON may hold halves of characters, UTF-8 may not."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
