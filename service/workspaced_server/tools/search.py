"""Glob and Grep: files by their names and by what is in them."""

from __future__ import annotations

from typing import Any, Final

from workspaced.v1 import content_pb2
from workspaced_server.errors import WorkspacedError
from workspaced_server.guest import answers
from workspaced_server.tools.guest import ask, explain
from workspaced_server.tools.outcome import Call, Outcome, failed, said

SECONDS: Final = 20.0
_MAX_ALTERNATIVES: Final = 64
_MODES: Final = {"files_with_matches": "files", "content": "content", "count": "count"}
_STOPPED: Final = {
    "time": "stopped after {seconds:g} s, not complete: narrow the search by path or glob, or use a simpler pattern",
    "entries": "there are too many files to look at all of them, not complete: narrow the search by path",
    "memory": "the search needed too much memory, not complete: narrow it by path or glob",
}


async def glob(call: Call) -> Outcome:
    """Find files by name."""
    pattern, path = call.input["pattern"], call.input.get("path", ".")
    if pattern.startswith("/"):
        path, pattern = _split_absolute(pattern)
    limit = call.input.get("head_limit", 250)
    params: dict[str, object] = {
        "path": path,
        "globs": _alternatives(pattern),
        "limit": limit,
        "include_ignored": bool(call.input.get("include_ignored")),
    }
    return await _search(call, params, path, f"No file matches {call.input['pattern']}.")


async def grep(call: Call) -> Outcome:
    """Search in files."""
    given = call.input
    path = given.get("path", ".")
    context = given.get("context", 0)
    params: dict[str, object] = {
        "path": path,
        "globs": [one if "/" in one else f"**/{one}" for one in _alternatives(given["glob"])]
        if "glob" in given
        else [],
        "pattern": given["pattern"],
        "mode": _MODES[given.get("output_mode", "files_with_matches")],
        "ignore_case": bool(given.get("ignore_case")),
        "multiline": bool(given.get("multiline")),
        "before": max(given.get("before", 0), context),
        "after": max(given.get("after", 0), context),
        "limit": given.get("head_limit", 250),
        "include_ignored": bool(given.get("include_ignored")),
    }
    return await _search(call, params, path, "Nothing matches.")


async def _search(call: Call, params: dict[str, object], path: str, nothing: str) -> Outcome:
    seconds = SECONDS if call.timeout is None else min(SECONDS, max(0.1, call.timeout))
    try:
        data, result = await ask(call.handle, "tool.search", {**params, "seconds": seconds})
    except WorkspacedError as error:
        return failed(explain(error, path))
    if "invalid" in result:
        return failed(f"The regular expression is not valid: {answers.text(result, 'invalid')}.")
    if "problem" in result:
        return failed(_problem(path, answers.text(result, "problem")))
    text = data.decode("utf-8", "replace")
    notes = list(_notes(result, seconds))
    if not text:
        text = nothing + "\n"
    outcome = said((text + "".join(f"[{note}]\n" for note in notes)).removesuffix("\n"))
    if answers.text(result, "stopped") == "time":
        outcome.is_error = True
        outcome.state = content_pb2.TOOL_RESULT_STATE_INTERRUPTED
    return outcome


def _problem(path: str, problem: str) -> str:
    if problem == "missing":
        return f"{path} does not exist. A relative path starts at the workspace's directory."
    return f"{path}: {problem}."


def _notes(result: dict[str, Any], seconds: float) -> list[str]:
    notes = []
    count, shown = answers.integer(result, "count"), answers.integer(result, "shown")
    if count > shown:
        notes.append(f"the newest {shown} of {count} files; narrow the pattern, or raise head_limit")
    if answers.flag(result, "more"):
        notes.append("there may be more: narrow the search, or raise head_limit")
    skipped = answers.integer(result, "skipped")
    if skipped:
        notes.append(f"{skipped} files larger than 16 MiB were left out, as multiline does")
    unreadable = answers.integer(result, "unreadable")
    if unreadable:
        notes.append(f"{unreadable} files or directories could not be read")
    stopped = answers.text(result, "stopped")
    if stopped:
        notes.append(_STOPPED.get(stopped, "the search is not complete").format(seconds=seconds))
    return notes


def _split_absolute(pattern: str) -> tuple[str, str]:
    """The directory in front of the first wildcard, and the pattern below it."""
    parts = pattern.split("/")
    fixed = 1
    while fixed < len(parts) - 1 and not any(character in "*?[{" for character in parts[fixed]):
        fixed += 1
    return "/".join(parts[:fixed]) or "/", "/".join(parts[fixed:]) or "*"


def _alternatives(pattern: str) -> list[str]:
    """The pattern with each ``{a,b}`` written out; one that would be too many, or is not closed, stays as it is."""
    done: list[str] = []
    left = [pattern]
    while left:
        one = left.pop(0)
        end = one.find("}")
        start = one.rfind("{", 0, end) if end >= 0 else -1
        if start < 0 or "," not in one[start:end]:
            done.append(one)
            continue
        left[:0] = [one[:start] + choice + one[end + 1 :] for choice in one[start + 1 : end].split(",")]
        if len(left) + len(done) > _MAX_ALTERNATIVES:
            return [pattern]
    return list(dict.fromkeys(done))
