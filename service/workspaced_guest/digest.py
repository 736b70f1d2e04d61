"""SHA-256 of small files without OpenSSL, whose import would cost the guest 4 MB."""

from __future__ import annotations

import importlib


def sha256_of(path: str) -> str:
    """The hash of a file in hex. Raises OSError."""
    with open(path, "rb") as file:
        return sha256(file.read())


def sha256(content: bytes) -> str:
    """The hash in hex."""
    # The module's name changed with CPython 3.12; a build may have left it out.
    for name in ("_sha2", "_sha256", "hashlib"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return str(module.sha256(content).hexdigest())
    raise ImportError("this Python has no SHA-256")
