"""Reading the parameters of an operation: each function returns a checked value or raises ARGUMENT_INVALID."""

from __future__ import annotations

from .fault import Fault, invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Params = dict[str, Any]


def _wrong(name: str, wanted: str) -> Fault:
    return invalid(f"{name} must be {wanted}", field=name)


def text(params: Params, name: str, default: str | None = None, limit: int = 65536) -> str:
    """A string without NUL of at most `limit` characters; required when `default` is None."""
    value = params.get(name, default)
    if not isinstance(value, str):
        raise _wrong(name, "a string")
    if "\0" in value or len(value) > limit:
        raise _wrong(name, f"at most {limit} characters without NUL")
    return value


def optional_text(params: Params, name: str, limit: int = 65536) -> str | None:
    """Like `text`, None when absent or null."""
    return None if params.get(name) is None else text(params, name, limit=limit)


def integer(params: Params, name: str, default: int | None = None, low: int = 0, high: int = (1 << 63) - 1) -> int:
    """An integer between `low` and `high`, both included; required when `default` is None."""
    value = params.get(name)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, "an integer")
    if not low <= value <= high:
        raise _wrong(name, f"between {low} and {high}")
    return value


def optional_integer(params: Params, name: str, low: int = 0, high: int = (1 << 63) - 1) -> int | None:
    """Like `integer`, None when absent or null."""
    return None if params.get(name) is None else integer(params, name, low=low, high=high)


def number(params: Params, name: str, default: float | None = None, low: float = 0.0, high: float = 1e9) -> float:
    """A finite number between `low` and `high`, both included; required when `default` is None."""
    value = params.get(name)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(name, "a number")
    if not low <= value <= high:
        raise _wrong(name, f"between {low:g} and {high:g}")
    return float(value)


def boolean(params: Params, name: str, default: bool = False) -> bool:
    """A boolean, `default` when absent or null."""
    value = params.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _wrong(name, "a boolean")
    return value


def mapping(params: Params, name: str) -> Params:
    """A JSON object, empty when absent or null."""
    value = params.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _wrong(name, "an object")
    return value
