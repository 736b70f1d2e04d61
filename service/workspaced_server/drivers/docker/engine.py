"""Calls to a Docker engine through its SDK, in threads of their own."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import requests
from docker.errors import APIError, DockerException

from workspaced_server.drivers.base import DriverError
from workspaced_server.drivers.config import DockerConfig
from workspaced_server.drivers.docker.endpoint import Endpoint
from workspaced_server.drivers.docker.execstream import ExecRefusedError, ExecStream, start_exec
from workspaced_server.drivers.docker.forward import Forward
from workspaced_server.drivers.uninterrupted import uninterrupted


class EngineError(DriverError):
    """The engine answered with an HTTP error; ``status`` is its number, ``text`` what it said."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__("PROVIDER_UNAVAILABLE", f"the Docker engine refused: {text}", retryable=status >= 500)
        self.status = status
        self.text = text


class Engine:
    """One engine. Connections are kept and shared; all methods may be called at the same time.

    A call that is cancelled still ends in its thread first, so that the caller knows what there is to undo.
    """

    def __init__(self, config: DockerConfig) -> None:
        self._config = config
        self._limiter = anyio.CapacityLimiter(config.max_threads)
        self._client: Any = None
        self._connecting = asyncio.Lock()
        self._forward: Forward | None = None
        self._endpoint: Endpoint | None = None

    @property
    def endpoint(self) -> Endpoint:
        """Where it is. Raises DriverError BACKEND_UNAVAILABLE for an address that makes no sense."""
        if self._endpoint is None:
            try:
                self._endpoint = Endpoint.find(self._config)
            except ValueError as error:
                raise DriverError("BACKEND_UNAVAILABLE", f"the Docker backend is not configured: {error}")
        return self._endpoint

    async def call(self, function: Callable[[Any], Any]) -> Any:
        """Run ``function`` with the SDK's low-level client in a thread. Raises EngineError and DriverError."""
        client = await self._connect()
        return await self._in_thread(function, client)

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run a function that blocks, on files for example, within the driver's limit of threads."""
        return await uninterrupted(anyio.to_thread.run_sync(function, limiter=self._limiter))

    async def execute(
        self, container: str, argv: list[str], *, user: str = "", environment: dict[str, str] | None = None
    ) -> tuple[str, ExecStream]:
        """Start a program in a container; returns the exec's id and its streams. Raises EngineError and DriverError."""
        client = await self._connect()
        created = await self.call(
            lambda api: api.exec_create(container, argv, stdin=True, tty=False, user=user, environment=environment)
        )
        raw = await self._dial()
        try:
            return created["Id"], await start_exec(raw, client.api_version, created["Id"])
        except ExecRefusedError as error:
            raise EngineError(error.status, error.strerror or "")
        except OSError as error:
            raise _unreachable(error)

    async def remove_container(self, name: str) -> None:
        """Kill and remove a container and its unnamed volumes; returns when it is gone. Idempotent.

        Raises EngineError and DriverError.
        """
        try:
            await self.call(lambda api: api.remove_container(name, v=True, force=True))
        except EngineError as error:
            if error.status == 409 and "in progress" in error.text:
                await self._removed(name)
            elif error.status != 404:
                raise

    async def inspect_container(self, name: str) -> dict[str, Any] | None:
        """What the engine says of a container; None when there is none. Raises EngineError and DriverError."""
        try:
            found: dict[str, Any] = await self.call(lambda api: api.inspect_container(name))
        except EngineError as error:
            if error.status == 404:
                return None
            raise
        return found

    async def _removed(self, name: str) -> None:
        for delay in (0.05, 0.1, 0.2, 0.5, 1, 2, 5):
            if await self.inspect_container(name) is None:
                return
            await asyncio.sleep(delay)
        raise DriverError("PROVIDER_UNAVAILABLE", "the engine does not finish removing the container", retryable=True)

    async def close(self) -> None:
        """Close connections that are kept."""
        if self._client is not None:
            client, self._client = self._client, None
            await self.run(client.close)
        if self._forward is not None:
            forward, self._forward = self._forward, None
            await forward.aclose()

    async def _dial(self) -> Any:
        try:
            return await self.endpoint.dial()
        except OSError as error:
            raise _unreachable(error)

    async def _connect(self) -> Any:
        if self._client is None:
            async with self._connecting:
                if self._client is None:
                    endpoint = self.endpoint
                    # Tells sooner and better than the SDK that nobody is there.
                    await (await self._dial()).aclose()
                    if endpoint.scheme == "ssh" and self._forward is None:
                        self._forward = Forward(endpoint.dial)
                        await self._forward.start()
                    socket = self._forward.socket if self._forward else None
                    self._client = await self._in_thread(lambda _: endpoint.client(self._config, socket), None)
        return self._client

    async def _in_thread(self, function: Callable[[Any], Any], client: Any) -> Any:
        def call() -> Any:
            try:
                return function(client)
            except APIError as error:
                status = error.response.status_code if error.response is not None else 500
                raise EngineError(status, str(error.explanation or error)) from error
            except requests.exceptions.Timeout as error:
                raise DriverError(
                    "PROVIDER_UNAVAILABLE", "the Docker engine did not answer in time", retryable=True
                ) from error
            except (requests.exceptions.RequestException, DockerException, OSError) as error:
                raise _unreachable(error) from error

        return await self.run(call)


def _unreachable(error: BaseException) -> DriverError:
    cause: BaseException | None = error
    why = "it does not answer"
    while cause is not None:
        if isinstance(cause, FileNotFoundError | ConnectionRefusedError):
            why = "nothing listens at its address"
        elif isinstance(cause, PermissionError) or getattr(cause, "errno", None) == errno.EACCES:
            why = "the server has no permission to use its socket"
        elif isinstance(cause, ConnectionResetError):
            why = "it ended the connection (with TLS: it may not know the client's certificate)"
        elif isinstance(cause, ssl.SSLError):
            why = f"TLS failed: {getattr(cause, 'verify_message', '') or cause.reason or cause}"
        cause = cause.__cause__ or cause.__context__
    return DriverError("BACKEND_UNAVAILABLE", f"the Docker engine cannot be reached: {why}", retryable=True)
