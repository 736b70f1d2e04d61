"""Names of the tools of MCP servers: legal, unique, and the same as long as the names that they come from are.

A name depends on the names of all declared servers, and of the tools of its own server, but not on what other servers
offer: so the name is the same whether all servers were asked or only this one.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

LIMIT: Final = 64
_PREFIX: Final = "mcp__"
_SERVER_CHARACTERS: Final = 40
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]")


@functools.lru_cache(maxsize=256)
def server_names(servers: tuple[str, ...]) -> ServerNames:
    """The names of the tools of these servers; the same object for the same servers while it is kept."""
    return ServerNames(servers)


class ServerNames:
    """The prefixes of declared servers."""

    def __init__(self, servers: Iterable[str]) -> None:
        self._prefixes: dict[str, str] = {}
        self._tools: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {}
        wanted = {server: _slug(server) for server in servers}
        counts = Counter(wanted.values())
        for server, slug in sorted(wanted.items()):
            # One that another's name begins with would make `a__b` of `c` and `a` of `b__c` the same.
            inside = any(_begins(slug, other) for name, other in wanted.items() if name != server)
            if inside or (counts[slug] > 1 and slug != server):
                slug = f"{slug[: _SERVER_CHARACTERS - 9]}_{_hash(server)}"
            self._prefixes[server] = f"{_PREFIX}{slug}__"

    def candidates(self, name: str) -> list[str]:
        """Servers that a tool of this name can be of, the most likely first."""
        found = [server for server, prefix in self._prefixes.items() if name.startswith(prefix)]
        return sorted(found, key=lambda server: -len(self._prefixes[server]))

    def tools(self, server: str, tools: Sequence[str]) -> dict[str, str]:
        """The name for each tool of a declared server, by the tool's own."""
        asked = tuple(tools)
        known = self._tools.get(server)
        if known is None or known[0] != asked:
            known = self._tools[server] = (asked, self._name(server, asked))
        return known[1]

    def _name(self, server: str, tools: tuple[str, ...]) -> dict[str, str]:
        prefix = self._prefixes[server]
        longer = [other for other in self._prefixes.values() if other != prefix and other.startswith(prefix)]
        wanted = {tool: prefix + _ILLEGAL.sub("_", tool) for tool in tools}
        counts = Counter(wanted.values())
        names: dict[str, str] = {}
        taken: set[str] = set()
        # Those that are legal as they are come first: they keep their name whatever else there is.
        for tool in sorted(wanted, key=lambda tool: (wanted[tool] != prefix + tool, tool)):
            name = wanted[tool]
            digits = 8
            shared = counts[name] > 1 and name != prefix + tool
            while len(name) > LIMIT or name in taken or shared or any(name.startswith(other) for other in longer):
                digest = _hash(f"{server}\0{tool}", digits)
                if any(wanted[tool].startswith(other) for other in longer):
                    name = f"{prefix}{digest}_{wanted[tool][len(prefix) :]}"[:LIMIT]
                else:
                    name = f"{wanted[tool][: LIMIT - 1 - digits]}_{digest}"
                shared = False
                digits += 1
            names[tool] = name
            taken.add(name)
        return names


def _slug(server: str) -> str:
    slug = _ILLEGAL.sub("_", server)
    return slug if len(slug) <= _SERVER_CHARACTERS else f"{slug[: _SERVER_CHARACTERS - 9]}_{_hash(server)}"


def _begins(slug: str, other: str) -> bool:
    return slug != other and f"{slug}__".startswith(f"{other}__")


def _hash(text: str, digits: int = 8) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
