"""What an offload call sends to a guest, for tests that are the client themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from workspaced_guest.parcel import HEADER


def parcel(text: bytes = b"", blobs: Iterable[tuple[str, bytes]] = (), **about: object) -> bytes:
    """The items of one call; `digest` is that of the text unless it is given."""
    items = [HEADER.pack(b"B", len(name), len(data)) + name.encode() + data for name, data in blobs]
    if text:
        items.append(HEADER.pack(b"L", 0, len(text)) + text)
    last = json.dumps({"digest": hashlib.sha256(text).hexdigest(), "count": text.count(b"\n"), **about}).encode()
    return b"".join(items) + HEADER.pack(b"E", len(last), 0) + last


def pieces(data: bytes, size: int) -> list[bytes]:
    """The same in frames of at most `size` bytes."""
    return [data[start : start + size] for start in range(0, len(data), size)]
