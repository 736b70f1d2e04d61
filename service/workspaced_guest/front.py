"""Where the front matter of a `SKILL.md` is. The server looks at its seed skills by the same rule."""

from __future__ import annotations

import re

MAX_FRONT_BYTES = 32 * 1024
_FRONT = re.compile(rb"(?:\xef\xbb\xbf)?\s*-{3,}[ \t]*\r?\n(.*?)^-{3,}[ \t]*\r?$", re.DOTALL | re.MULTILINE)


def front_of(content: bytes) -> bytes | None:
    """What is between the first two lines of dashes."""
    head = content[:MAX_FRONT_BYTES]
    found = _FRONT.match(head)
    # A cut may look like the end of a line.
    return None if found is None or (found.end() == len(head) < len(content)) else found.group(1)
