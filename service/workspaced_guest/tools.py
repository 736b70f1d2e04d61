"""The `tool.` operations: files as a model's tools need them.

Texts are the server's business; here is what must happen beside the files.
"""

from __future__ import annotations

from .stream import blocking
from .tools_edit import edit_file, write_file
from .tools_read import read_file
from .tools_search import search

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .stream import Handler

TOOL_OPS: dict[str, Handler] = {
    "tool.read": blocking(read_file),
    "tool.write": blocking(write_file),
    "tool.edit": blocking(edit_file),
    "tool.search": search,
}
