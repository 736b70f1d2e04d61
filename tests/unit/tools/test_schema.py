"""Checking input by JSON Schemas, also those of strangers."""

from __future__ import annotations

import time
from typing import Any

import pytest
from jsonschema.validators import Draft202012Validator

from workspaced_server.tools.catalogue import BUILTINS
from workspaced_server.tools.schema import problems

EVERYTHING = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1, "maxLength": 5},
        "number": {"type": "integer", "minimum": 1, "maximum": 9},
        "positive": {"type": "number", "exclusiveMinimum": 0},
        "choice": {"enum": ["a", "b"]},
        "list": {"type": "array", "items": {"type": ["string", "null"]}, "maxItems": 2},
    },
    "required": ["text", "number"],
    "additionalProperties": False,
}


def test_every_problem_is_told_with_its_path_and_rule() -> None:
    assert problems(EVERYTHING, {"text": "ok", "number": 5}) == []
    assert problems(EVERYTHING, {"text": "", "number": 0, "positive": 0, "choice": "c", "list": [1], "extra": 1}) == [
        "extra: is not known; known are text, number, positive, choice, list",
        'choice: must be one of "a", "b", not "c"',
        "list.0: must be of type string or null, not 1",
        "number: must be at least 1, not 0",
        "positive: must be more than 0, not 0",
        "text: must not be empty",
    ]
    assert problems(EVERYTHING, {"text": "toolong", "list": ["a", "b", "c"], "number": 10}) == [
        "list: breaks the rule maxItems: ['a', 'b', 'c'] is too long",
        "number: must be at most 9, not 10",
        "text: must have at most 5 characters, not 7",
    ]
    assert problems(EVERYTHING, {}) == ["text: is required", "number: is required"]


def test_what_is_shown_is_bounded() -> None:
    [line] = problems(EVERYTHING, {"text": "ok", "number": "x" * 100_000})
    assert len(line) < 300
    assert len(problems(EVERYTHING, {f"extra{number}": 1 for number in range(1000)})) == 21


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"$ref": "#/$defs/none"},
        {"$defs": {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(60)}, "$ref": "#/$defs/0"},
        {"properties": {"a": {"pattern": "^(a+)+$"}}},
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
        {"type": 5},
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {}}, "$ref": "#/definitions/a"},
    ],
)
def test_a_hostile_schema_costs_nothing_and_objects_to_nothing(schema: dict[str, Any]) -> None:
    started = time.process_time()
    assert problems(schema, {"a": "a" * 40 + "!", "a" * 40 + "!": 1}) == []
    assert time.process_time() - started < 2


def _nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"allOf": [schema] * 4}
    return schema


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (_nested(6), {}),
        (_nested(9), {}),
        ({"anyOf": [{"type": "string"}] * 10_000}, {}),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [{"n": n} for n in range(4000)]}),
        ({"properties": {"a": {"items": {"enum": list(range(5000))}}}}, {"a": ["x"] * 4000}),
        ({"properties": {"a": {"items": {"anyOf": [{"const": n} for n in range(300)]}}}}, {"a": list(range(300)) * 13}),
        ({"properties": {"a": {"items": {}}}}, {"a": [0] * 300_000}),
    ],
)
def test_no_check_holds_up_others(schema: dict[str, Any], value: dict[str, Any]) -> None:
    started = time.process_time()
    assert problems(schema, value) == []
    assert time.process_time() - started < 2


def test_numbers_that_are_none_are_refused() -> None:
    value = {"timeout": float("nan"), "list": [1, {"a": float("inf")}]}
    assert problems({}, value) == ["timeout: must be a finite number", "list.1.a: must be a finite number"]


def test_long_lists_of_what_is_known_are_cut() -> None:
    schema = {"properties": {f"p{n}": {"enum": list(range(60))} for n in range(60)}, "additionalProperties": False}
    extra, choice = problems(schema, {"p1": "x", "q": 1})
    assert choice.endswith('48, 49, …, not "x"')
    assert extra.endswith("p48, p49, …")


def test_an_older_draft_is_checked() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"name": {"type": "string"}},
        "properties": {"a": {"$ref": "#/definitions/name"}},
    }
    assert problems(schema, {"a": 1}) == ["a: must be of type string, not 1"]


def test_the_builtin_schemas_are_what_models_take() -> None:
    for tool in BUILTINS:
        Draft202012Validator.check_schema(tool.schema)
        assert set(tool.required) <= set(tool.properties)
        for name, rule in tool.properties.items():
            assert rule["description"], (tool.name, name)
            if "default" in rule:
                assert problems(tool.schema, {name: rule["default"]}) == [
                    line for line in problems(tool.schema, {}) if not line.startswith(f"{name}:")
                ]
