"""Names of MCP tools: legal, unique, stable, and the same whoever was asked."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from workspaced_server.tools.names import LIMIT, ServerNames

LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")


def test_plain_names_stay_plain() -> None:
    names = ServerNames(["git", "file-system"])
    assert names.tools("git", ["log", "diff_2"]) == {"log": "mcp__git__log", "diff_2": "mcp__git__diff_2"}
    assert names.tools("file-system", ["t.dot/slash"]) == {"t.dot/slash": "mcp__file-system__t_dot_slash"}


def test_a_long_name_is_cut_and_stays_unique() -> None:
    long = "x" * 200
    found = ServerNames(["s"]).tools("s", [long, long + "y"])
    assert found[long] == ServerNames(["s"]).tools("s", [long])[long]
    assert len(set(found.values())) == 2
    assert all(LEGAL.fullmatch(name) and name.startswith("mcp__s__xxx") for name in found.values())


def test_collisions_keep_the_legal_one() -> None:
    found = ServerNames(["s"]).tools("s", ["a.b", "a_b", "a/b"])
    assert found["a_b"] == "mcp__s__a_b"
    assert re.fullmatch("mcp__s__a_b_[0-9a-f]{8}", found["a.b"])
    assert len(set(found.values())) == 3
    assert found == ServerNames(["s"]).tools("s", ["a/b", "a.b", "a_b"])


def test_servers_do_not_collide() -> None:
    names = ServerNames(["a", "a__b", "a.x", "a_x", "a_"])
    every = [
        *names.tools("a", ["b__c", "c"]).values(),
        *names.tools("a__b", ["c"]).values(),
        *names.tools("a.x", ["t"]).values(),
        *names.tools("a_x", ["t"]).values(),
        *names.tools("a_", ["_c"]).values(),
    ]
    assert len(set(every)) == len(every)
    assert names.tools("a_x", ["t"]) == {"t": "mcp__a_x__t"}


# Names that are likely to collide.
_NAMES = st.text(alphabet="ab_./", min_size=1, max_size=6)
_SETS = st.dictionaries(_NAMES | st.text(min_size=1, max_size=64), st.sets(_NAMES | st.text(max_size=200)), max_size=5)


@given(_SETS)
def test_always(servers: dict[str, set[str]]) -> None:
    names = ServerNames(servers)
    given_names: dict[str, tuple[str, str]] = {}
    for server, tools in servers.items():
        found = names.tools(server, sorted(tools))
        assert set(found) == tools
        for tool, name in found.items():
            assert LEGAL.fullmatch(name), name
            assert len(name) <= LIMIT
            assert name not in given_names, (server, tool, given_names[name])
            given_names[name] = (server, tool)
            assert names.candidates(name)[0] == server
