"""What a case expects, compared with what a driver answered. Names stand for values that were saved before."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.clients.data import sha256_of

_NAME = re.compile(r"\$\{([^}]+)\}")


def filled(value: Any, names: Mapping[str, Any]) -> Any:
    """`${name}` in strings replaced; a string that is nothing else becomes the value itself, whatever its type."""
    if isinstance(value, str):
        whole = _NAME.fullmatch(value)
        if whole:
            return names[whole[1]]
        return _NAME.sub(lambda found: str(names[found[1]]), value)
    if isinstance(value, list):
        return [filled(item, names) for item in value]
    if isinstance(value, dict):
        return {name: filled(item, names) for name, item in value.items()}
    return value


def at(value: Any, path: str) -> Any:
    """What is under a path such as `stdout.text` or `order.0`; DATA has `text`, `line` (stripped) and `number`."""
    for part in path.split("."):
        if part == "text" and isinstance(value, dict) and "base64" in value:
            value = base64.b64decode(value["base64"]).decode()
        elif part == "line" and isinstance(value, dict) and "base64" in value:
            value = base64.b64decode(value["base64"]).decode().strip()
        elif part == "number" and isinstance(value, dict) and "base64" in value:
            value = int(base64.b64decode(value["base64"]))
        elif isinstance(value, list):
            value = value[int(part)]
        else:
            value = value[part]
    return value


def mismatch(expected: Any, actual: Any, where: str = "") -> str | None:
    """How an answer differs from what was expected, or None.

    Objects match by the keys that are expected, lists and everything else as a whole. An object whose first key begins
    with `$` is a rule of its own; see `_RULES`.
    """
    if isinstance(expected, dict):
        rule = next(iter(expected), "")
        if rule.startswith("$"):
            if rule not in _RULES:
                raise ValueError(f"no rule {rule!r}")
            return None if _RULES[rule](expected[rule], actual) else f"{where}: {actual!r} is not {expected}"
        if not isinstance(actual, dict):
            return f"{where}: {actual!r} is no object"
        for name, item in expected.items():
            if name not in actual:
                return f"{where}.{name}: missing in {actual}"
            if found := mismatch(item, actual[name], f"{where}.{name}"):
                return found
        return None
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(expected) != len(actual):
            return f"{where}: {actual!r} is not {expected!r}"
        pairs = enumerate(zip(expected, actual, strict=True))
        return next((found for n, (e, a) in pairs if (found := mismatch(e, a, f"{where}[{n}]"))), None)
    if expected == actual and isinstance(expected, bool) == isinstance(actual, bool):
        return None
    return f"{where}: {actual!r} is not {expected!r}"


def _is_data(expected: Any, actual: Any) -> bool:
    """The bytes are just those of a DATA."""
    return isinstance(actual, dict) and actual.get("sha256") == sha256_of(expected)


def _has_text(expected: str, actual: Any) -> bool:
    """A string, or bytes that were shown, in which a pattern is found."""
    if isinstance(actual, dict):
        actual = base64.b64decode(actual["base64"]).decode("utf-8", "replace")
    return isinstance(actual, str) and re.search(expected, actual, re.DOTALL) is not None


_RULES: dict[str, Callable[[Any, Any], bool]] = {
    "$any": lambda _, actual: actual is not None,
    "$data": _is_data,
    "$sha256_of": lambda expected, actual: bool(actual == sha256_of(expected)),
    "$matches": _has_text,
    "$contains": lambda expected, actual: all(item in actual for item in expected),
    "$without": lambda expected, actual: not any(item in actual for item in expected),
    "$greater": lambda expected, actual: bool(actual > expected),
    "$less": lambda expected, actual: bool(actual < expected),
    "$not": lambda expected, actual: mismatch(expected, actual) is not None,
    "$one_of": lambda expected, actual: any(mismatch(item, actual) is None for item in expected),
    "$some": lambda expected, actual: any(mismatch(expected, item) is None for item in actual),
    "$none": lambda expected, actual: all(mismatch(expected, item) is not None for item in actual),
    "$length": lambda expected, actual: len(actual) == int(expected),
}
