"""A tool's result as the text of its file."""

from __future__ import annotations

import html
from collections.abc import Iterable

from workspaced.v1 import content_pb2 as pb

_BREAKS = str.maketrans({"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def result_text(blocks: Iterable[pb.ContentBlock]) -> str:
    """Text blocks as they are, one behind the other; each data block as a line ``<data url="…" …/>`` of its own.

    Attributes are escaped as in XML. Data blocks have URLs by now.
    """
    pieces: list[str] = []
    begun = False  # whether the present line holds something
    for block in blocks:
        if block.HasField("text"):
            piece = block.text.text
        elif block.HasField("data"):
            piece = ("\n" if begun else "") + data_line(block.data)
        else:
            continue
        if piece:
            pieces.append(piece)
            begun = not piece.endswith("\n")
    return "".join(pieces)


def data_line(block: pb.DataBlock) -> str:
    """The line that stands for a data block with a URL."""
    attributes = {"url": block.url, "media_type": block.media_type, "name": block.name}
    given = "".join(f' {name}="{_escape(value)}"' for name, value in attributes.items() if value)
    return f"<data{given}/>\n"


def _escape(value: str) -> str:
    return html.escape(value).translate(_BREAKS)
