"""Write: a file as a whole."""

from __future__ import annotations

from workspaced_server.errors import WorkspacedError
from workspaced_server.guest import answers
from workspaced_server.tools.guest import ask, explain
from workspaced_server.tools.outcome import Call, Outcome, failed, said


async def write(call: Call) -> Outcome:
    """Write it; atomic, so that a cancelled call has written all or nothing."""
    path, content = call.input["file_path"], call.input["content"]
    try:
        _, result = await ask(call.handle, "tool.write", {"reader": call.reader, "path": path}, content.encode())
    except WorkspacedError as error:
        return failed(explain(error, path))
    done = "Created" if answers.flag(result, "created") else "Replaced"
    count = content.count("\n") + (not content.endswith("\n") and bool(content))
    lines = "1 line" if count == 1 else f"{count} lines"
    return said(f"{done} {path}: {lines}, {answers.integer(result, 'size')} bytes.")
