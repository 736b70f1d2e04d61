"""The front matter of a `SKILL.md`: YAML that nobody vouches for, read within bounds."""

from __future__ import annotations

import functools
import math
import unicodedata
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_NAME = 64
MAX_DESCRIPTION = 1024
_MAX_DEPTH = 20
_MAX_NODES = 1000
# Larger ones are read each time: what a workspace can make this server keep is bounded.
_MAX_CACHED = 2048
_MAX_EXACT = 1 << 53
_WORDS = {None: "null", True: "true", False: "false"}
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class FrontMatterInvalid(ValueError):
    """A front matter that makes no skill; the text says why, to whoever wrote it."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """``metadata`` are the other keys, as JSON has them; treat it as read-only."""

    name: str
    description: str
    metadata: Mapping[str, Any]


def parse(text: str | None) -> FrontMatter:
    """Read what is between the lines of dashes; None when there are none. Raises FrontMatterInvalid.

    ``name`` must be text of 1 to 64 printable characters without space around it, ``description`` text of 1 to 1,024
    characters, which may have line breaks. Other keys are anything. Aliases and tags of a program are refused.
    """
    if text is None:
        raise FrontMatterInvalid("SKILL.md does not begin with a front matter between two lines of ---")
    found = _cached(text) if len(text) <= _MAX_CACHED else _parse(text)
    if isinstance(found, str):
        raise FrontMatterInvalid(found)
    return found


def folded(name: str) -> str:
    """What is equal for names that are taken for one: they differ in case, or in how accents are encoded."""
    return unicodedata.normalize("NFC", name).casefold()


@functools.lru_cache(maxsize=1024)
def _cached(text: str) -> FrontMatter | str:
    return _parse(text)


def _parse(text: str) -> FrontMatter | str:
    try:
        fields = _load(text)
        return FrontMatter(
            _name(fields.pop("name", None)),
            _description(fields.pop("description", None)),
            {key: _json(value) for key, value in fields.items()},
        )
    except FrontMatterInvalid as error:
        return str(error)


def _load(text: str) -> dict[str, Any]:
    import yaml

    if any("\ud800" <= character <= "\udfff" for character in text):
        raise FrontMatterInvalid("the front matter is not UTF-8")
    loader = _loader()(text)
    try:
        node = loader.get_single_node()
        if node is not None:
            _check_nodes(node)
        value = None if node is None else loader.construct_document(node)
    except FrontMatterInvalid:
        raise
    except yaml.YAMLError as error:
        raise FrontMatterInvalid(f"the front matter is no YAML: {_where(error)}") from None
    except (ValueError, TypeError, OverflowError, RecursionError):
        # What the types' constructors raise, for a number of thousands of digits for example.
        raise FrontMatterInvalid("the front matter has a value that is not what its type says") from None
    finally:
        loader.dispose()
    if not isinstance(value, dict):
        raise FrontMatterInvalid("the front matter is no mapping of keys to values")
    return {_key(key): item for key, item in value.items()}


@functools.cache
def _loader() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    # Dates stay the text that they are.
    resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag != _TIMESTAMP]
        for first, known in base.yaml_implicit_resolvers.items()
    }
    return type("Loader", (base,), {"yaml_implicit_resolvers": resolvers})


def _check_nodes(top: Any) -> None:
    """Refuse what is deep, large or shared, before anything is made of it: an alias is the node that it stands for."""
    import yaml

    seen: set[int] = set()
    waiting = [(top, 0)]
    while waiting:
        node, depth = waiting.pop()
        if id(node) in seen:
            raise FrontMatterInvalid("the front matter has an alias")
        seen.add(id(node))
        if depth > _MAX_DEPTH or len(seen) > _MAX_NODES:
            raise FrontMatterInvalid("the front matter is too deep or has too many values")
        if isinstance(node, yaml.MappingNode):
            waiting += [(item, depth + 1) for pair in node.value for item in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(item, depth + 1) for item in node.value]


def _where(error: Exception) -> str:
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    mark = getattr(error, "problem_mark", None)
    # The line of the file: the front matter begins after its first.
    return f"{problem}, line {mark.line + 2}" if mark is not None else str(problem)


def _name(value: Any) -> str:
    if value is None:
        raise FrontMatterInvalid("the front matter has no name")
    if not isinstance(value, str):
        raise FrontMatterInvalid("the front matter's name is no text: put it in quotes")
    if not 1 <= len(value) <= MAX_NAME or value != value.strip() or not value.isprintable():
        raise FrontMatterInvalid(
            f"the front matter's name must have 1 to {MAX_NAME} printable characters, and no space around them"
        )
    return str(value)


def _description(value: Any) -> str:
    if value is None:
        raise FrontMatterInvalid("the front matter has no description")
    if not isinstance(value, str):
        raise FrontMatterInvalid("the front matter's description is no text: put it in quotes")
    text = str(value).strip()
    if not 1 <= len(text) <= MAX_DESCRIPTION:
        raise FrontMatterInvalid(f"the front matter's description must have 1 to {MAX_DESCRIPTION} characters")
    if any(unicodedata.category(character) == "Cc" and character not in "\n\t" for character in text):
        raise FrontMatterInvalid("the front matter's description has a control character")
    return text


def _key(value: Any) -> str:
    """A key as JSON has it, which is text."""
    return _WORDS[value] if value is None or isinstance(value, bool) else str(_json(value))


def _json(value: Any) -> Any:
    """The value as JSON has it; what JSON cannot hold exactly becomes text."""
    if isinstance(value, dict):
        return {_key(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_json(item) for item in value]
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _MAX_EXACT else str(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)
