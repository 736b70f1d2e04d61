"""TCP connections for an HTTP client that start inside the workspace; TLS is spoken here, at this end of the tunnel."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import httpcore2
from anyio.streams.tls import TLSAttribute, TLSStream

from workspaced_server.errors import WorkspacedError
from workspaced_server.guest.channel import ChannelLost
from workspaced_server.guest.stream import NOTHING

if TYPE_CHECKING:
    from workspaced_server.guest.channel import GuestChannel
    from workspaced_server.guest.stream import GuestStream

_DIAL_SECONDS = 120.0


class Tunnel(anyio.abc.ByteStream):
    """A `port.dial` stream as a byte stream."""

    def __init__(self, stream: GuestStream) -> None:
        self._stream = stream
        self._rest = b""
        self._ended = False

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Up to ``max_bytes`` bytes. Raises EndOfStream, BrokenResourceError."""
        while not self._rest and not self._ended:
            try:
                self._take(await self._stream.receive())
            except (OSError, WorkspacedError) as error:
                raise anyio.BrokenResourceError(str(error)) from error
        if not self._rest:
            raise anyio.EndOfStream
        data, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return data

    async def send(self, item: bytes) -> None:
        """Send all of it. Raises BrokenResourceError."""
        try:
            await self._stream.send(item)
        except OSError as error:
            raise anyio.BrokenResourceError(str(error)) from error

    async def send_eof(self) -> None:
        """Half close."""
        self._stream.end()

    async def aclose(self) -> None:
        """Close both directions."""
        self._stream.cancel()

    @property
    def readable(self) -> bool:
        """Whether something waits to be read, the end included: an idle connection where it does is of no use."""
        if self._rest or self._ended:
            return True
        try:
            item = self._stream.receive_nowait()
        except (OSError, WorkspacedError):
            return True
        if item is NOTHING:
            return False
        self._take(item)
        return True

    def _take(self, item: object) -> None:
        if isinstance(item, bytes) and item:
            self._rest = item
        else:
            self._ended = True


class TunnelStream(httpcore2.AsyncNetworkStream):
    """A tunnel as the HTTP client wants it. ``stream`` is the tunnel, or TLS over it."""

    def __init__(self, tunnel: Tunnel, stream: anyio.abc.ByteStream) -> None:
        self._tunnel = tunnel
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Up to ``max_bytes`` bytes; empty at the end."""
        try:
            with anyio.fail_after(timeout):
                return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except TimeoutError as error:
            raise httpcore2.ReadTimeout("the server did not answer in time") from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError) as error:
            raise httpcore2.ReadError(f"the connection broke: {error}") from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it."""
        if not buffer:
            return
        try:
            with anyio.fail_after(timeout):
                await self._stream.send(buffer)
        except TimeoutError as error:
            raise httpcore2.WriteTimeout("the server did not read in time") from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError) as error:
            raise httpcore2.WriteError(f"the connection broke: {error}") from error

    async def aclose(self) -> None:
        """Close it."""
        # Without TLS's good-bye, which nobody needs and which would have to be sent.
        await self._tunnel.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """Speak TLS from here on."""
        try:
            with anyio.fail_after(timeout):
                wrapped = await TLSStream.wrap(
                    self._stream, hostname=server_hostname, ssl_context=ssl_context, standard_compatible=False
                )
        except TimeoutError as error:
            await self.aclose()
            raise httpcore2.ConnectTimeout("TLS was not agreed on in time") from error
        except ssl.SSLCertVerificationError as error:
            await self.aclose()
            raise httpcore2.ConnectError(f"its certificate is not trusted: {error.verify_message}") from error
        except (ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            await self.aclose()
            raise httpcore2.ConnectError("TLS could not be agreed on") from error
        except BaseException:
            self._tunnel._stream.cancel()
            raise
        return TunnelStream(self._tunnel, wrapped)

    def get_extra_info(self, info: str) -> Any:
        """What the connection pool asks."""
        if info == "ssl_object":
            return self._stream.extra(TLSAttribute.ssl_object, None)  # noqa: S610 - not a database
        return self._tunnel.readable if info == "is_readable" else None


class WorkspaceNetwork(httpcore2.AsyncNetworkBackend):
    """Dials by the guest of one workspace; names are resolved there."""

    def __init__(self, guest: GuestChannel) -> None:
        self._guest = guest

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to a port that the workspace can reach."""
        params: dict[str, object] = {"host": host, "port": port, "timeout": timeout or _DIAL_SECONDS}
        stream = self._guest.open("port.dial", params)
        try:
            await stream.__aenter__()
            connected = await stream.receive()
        except ChannelLost as lost:
            raise httpcore2.ConnectError("the connection to the workspace broke") from lost
        except WorkspacedError as error:
            raise httpcore2.ConnectError(error.message) from error
        except BaseException:
            stream.cancel()
            raise
        if not isinstance(connected, dict) or "connected" not in connected:
            stream.cancel()
            raise httpcore2.ConnectError("the workspace's guest gave an answer that makes no sense")
        tunnel = Tunnel(stream)
        return TunnelStream(tunnel, tunnel)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """Never asked for: URLs name hosts."""
        raise httpcore2.ConnectError("Unix sockets are not dialled")

    async def sleep(self, seconds: float) -> None:
        """Wait between attempts."""
        await anyio.sleep(seconds)
