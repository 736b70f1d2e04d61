"""Where a Docker engine is, and how to talk to it: the SDK for requests, raw byte streams for what lasts."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
from docker.tls import TLSConfig

from workspaced_server.drivers.base import ByteStream
from workspaced_server.drivers.config import DockerConfig
from workspaced_server.drivers.docker.program import ProgramStream
from workspaced_server.drivers.streams import SocketStream, TransportStream, connect_unix

_DEFAULT_HOST = "unix:///var/run/docker.sock"
_CONNECT_TIMEOUT = 10.0
_TLS_BUFFER = 1 << 20


class _Client(docker.APIClient):
    """The SDK's client, which believes the configuration alone: requests would let the environment's
    ``REQUESTS_CA_BUNDLE`` replace the engine's authority, and send to it through ``HTTP_PROXY``."""

    def __init__(self, **options: Any) -> None:
        try:
            super().__init__(**options)  # asks the engine for its version
        except BaseException:
            self.close()
            raise

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """What a request is sent with."""
        return {
            "proxies": proxies or {},
            "stream": self.stream if stream is None else stream,
            "verify": self.verify if verify is None else verify,
            "cert": self.cert if cert is None else cert,
        }


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An engine's address: ``scheme`` is unix, tcp or ssh; ``tls`` is the directory of the client's certificate,
    with tcp only.
    """

    scheme: str
    address: str
    host: str = ""
    port: int = 0
    tls: Path | None = None

    @property
    def socket(self) -> Path:
        """The engine's socket, with links followed: they are the operator's."""
        return Path(os.path.realpath(self.address))

    @classmethod
    def find(cls, config: DockerConfig) -> Endpoint:
        """From the configuration, else the environment, else the usual socket. Raises ValueError."""
        address = config.host or os.environ.get("DOCKER_HOST") or _DEFAULT_HOST
        tls = config.tls_directory
        if tls is None and not config.host and os.environ.get("DOCKER_TLS_VERIFY"):
            tls = Path(os.environ.get("DOCKER_CERT_PATH") or Path.home() / ".docker")
        parts = urlsplit(address if "://" in address else f"tcp://{address}")
        match parts.scheme:
            case "unix":
                return cls("unix", address.removeprefix("unix://"))
            case "tcp" | "http" | "https":
                if not parts.hostname:
                    raise ValueError(f"the engine's address has no host: {address}")
                port = parts.port or (2376 if tls else 2375)
                if parts.scheme == "https" and tls is None:
                    raise ValueError("an https engine needs tls_directory (DOCKER_CERT_PATH)")
                return cls("tcp", address, parts.hostname, port, tls)
            case "ssh":
                return cls("ssh", address)
        raise ValueError(f"an engine's address starts with unix://, tcp:// or ssh://, not {address}")

    def client(self, config: DockerConfig, forward: Path | None) -> Any:
        """A client of the SDK; negotiates the version, so it blocks, and raises what the SDK raises.

        ``forward`` is a local socket that leads to an engine behind ssh.
        """
        tls: TLSConfig | None = None
        match self.scheme:
            case "unix":
                base = f"unix://{self.address}"
            case "ssh":
                base = f"unix://{forward}"
            case _:
                base = f"tcp://{_bracket(self.host)}:{self.port}"
                if self.tls is not None:
                    pair = (str(self.tls / "cert.pem"), str(self.tls / "key.pem"))
                    tls = TLSConfig(client_cert=pair, ca_cert=str(self.tls / "ca.pem"), verify=True)
        return _Client(
            base_url=base,
            version="auto",
            timeout=config.request_timeout_seconds,
            tls=tls or False,
            max_pool_size=config.max_threads,
        )

    async def dial(self) -> ByteStream:
        """A new connection to the engine. Raises OSError."""
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            match self.scheme:
                case "unix":
                    return await connect_unix(self.socket)
                case "ssh":
                    parts = urlsplit(self.address)
                    port = ["-p", str(parts.port)] if parts.port else []
                    user = ["-l", parts.username] if parts.username else []
                    return await ProgramStream.start(
                        [
                            "ssh",
                            "-o",
                            "BatchMode=yes",
                            *user,
                            *port,
                            "--",
                            parts.hostname or "",
                            "docker system dial-stdio",
                        ]
                    )
            if self.tls is None:
                return SocketStream(await _connect_tcp(self.host, self.port))
            context = ssl.create_default_context(cafile=str(self.tls / "ca.pem"))
            context.load_cert_chain(self.tls / "cert.pem", self.tls / "key.pem")
            reader, writer = await asyncio.open_connection(self.host, self.port, ssl=context, limit=_TLS_BUFFER)
            return TransportStream(reader, writer)


async def _connect_tcp(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    failure: OSError = OSError(f"no address for {host}")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            failure = error
            continue
        except BaseException:
            sock.close()
            raise
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A dead host is noticed by the pings of the channel; this is for connections without one.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return sock
    raise failure


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host
