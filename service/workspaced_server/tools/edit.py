"""Edit: text of a file replaced."""

from __future__ import annotations

from typing import Any

from workspaced_server.errors import WorkspacedError
from workspaced_server.guest import answers
from workspaced_server.tools.guest import ask, explain
from workspaced_server.tools.outcome import Call, Outcome, failed, said


async def edit(call: Call) -> Outcome:
    """Edit it; atomic, so that a cancelled call has changed all or nothing."""
    path, old, new = call.input["file_path"], call.input["old_string"], call.input["new_string"]
    if old == new:
        return failed("old_string and new_string are the same: there is nothing to change.")
    old_bytes = old.encode()
    params = {
        "reader": call.reader,
        "path": path,
        "old_size": len(old_bytes),
        "replace_all": bool(call.input.get("replace_all")),
    }
    try:
        _, result = await ask(call.handle, "tool.edit", params, old_bytes + new.encode())
    except WorkspacedError as error:
        return failed(explain(error, path))
    refused = answers.text(result, "refused")
    if refused:
        return failed(f"{path}: {_refusal(refused, result, old)} Nothing was changed.")
    count, line = answers.integer(result, "replaced"), answers.integer(result, "line")
    if count == 1:
        return said(f"Edited {path}: 1 replacement, in line {line}.")
    return said(f"Edited {path}: {count} replacements, the first in line {line}.")


def _refusal(refused: str, result: dict[str, Any], old: str) -> str:
    match refused:
        case "unread":
            return "this file has not been read in this session. Read it, then edit."
        case "changed":
            return (
                "the file is not what it was when you last read it: somebody has changed it. Read it again, then edit."
            )
        case "absent":
            text = "old_string is not in the file. It must be exact, with white space, and without line numbers."
            if "\ufffd" in old:
                text += " It holds U+FFFD, which Read shows in place of bytes that are not UTF-8: leave those out."
            return text
        case "ambiguous":
            count = answers.integer(result, "count")
            return f"old_string is there {count} times. Add lines around it to make it unique, or set replace_all."
        case "large":
            return "this is too large for Edit. Use Bash, for example with sed."
        case _:
            raise answers.malformed()
