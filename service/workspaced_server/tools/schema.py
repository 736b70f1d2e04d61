"""Input of a tool against its JSON Schema, in words that a model can act on.

Schemas of MCP servers come from strangers: nothing is fetched for them, their regular expressions are not run here, and
one that would keep the server busy is left to the MCP server, which checks its input itself.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

_MAX_PROBLEMS: Final = 20
_MAX_REFERENCES: Final = 10_000
_KEPT_CHARACTERS: Final = 65_536
_SHOWN_CHARACTERS: Final = 120


class _TooMuch(Exception):
    pass


def problems(schema: Mapping[str, Any], value: dict[str, Any]) -> list[str]:
    """What is wrong with `value`: path, rule, way out; the first 20, by path. Empty when it fits.

    A schema that is none, or one that takes too much to check, objects to nothing.
    """
    # Loaded when a tool is first called: an idle server does not need it.
    from referencing.exceptions import Unresolvable

    text = json.dumps(schema)
    validator = _validator(text) if len(text) <= _KEPT_CHARACTERS else _validator.__wrapped__(text)
    if validator is None:
        return []
    _left[0] = _MAX_REFERENCES
    try:
        found = sorted(validator.iter_errors(value), key=lambda error: [str(step) for step in error.absolute_path])
    except (Unresolvable, RecursionError, _TooMuch):
        return []
    lines = list(dict.fromkeys(line for error in found for line in _explain(error)))
    return [*lines[:_MAX_PROBLEMS], "…"] if len(lines) > _MAX_PROBLEMS else lines


# References that the present check may still follow; checks do not overlap.
_left = [0]


@functools.lru_cache(maxsize=512)
def _validator(text: str) -> Any:
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry

    schema = json.loads(text)
    kind = validator_for(schema)
    try:
        kind.check_schema(schema)
    except (SchemaError, RecursionError):
        return None
    return _bounded(kind)(schema, registry=Registry())


@functools.cache
def _bounded(kind: Any) -> Any:
    from jsonschema.validators import extend

    def skip(*_: object) -> Iterator[Any]:
        return iter(())

    def counted(check: Any) -> Any:
        def run(validator: Any, reference: Any, instance: Any, schema: Any) -> Any:
            _left[0] -= 1
            if _left[0] < 0:
                raise _TooMuch
            return check(validator, reference, instance, schema)

        return run

    def additional(validator: Any, allowed: Any, instance: Any, schema: Any) -> Any:
        # Which names are additional is for the patterns to say.
        if "patternProperties" in schema:
            return iter(())
        return kind.VALIDATORS["additionalProperties"](validator, allowed, instance, schema)

    rules: dict[str, Any] = {"pattern": skip, "patternProperties": skip, "unevaluatedProperties": skip}
    rules["additionalProperties"] = additional
    for name in ("$ref", "$dynamicRef", "$recursiveRef"):
        if name in kind.VALIDATORS:
            rules[name] = counted(kind.VALIDATORS[name])
    return extend(kind, rules)  # type: ignore[no-untyped-call]


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
                    yield f"{_join(path, name)}: is not known; known are {', '.join(known) or 'none'}"
            return
        case "type":
            wanted = limit if isinstance(limit, str) else " or ".join(limit)
            text = f"must be of type {wanted}, not {_show(instance)}"
        case "enum":
            text = f"must be one of {', '.join(_show(value) for value in limit)}, not {_show(instance)}"
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
