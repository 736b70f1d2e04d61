"""TLS to the server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc


@dataclass(frozen=True)
class TLS:
    """How to speak TLS. Paths are PEM files, read when the connection is made.

    ``ca`` holds the authorities to trust (``None``: the built-in ones); ``cert`` and ``key`` authenticate this client
    (mutual TLS); ``server_name`` is the name to expect in the server's certificate when it is not the target's host.
    """

    ca: str | Path | None = None
    cert: str | Path | None = None
    key: str | Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key belong together")

    def credentials(self) -> grpc.ChannelCredentials:
        """The channel credentials. Raises :class:`OSError` for a file that cannot be read."""

        def read(path: str | Path | None) -> bytes | None:
            return None if path is None else Path(path).read_bytes()

        return grpc.ssl_channel_credentials(
            root_certificates=read(self.ca), private_key=read(self.key), certificate_chain=read(self.cert)
        )
