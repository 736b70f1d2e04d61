"""The DATA of the vectors: bytes that are named, not carried. See OPERATIONS.md."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

MIB = 1 << 20
_SHOWN_BYTES = 65536


@lru_cache(maxsize=4)
def _block(seed: str) -> bytes:
    return b"".join(hashlib.sha256(f"{seed}:{k}".encode()).digest() for k in range(MIB // 32))


def chunks_of(data: Any) -> Iterator[bytes]:
    """The bytes of a DATA in pieces of at most 1 MiB."""
    if isinstance(data, str):
        yield data.encode()
    elif "base64" in data:
        yield base64.b64decode(data["base64"], validate=True)
    else:
        block, left, number = _block(str(data["pattern"])), int(data["size"]), 0
        while left > 0:
            turn = number % MIB
            piece = (block[turn:] + block[:turn])[:left]
            yield piece
            left -= len(piece)
            number += 1


def bytes_of(data: Any) -> bytes:
    """The bytes of a DATA in memory."""
    return b"".join(chunks_of(data))


def sha256_of(data: Any) -> str:
    """The hash of a DATA in hexadecimal."""
    return _sha256(json.dumps(data, sort_keys=True))


@lru_cache(maxsize=1000)
def _sha256(data: str) -> str:
    digest = hashlib.sha256()
    for chunk in chunks_of(json.loads(data)):
        digest.update(chunk)
    return digest.hexdigest()


class Sink:
    """Takes bytes as they come and tells of them as a result does: size, hash, and what is short in full."""

    def __init__(self) -> None:
        self.size = 0
        self._digest = hashlib.sha256()
        self._kept: bytearray | None = bytearray()

    def add(self, data: bytes) -> None:
        """Take some bytes."""
        self.size += len(data)
        self._digest.update(data)
        if self._kept is not None:
            self._kept += data
            if self.size > _SHOWN_BYTES:
                self._kept = None

    def result(self) -> dict[str, Any]:
        """DATA, as a result has it."""
        shown = {} if self._kept is None else {"base64": base64.b64encode(self._kept).decode()}
        return {"size": self.size, "sha256": self._digest.hexdigest(), **shown}


def result_of(data: bytes) -> dict[str, Any]:
    """DATA, as a result has it."""
    sink = Sink()
    sink.add(data)
    return sink.result()
