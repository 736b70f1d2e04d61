"""The guest as one file: a zipapp, the same bytes for the same sources."""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from dataclasses import dataclass
from importlib import resources

MAX_BYTES = 400_000

_PACKAGE = "workspaced_guest"
_MAIN = "import sys\n\nfrom workspaced_guest.__main__ import main\n\nsys.exit(main(sys.argv[1:]))\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Bundle:
    """``data`` is what ``python3 guest.pyz`` runs, ``sha256`` its hash in hex."""

    data: bytes
    sha256: str


@functools.cache
def build() -> Bundle:
    """Build the zipapp from the installed package's sources; the first call does the work.

    Raises ValueError when the result is larger than what the guest's protocol promises (400 KB).
    """
    buffer = io.BytesIO()
    # Not compressed: a guest reads it at each start, and an interpreter without zlib can too.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        for name, content in sorted(_sources().items()):
            _add(archive, f"{_PACKAGE}/{name}", content)
    data = buffer.getvalue()
    if len(data) > MAX_BYTES:
        raise ValueError(f"the guest's bundle has {len(data)} bytes, at most {MAX_BYTES} are allowed")
    return Bundle(data, hashlib.sha256(data).hexdigest())


@functools.cache
def bootstrap() -> str:
    """The program text for ``python3 -I -c`` that installs and starts the bundle over standard streams."""
    return resources.files(_PACKAGE).joinpath("bootstrap.py").read_text("utf-8")


def _sources() -> dict[str, bytes]:
    entries = resources.files(_PACKAGE).iterdir()
    return {
        entry.name: entry.read_bytes()
        for entry in entries
        if entry.name.endswith(".py") and entry.name != "bootstrap.py"
    }


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = 3
    info.external_attr = 0o644 << 16
    archive.writestr(info, content)
