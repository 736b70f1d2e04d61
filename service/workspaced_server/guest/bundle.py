"""The guest as one file: a zipapp, the same bytes for the same sources.

It carries the part of the `websockets` library that a guest's WebSocket listener needs: the protocol without any input
and output, in pure Python, with its licence.
"""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from dataclasses import dataclass
from importlib import metadata, resources

MAX_BYTES = 400_000

_PACKAGE = "workspaced_guest"
_MAIN = "import sys\n\nfrom workspaced_guest.__main__ import main\n\nsys.exit(main(sys.argv[1:]))\n"
_LIBRARY = "websockets"
_LIBRARY_MODULES = (
    "datastructures.py",
    "exceptions.py",
    "extensions/__init__.py",
    "extensions/base.py",
    "frames.py",
    "headers.py",
    "http11.py",
    "imports.py",
    "protocol.py",
    "server.py",
    "streams.py",
    "typing.py",
    "utils.py",
    "version.py",
)
# Modules of operations that a workspace may never see; all others are read at each start of a guest.
_SELDOM = (
    "archive", "copying", "glob", "inotify", "listing", "managed", "offload", "parcel",
    "skills", "staging", "tarmembers", "tools", "upgrade", "watch", "websocket", "zipmembers",
)  # fmt: skip
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Bundle:
    """``data`` is what ``python3 guest.pyz`` runs, ``sha256`` its hash in hex."""

    data: bytes
    sha256: str


@functools.cache
def build() -> Bundle:
    """Build the zipapp from the installed package's sources; the first call does the work.

    Raises ValueError when the result is larger than what the guest's protocol promises (400 KB), ImportError when the
    library is not installed as it was released.
    """
    buffer = io.BytesIO()
    # Not compressed: a guest reads it at each start, and an interpreter without zlib can too. Of the library and the
    # operations of the roles few guests read all.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        for name, content in sorted(_sources().items()):
            compression = zipfile.ZIP_DEFLATED if name.startswith(_SELDOM) else zipfile.ZIP_STORED
            _add(archive, f"{_PACKAGE}/{name}", content, compression)
        for name, content in _library().items():
            _add(archive, f"{_LIBRARY}/{name}", content, zipfile.ZIP_DEFLATED)
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


def _library() -> dict[str, bytes]:
    root = resources.files(_LIBRARY)
    # The package's own __init__ imports what is not carried, lazily; nothing needs it.
    found = {"__init__.py": b""}
    found.update((name, root.joinpath(name).read_bytes()) for name in _LIBRARY_MODULES)
    distribution = metadata.distribution(_LIBRARY)
    licences = [file for file in distribution.files or () if file.name.startswith("LICENSE")]
    if not licences:
        raise ImportError(f"{_LIBRARY} is installed without its licence")
    found["LICENSE"] = licences[0].read_binary()
    return found


def _add(archive: zipfile.ZipFile, name: str, content: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = 3
    info.external_attr = 0o644 << 16
    archive.writestr(info, content, compression, 9)
