"""Input of a tool against its JSON Schema, in words that a model can act on.

Schemas of MCP servers come from strangers: nothing is fetched for them, their regular expressions are not run here, and
one that would keep the server busy is left to the MCP server, which checks its input itself.
"""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

_MAX_PROBLEMS: Final = 20
# Of the processor, for one check of an input, and once for that of a schema: nobody else is served meanwhile.
_MAX_SECONDS: Final = 0.1
_MAX_SCHEMA_SECONDS: Final = 0.25
_MAX_SCHEMA_CHARACTERS: Final = 65_536
# Of arrays: longer ones are not looked into, and each item is compared with each other one for `uniqueItems`.
_MAX_ITEMS: Final = 5_000
_MAX_UNIQUE_ITEMS: Final = 100
_SHOWN_CHARACTERS: Final = 120
_MAX_SHOWN: Final = 50


class _TooMuch(Exception):
    pass


def problems(schema: Mapping[str, Any], value: dict[str, Any]) -> list[str]:
    """What is wrong with `value`: path, rule, way out; the first 20, by path. Empty when it fits.

    A schema that is none, or one that takes too much to check, objects to nothing; it takes 0.1 s or a little more.
    """
    # Loaded when a tool is first called: an idle server does not need it.
    from referencing.exceptions import Unresolvable

    odd = [f"{path}: must be a finite number" for path in _not_finite(value, "")]
    if odd:
        # JSON has none, and comparing them tells nothing.
        return odd[:_MAX_PROBLEMS]
    try:
        text = json.dumps(schema)
        validator = _validator(text) if len(text) <= _MAX_SCHEMA_CHARACTERS else None
        if validator is None:
            return []
        _ends[0] = time.thread_time() + _MAX_SECONDS
        found = sorted(validator.iter_errors(value), key=lambda error: [str(step) for step in error.absolute_path])
    except (Unresolvable, RecursionError, ArithmeticError, _TooMuch):
        return []
    lines = list(dict.fromkeys(line for error in found for line in _explain(error)))
    return [*lines[:_MAX_PROBLEMS], "…"] if len(lines) > _MAX_PROBLEMS else lines


# When the present check has taken too much of the thread's time; checks do not overlap.
_ends = [0.0]


@functools.lru_cache(maxsize=128)
def _validator(text: str) -> Any:
    from jsonschema.validators import validator_for
    from referencing import Registry

    schema = json.loads(text)
    kind = validator_for(schema)
    rules = _bounded(validator_for(kind.META_SCHEMA, default=kind))(kind.META_SCHEMA)
    _ends[0] = time.thread_time() + _MAX_SCHEMA_SECONDS
    try:
        if next(rules.iter_errors(schema), None) is not None:
            return None
    except (RecursionError, _TooMuch):
        return None
    return _bounded(kind)(schema, registry=Registry())


@functools.cache
def _bounded(kind: Any) -> Any:
    from jsonschema.validators import extend

    def skip(*_: object) -> Iterator[Any]:
        return iter(())

    def bounded(check: Any, most: int) -> Any:
        def run(validator: Any, rule: Any, instance: Any, schema: Any) -> Any:
            if time.thread_time() > _ends[0]:
                raise _TooMuch
            if isinstance(instance, list) and len(instance) > most:
                return iter(())
            return check(validator, rule, instance, schema)

        return run

    def additional(validator: Any, allowed: Any, instance: Any, schema: Any) -> Any:
        # Which names are additional is for the patterns to say.
        if "patternProperties" in schema:
            return iter(())
        return kind.VALIDATORS["additionalProperties"](validator, allowed, instance, schema)

    lengths = {"maxItems", "minItems", "type"}
    rules: dict[str, Any] = {
        name: bounded(check, 1 << 62 if name in lengths else _MAX_ITEMS) for name, check in kind.VALIDATORS.items()
    }
    rules |= {"pattern": skip, "patternProperties": skip, "unevaluatedProperties": skip}
    rules["additionalProperties"] = bounded(additional, _MAX_ITEMS)
    if "uniqueItems" in kind.VALIDATORS:
        rules["uniqueItems"] = bounded(kind.VALIDATORS["uniqueItems"], _MAX_UNIQUE_ITEMS)
    return extend(kind, rules)  # type: ignore[no-untyped-call]


def _not_finite(value: object, path: str) -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield path
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _not_finite(item, _join(path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _not_finite(item, _join(path, index))


def _explain(error: Any) -> Iterator[str]:
    path = ".".join(str(step) for step in error.absolute_path)
    limit, schema, instance = error.validator_value, error.schema, error.instance
    match error.validator:
        case "required":
            for name in limit:
                if isinstance(instance, dict) and name not in instance:
                    yield f"{_join(path, name)}: is required"
            return
        case "additionalProperties":
            known = schema.get("properties", {})
            for name in instance:
                if name not in known:
                    names = ", ".join(list(known)[:_MAX_SHOWN]) + (", …" if len(known) > _MAX_SHOWN else "")
                    yield f"{_join(path, name)}: is not known; known are {names or 'none'}"
            return
        case "type":
            wanted = limit if isinstance(limit, str) else " or ".join(limit)
            text = f"must be of type {wanted}, not {_show(instance)}"
        case "enum":
            known = ", ".join(map(_show, limit[:_MAX_SHOWN])) + (", …" if len(limit) > _MAX_SHOWN else "")
            text = f"must be one of {known}, not {_show(instance)}"
        case "minimum":
            text = f"must be at least {limit}, not {_show(instance)}"
        case "maximum":
            text = f"must be at most {limit}, not {_show(instance)}"
        case "exclusiveMinimum":
            text = f"must be more than {limit}, not {_show(instance)}"
        case "minLength":
            text = "must not be empty" if limit == 1 else f"must have at least {limit} characters"
        case "maxLength":
            text = f"must have at most {limit} characters, not {len(instance)}"
        case _:
            text = f"breaks the rule {error.validator}: {_clip(error.message)}"
    yield f"{path or 'input'}: {text}"


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _show(value: object) -> str:
    return _clip(json.dumps(value, ensure_ascii=False, default=str))


def _clip(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
