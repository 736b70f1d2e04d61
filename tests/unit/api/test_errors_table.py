"""docs/errors.md, the code and the comments of the protos name the same errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from workspaced_server.api.server import FILES
from workspaced_server.errors import Code
from workspaced_server.guest.faults import FAULTS, GUEST_ERROR
from workspaced_server.workspaces.faults import _CODES as DRIVER_CODES

ROOT = Path(__file__).parents[3]
SERVER = ROOT / "service" / "workspaced_server"

_SERVED = ("execution", "file", "lifecycle", "offload", "port", "process", "server", "tool", "workspace")

Pair = tuple[str, str]


def table() -> dict[Pair, str]:
    """Code and reason of each row, with the row's RPCs."""
    rows: dict[Pair, str] = {}
    for line in (ROOT / "docs" / "errors.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0] in Code.__members__:
            assert len(cells) == 5, line
            assert (cells[0], cells[1]) not in rows, line
            assert cells[3], line
            rows[cells[0], cells[1]] = cells[2]
    return rows


def code_pairs() -> set[Pair]:
    """What the server's source says: errors with a literal reason, drivers' errors, the guest's faults."""
    pairs = {(code.name, reason) for code, reason in FAULTS.values()} | {("INTERNAL", GUEST_ERROR)}
    pairs |= {(code.name, reason) for reason, code in DRIVER_CODES.items()}
    for path in SERVER.rglob("*.py"):
        if path.relative_to(SERVER).parts[0] != "cli":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    pairs |= set(_pairs(node))
    return pairs


def _pairs(call: ast.Call) -> Iterator[Pair]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    first = _text(call.args[0]) if call.args else None
    if name == "DriverError" and first is not None:
        retryable = any(keyword.arg == "retryable" for keyword in call.keywords)
        fallback = Code.UNAVAILABLE if retryable else Code.FAILED_PRECONDITION
        yield DRIVER_CODES.get(first, fallback).name, first
    elif name == "_refused" and first is not None:
        yield "UNAUTHENTICATED", first
    for code, reason in zip(call.args, call.args[1:], strict=False):
        text = _text(reason)
        if isinstance(code, ast.Attribute) and isinstance(code.value, ast.Name) and code.value.id == "Code" and text:
            yield code.attr, text


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def proto_pairs() -> set[Pair]:
    """`CODE, REASON` in the comments of the protos whose RPCs are served."""
    pairs = set()
    codes = "|".join(Code.__members__)
    for name in _SERVED:
        text = (ROOT / "protos" / "workspaced" / "v1" / f"{name}.proto").read_text()
        comments = " ".join(re.findall(r"//\s*(.*)", text))
        for code, reasons in re.findall(rf"\b({codes}), ([A-Z]+(?:_[A-Z]+)+(?:, [A-Z]+(?:_[A-Z]+)+)*)", comments):
            pairs |= {(code, reason) for reason in reasons.split(", ") if reason not in Code.__members__}
    return pairs


def test_the_table_is_what_the_code_says() -> None:
    documented = set(table())
    assert code_pairs() - documented == set(), "missing in docs/errors.md"
    assert documented - code_pairs() == set(), "no code raises these"


def test_the_table_has_what_the_protos_promise() -> None:
    found = proto_pairs()
    assert len(found) > 20
    assert found - set(table()) == set()


def test_the_rpcs_of_the_table_exist() -> None:
    rpcs = {method.name for file in FILES for service in file.services_by_name.values() for method in service.methods}
    for pair, text in table().items():
        named = set(re.findall(r"`(\w+)`", text))
        assert named <= rpcs, pair
        assert named or text.startswith("every RPC"), pair


def test_a_reason_means_one_code_as_a_rule() -> None:
    codes: dict[str, set[str]] = {}
    for code, reason in table():
        codes.setdefault(reason, set()).add(code)
    # What is wrong with a skill is the caller's mistake in an archive, and the workspace's state in a file.
    assert {reason for reason, found in codes.items() if len(found) > 1} == {"GUEST_START_FAILED", "SKILL_INVALID"}
