"""The guest as one zipapp, made from the installed package's sources."""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import io
import zipfile
from dataclasses import dataclass

PACKAGE = "workspaced_guest"
LIMIT_BYTES = 400 * 1024
_MAIN = b"import sys\nfrom workspaced_guest.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Bundle:
    """The zipapp's bytes, and their SHA-256 in hexadecimal."""

    data: bytes
    sha256: str


@functools.cache
def build() -> Bundle:
    """Build the zipapp: the same sources give the same bytes. Raises RuntimeError when it would exceed 400 KiB."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as writer:
        sources = {
            f"{PACKAGE}/{entry.name}": entry.read_bytes()
            for entry in importlib.resources.files(PACKAGE).iterdir()
            if entry.name.endswith(".py")
        }
        sources["__main__.py"] = _MAIN
        for name in sorted(sources):
            # The time and the mode of the sources would make two installations differ.
            member = zipfile.ZipInfo(name, _EPOCH)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o644 << 16
            writer.writestr(member, sources[name])
    data = archive.getvalue()
    if len(data) > LIMIT_BYTES:
        raise RuntimeError(f"the guest's bundle has {len(data)} bytes, more than {LIMIT_BYTES}")
    return Bundle(data, hashlib.sha256(data).hexdigest())
