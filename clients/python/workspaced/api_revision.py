"""Whether the server and this library are of the same revision of the API."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Final

from .v1 import options_pb2, server_pb2

API_REVISION: Final[int] = server_pb2.DESCRIPTOR.GetOptions().Extensions[options_pb2.api_revision]
"""The revision of the API that this library was made for; :attr:`ServerInfo.api_revision` is the server's."""

_KEY = "x-workspaced-api-revision"
_MAX_DIGITS = 9


class ApiRevisionWarning(UserWarning):
    """The server or this library is older than the other. Given once a client, by :mod:`warnings`.

    What both know works; ``server_revision`` and ``client_revision`` say which of them to upgrade.
    """

    def __init__(self, target: str, server_revision: int, client_revision: int = API_REVISION) -> None:
        if server_revision < client_revision:
            text = (
                f"the server at {target} implements revision {server_revision} of the API, older than revision "
                f"{client_revision} that this client was made for: RPCs can be missing there (UNIMPLEMENTED) and newer "
                "options are ignored; upgrade the server"
            )
        else:
            text = (
                f"this client was made for revision {client_revision} of the API, older than revision "
                f"{server_revision} of the server at {target}: it does not know all that the server can do; upgrade "
                "the client"
            )
        super().__init__(text)
        self.server_revision = server_revision
        self.client_revision = client_revision


class RevisionCheck:
    """Takes note of a server's revision from the first answer that names it, so that no call is made to ask for it."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._warned = False
        self.known = False
        """Whether an answer has named the revision; the others need not be looked at."""

    def see(self, *metadata: Iterable[tuple[str, str | bytes]] | None) -> None:
        """Look at the metadata of an answer."""
        for key, value in (pair for part in metadata for pair in part or ()):
            if key == _KEY:
                text = value if isinstance(value, str) else value.decode("latin-1")
                if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS:
                    self.note(int(text))

    def note(self, revision: int) -> None:
        """The server is of this revision. Warns at most once."""
        self.known = True
        if revision != API_REVISION and not self._warned:
            self._warned = True
            warnings.warn(ApiRevisionWarning(self._target, revision), stacklevel=2)
