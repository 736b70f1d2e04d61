"""Channels to the guest in a container: a Unix socket where the engine shares our file system,
else the streams of an exec.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from pathlib import Path

import structlog

from workspaced_server.drivers import bootstrap
from workspaced_server.drivers.base import ByteStream, DriverError, SandboxGone, SandboxRef
from workspaced_server.drivers.config import DockerConfig
from workspaced_server.drivers.docker.engine import Engine, EngineError
from workspaced_server.drivers.docker.execstream import ExecStream
from workspaced_server.drivers.docker.options import CHANNEL_DIRECTORY
from workspaced_server.drivers.streams import SocketStream, connect_unix
from workspaced_server.guest import bundle

_log = structlog.get_logger(__name__)

_SOCKET = "guest.sock"
_GREETING_TIMEOUT = 20.0
_GUEST_TIMEOUT = 10.0


class GuestConnector:
    """Opens channels, and finds out whether the engine shares this machine's file system.

    ``<state>/<key>`` is mounted into the container. Whatever the container does to it, only a socket in it is
    connected to, never what a link leads to, and the guest behind it still has to prove nothing but take our token.
    Its parent is closed to
    other users of this machine.
    """

    def __init__(self, engine: Engine, config: DockerConfig) -> None:
        self._engine = engine
        self._state = config.state.absolute()
        self._mode = config.socket_channel
        self._shared: bool | None = None  # not known before the first container

    def directory(self, key: str) -> Path:
        """The directory for the socket of one workspace."""
        return self._state / key

    def not_shared(self) -> None:
        """Remember that the engine cannot see our files."""
        self._shared = False

    def is_unknown(self, error: EngineError) -> bool:
        """Whether the engine says that our directory does not exist."""
        return "bind source path does not exist" in error.text and str(self._state) in error.text

    async def prepare(self) -> None:
        """Build what every channel needs, so that the first one does not wait for it."""
        await self._engine.run(bundle.build)

    async def make_directory(self, key: str) -> Path | None:
        """Make the directory to mount; None where the socket is of no use."""
        if self._mode == "never" or self._shared is False or self._engine.endpoint.scheme != "unix":
            return None
        directory = self.directory(key)
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(exist_ok=True)
        directory.chmod(0o777)  # for whichever user the container runs as
        return directory

    async def open(self, container: str, ref: SandboxRef, lock: asyncio.Lock) -> ByteStream:
        """A new channel; see the driver."""
        socket = self.directory(ref.key) / _SOCKET
        mounted = bool(ref.data.get("channel"))
        usable = mounted and self._shared is not False and self._mode == "auto"
        if usable and (stream := await _try(socket)):
            return stream
        async with lock:
            if usable and (stream := await _try(socket)):
                return stream
            return await self._bootstrap(container, ref, mounted, usable)

    async def _bootstrap(self, container: str, ref: SandboxRef, mounted: bool, usable: bool) -> ByteStream:
        built = await self._engine.run(bundle.build)
        mark = f"mark-{secrets.token_hex(8)}"
        argv = bootstrap.command(built, ref.workdir, mark=f"{CHANNEL_DIRECTORY}/{mark}" if usable else "")
        stream = await self._execute(container, argv, str(ref.data.get("user", "")))
        try:
            site = await self._greet(container, stream)
            if not site.writable and ref.data.get("owned"):
                await self._give_workdir(container, ref.workdir, site)
            socket = f"{CHANNEL_DIRECTORY if mounted else site.directory}/{_SOCKET}"
            arguments = ["--socket", socket, "--state", site.directory, "--workdir", ref.workdir]
            await bootstrap.hand_over(stream, site, built, ref.token, state=site.directory, arguments=arguments)
            if usable and self._sees(ref.key, mark) and (direct := await self._await_socket(stream, ref.key)):
                await stream.aclose()
                return direct
        except OSError as error:
            await stream.aclose()
            raise SandboxGone(f"the connection to the container broke: {error.strerror}") from error
        except BaseException:
            await stream.aclose()
            raise
        return stream

    async def _execute(self, container: str, argv: list[str], user: str) -> ExecStream:
        try:
            _, stream = await self._engine.execute(container, argv, user=user)
        except EngineError as error:
            if error.status == 404:
                raise SandboxGone("its container was removed") from error
            if error.status == 409:
                raise await self._why_stopped(container) from error
            raise
        return stream

    async def _why_stopped(self, container: str) -> DriverError:
        found = await self._engine.inspect_container(container)
        state = (found or {}).get("State", {})
        # What the engine's init says when it cannot execute its program, which is /bin/sh.
        if state.get("Status") == "exited" and state.get("ExitCode") in (126, 127):
            return no_shell()
        return SandboxGone("its container does not run")

    async def _greet(self, container: str, stream: ExecStream) -> bootstrap.Site:
        try:
            async with asyncio.timeout(_GREETING_TIMEOUT):
                return await bootstrap.greet(stream)
        except TimeoutError as error:
            raise DriverError(
                "GUEST_START_FAILED", "python3 in the container does not start", retryable=True
            ) from error
        except bootstrap.BootstrapError as error:
            _log.warning("bootstrap failed", error=str(error), complaint=stream.complaint)
            found = await self._engine.inspect_container(container)
            if found is None or not found["State"]["Running"]:
                raise await self._why_stopped(container) from error
            text = f"the guest could not be put into the container: {stream.complaint or error}"
            raise DriverError("GUEST_START_FAILED", text[:500], retryable=True) from error

    async def _give_workdir(self, container: str, workdir: str, site: bootstrap.Site) -> None:
        """The engine makes the workdir as root; it belongs to the user of the workspace."""
        script = 'mkdir -p -- "$1" && chown "$0" -- "$1"'
        stream = await self._execute(container, ["/bin/sh", "-c", script, f"{site.uid}:{site.gid}", workdir], "0:0")
        try:
            while await stream.receive():
                pass
        finally:
            await stream.aclose()
        if stream.complaint:
            _log.warning("the workdir cannot be given to the user", container=container, complaint=stream.complaint)

    def _sees(self, key: str, mark: str) -> bool:
        try:
            (self.directory(key) / mark).unlink()
        except FileNotFoundError:
            self._shared = False
            return False
        self._shared = True
        return True

    async def _await_socket(self, stream: ExecStream, key: str) -> SocketStream | None:
        """Connect as soon as the guest listens; None when it cannot be reached so,
        as in a container with a kernel of its own.
        """
        socket = self.directory(key) / _SOCKET
        # The bridge is silent until it is spoken to, so all that can come is its end.
        ended = asyncio.ensure_future(stream.receive(1))
        try:
            async with asyncio.timeout(_GUEST_TIMEOUT):
                while not ended.done():
                    if direct := await _try(socket):
                        return direct
                    await asyncio.wait({ended}, timeout=0.003)
        except TimeoutError:
            _log.info("the guest's socket cannot be reached from here; using the exec", key=key)
            return None
        finally:
            ended.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({ended})
        _log.warning("the guest ended at once", key=key, complaint=stream.complaint)
        raise DriverError("GUEST_START_FAILED", f"the guest did not start: {stream.complaint[-300:]}", retryable=True)


def no_shell() -> DriverError:
    """The image cannot be used."""
    return DriverError(
        "UNSUPPORTED_BY_BACKEND", "the image has no /bin/sh, which a workspace needs", field="spec.image"
    )


async def _try(path: Path) -> SocketStream | None:
    try:
        return await connect_unix(path)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        return None
    except PermissionError:
        # The guest runs as another user than the server and does not let it in.
        return None
    except OSError as error:
        _log.warning("the guest's socket", error=os.strerror(error.errno or 0))
        return None
