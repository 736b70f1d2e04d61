"""What a front matter may be, and what none can do to the server."""

from __future__ import annotations

import json
import re
import time

import pytest
from google.protobuf.struct_pb2 import Struct
from hypothesis import given, settings
from hypothesis import strategies as st

from workspaced_server.skills.frontmatter import FrontMatterInvalid, folded, parse
from workspaced_server.skills.listing import Listing, directory_for

VALID = "name: n\ndescription: d\n"


def why(text: str | None) -> str:
    with pytest.raises(FrontMatterInvalid) as caught:
        parse(text)
    return str(caught.value)


def test_what_is_read() -> None:
    found = parse("name: 'PDF (1)'\r\ndescription: |\r\n  One.\r\n\r\n  Two.\r\nx: 1\r\n")
    assert (found.name, found.description, found.metadata) == ("PDF (1)", "One.\n\nTwo.", {"x": 1})
    assert parse("{name: a, description: b}").metadata == {}
    assert parse('name: "\\u6587"\ndescription: d').name == "文"
    assert parse("name: n\ndescription: 'd'\nname: m").name == "m"


def test_other_keys_become_json() -> None:
    text = VALID + (
        "date: 2024-02-30\ntime: 2001-12-14t21:59:43.10-05:00\ninf: .inf\nnan: .nan\nbig: 9007199254740993\nfine: -5\n"
        "binary: !!binary aGk=\nset: !!set {a, b}\n2: two\nnull: x\nyes: no\nlist: [1, [2.5, ~]]\n"
    )
    metadata = parse(text).metadata
    assert (metadata["date"], metadata["inf"], metadata["nan"]) == ("2024-02-30", "inf", "nan")
    assert (metadata["big"], metadata["fine"], metadata["binary"]) == ("9007199254740993", -5, "aGk=")
    assert sorted(metadata["set"]) == ["a", "b"]
    assert (metadata["2"], metadata["null"], metadata["true"]) == ("two", "x", False)
    assert metadata["list"] == [1, [2.5, None]]
    json.dumps(metadata, allow_nan=False)
    Struct().update(metadata)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (None, "does not begin with"),
        ("", "no mapping"),
        ("- a", "no mapping"),
        ("just text", "no mapping"),
        ("name: [", "no YAML"),
        ("a: b: c", "line 2"),
        ("name: n", "no description"),
        ("description: d", "no name"),
        ("name: 1\ndescription: d", "name is no text"),
        ("name: 2024-01-01x\ndescription: 1", "description is no text"),
        ("name: yes\ndescription: d", "name is no text"),
        ("name: ''\ndescription: d", "1 to 64"),
        ("name: ' n'\ndescription: d", "1 to 64"),
        (f"name: {'n' * 65}\ndescription: d", "1 to 64"),
        ('name: "a\\nb"\ndescription: d', "1 to 64"),
        ('name: "a\\u202eb"\ndescription: d', "1 to 64"),
        ("name: n\ndescription: '  '", "1 to 1024"),
        (f"name: n\ndescription: {'d' * 1025}", "1 to 1024"),
        ('name: n\ndescription: "a\\e[31m"', "control character"),
        ("name: caf\udce9\ndescription: d", "not UTF-8"),
        (VALID + "a: &x [1]\nb: *x", "alias"),
        (VALID + "a: &x {b: *x}", "alias"),
        (VALID + "a: !!python/name:os.system", "no YAML"),
        (VALID + "a: !!python/object/apply:os.system [id]", "no YAML"),
        (VALID + "a: " + "[" * 21 + "]" * 21, "too deep"),
        (VALID + "a: " + "[" * 16000, "nesting depth"),
        (VALID + "a: [" + "1," * 5000 + "]", "too many"),
        (VALID + "a: " + "9" * 5000, "not what its type says"),
        (VALID + "a: !!timestamp 2024-99-99", "not what its type says"),
        (VALID + "a: !!binary '\u00e9'", "no YAML"),
        ("? {a: b}\n: c\n" + VALID, "no YAML"),
        ("[1, 2]: pair\n" + VALID, "no YAML"),
        ("%YAML 9.9\n---\n" + VALID, "no YAML"),
        (VALID + "---\nname: other", "no YAML"),
        ("\x01", "no YAML"),
    ],
)
def test_what_is_refused(text: str | None, cause: str) -> None:
    assert cause in why(text)


def test_a_billion_laughs_are_refused_quickly() -> None:
    rows = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 20)]
    began = time.monotonic()
    assert re.search("alias|too deep", why(VALID + "\n".join(rows)))
    assert time.monotonic() - began < 1


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=60), st.text("[]{}:,-#&*!|>'\"%@` \n\tab1~?", max_size=60).map(VALID.__add__)))
def test_nothing_else_is_raised(text: str) -> None:
    try:
        found = parse(text)
    except FrontMatterInvalid as error:
        assert str(error)  # noqa: PT017 - any outcome is fine but another exception
    else:
        assert 1 <= len(found.name) <= 64
        Struct().update(found.metadata)


def test_names_that_are_one() -> None:
    assert folded("CAF\u00c9") == folded("cafe\u0301")
    assert folded("stra\u00dfe") == folded("STRASSE")
    assert folded("a") != folded("b")


@pytest.mark.parametrize(
    ("name", "directory"),
    [
        ("pdf", "pdf"),
        ("PDF files!", "PDF-files"),
        ("../../etc", "etc"),
        ("...", "skill"),
        ("a/b\\c", "a-b-c"),
        ("文件", "文件"),
        ("\u4e2d" * 64, "\u4e2d" * 64),
        ("\U00020000" * 64, "\U00020000" * 50),
        ("!", "skill"),
    ],
)
def test_directories_of_names(name: str, directory: str) -> None:
    assert directory_for(name) == directory
    assert len(directory.encode()) <= 200


def test_a_listing_by_directory() -> None:
    listing = Listing("/w/skills/a")
    sha256 = "0" * 64
    for directory, name in (("b", "Two"), ("c", "TWO"), ("d", "one"), ("e\udcff", "three")):
        front = f"name: {name}\ndescription: d"
        listing.add({"directory": directory, "front": front, "sha256": sha256, "mtime_ns": "5", "problem": None})
    listing.add({"directory": "f", "front": "name: big\ndescription: d", "problem": "too_large"})
    listing.finish(truncated=True)
    assert [skill.name for skill in listing.skills] == ["Two", "one", "three"]
    assert [(problem.path, problem.reason) for problem in listing.problems] == [
        ("/w/skills/a/c", "SKILL_NAME_DUPLICATE"),
        ("/w/skills/a/f", "SKILL_UNREADABLE"),
        ("/w/skills/a", "SKILL_UNREADABLE"),
    ]
    assert (listing.directory_of("TWO"), listing.directory_of("Two"), listing.directory_of("big")) == (None, "b", "f")
    assert listing.directory_of("three") == "e\udcff"
