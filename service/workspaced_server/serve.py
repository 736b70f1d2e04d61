"""One server process, from its configuration to its end."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import structlog

from workspaced_server import logging as server_logging
from workspaced_server.config import Config, ConfigError
from workspaced_server.drivers.config import DriversConfig
from workspaced_server.heap import keep_freed_memory
from workspaced_server.workspaces.expiry import Housekeeping
from workspaced_server.workspaces.manager import Workspaces
from workspaced_server.workspaces.registry import Registry, RegistryUnavailable
from workspaced_server.workspaces.sweep import Sweep
from workspaced_server.workspaces.tasks import Tasks
from workspaced_server.workspaces.vault import Vault

_log = structlog.stdlib.get_logger("workspaced.server")


def run(config: Config, *, ready: Callable[[int], None] | None = None) -> None:
    """Serve on a loop of this thread, which must be the main one, until SIGTERM or SIGINT. Raises ConfigError."""
    try:
        import uvloop

        factory: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
    except ImportError:
        factory = None
    # What its core writes to stderr besides is no JSON; what matters of it is raised, too.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    keep_freed_memory()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(config, ready=ready))


def check(config: Config) -> None:
    """Raise ConfigError for whatever can be found wrong without listening: tokens, certificates, the registry's URL."""
    from workspaced_server.api.auth import Authenticator
    from workspaced_server.api.tls import credentials

    Authenticator(config.auth)
    if config.tls.enabled:
        credentials(config.tls)
    if config.database_url:
        from sqlalchemy import create_engine
        from sqlalchemy.exc import SQLAlchemyError

        try:
            create_engine(config.database_url).dispose()
        except (SQLAlchemyError, ImportError) as error:
            raise ConfigError(f"database_url: {error}") from error


async def serve(
    config: Config, *, ready: Callable[[int], None] | None = None, stop: asyncio.Event | None = None
) -> None:
    """Serve until SIGTERM or SIGINT, or until ``stop`` is set; then drain. A second signal ends it at once.

    ``ready`` is called with the port when calls are accepted. With ``stop`` signals and logging are left to the caller.
    Workspaces and what runs in them go on after the end. Raises ConfigError when something that is configured cannot
    be had.
    """
    if stop is None:
        server_logging.configure(config.log)
    async with AsyncExitStack() as stack:
        lock = _prepare_state(config.state_dir)
        stack.callback(lock.close)
        registry = await _open_registry(config)
        stack.push_async_callback(registry.aclose)
        installation = await registry.installation_id()
        _check_installation(config.state_dir, installation)

        from workspaced_server.drivers import registry as driver_registry

        drivers = driver_registry.load(DriversConfig(installation, local=config.local, docker=config.docker))
        for driver in drivers.values():
            stack.push_async_callback(driver.aclose)
        settings = config.workspaces
        if settings.default_backend not in drivers and drivers:
            settings = replace(settings, default_backend=next(iter(drivers)))
        workspaces = Workspaces(registry, drivers, settings)

        from workspaced_server.api.server import ApiServer

        server = ApiServer(config, workspaces)
        stack.push_async_callback(server.abort)
        await workspaces.start()
        stack.push_async_callback(workspaces.aclose)
        background = Tasks()
        stack.push_async_callback(background.aclose)
        port = await server.start()
        background.start(Housekeeping(workspaces).run(), "housekeeping")
        background.start(Sweep(workspaces).run(), "sweep")
        background.start(workspaces.pools.run(), "pools")
        _log.info("serving", address=config.listen, port=port, backends=sorted(drivers), tls=config.tls.enabled)
        if config.insecure:
            _log.warning("insecure: callers are not authenticated, or what they send is not encrypted")
        asked, again = (stop, asyncio.Event()) if stop is not None else _handle_signals(stack)
        if ready is not None:
            ready(port)
        await asked.wait()
        _log.info("draining", grace_seconds=config.drain_seconds)
        await _drain(server.stop(config.drain_seconds), again)
        await background.aclose()
        await _drain(workspaces.aclose(config.drain_seconds), again)
        _log.info("stopped")


async def _drain(work: Coroutine[Any, Any, None], again: asyncio.Event) -> None:
    """Run ``work`` to its end, or drop it when the second signal comes."""
    task = asyncio.ensure_future(work)
    hurry = asyncio.ensure_future(again.wait())
    await asyncio.wait([task, hurry], return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    if task.done():
        task.result()
    else:
        task.cancel()
        await asyncio.wait([task])


def _handle_signals(stack: AsyncExitStack) -> tuple[asyncio.Event, asyncio.Event]:
    asked, again = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        (again if asked.is_set() else asked).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
        stack.callback(loop.remove_signal_handler, number)
    return asked, again


def _prepare_state(directory: Path) -> TextIO:
    """Make the state directory private and lock it. Raises ConfigError, also when another server uses it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # It holds tokens of guests and the environment of workspaces.
        directory.chmod(0o700)
        lock = (directory / "lock").open("a")
    except OSError as error:
        raise ConfigError(f"state_dir {directory} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise ConfigError(f"state_dir {directory} is in use by another server") from None
    return lock


async def _open_registry(config: Config) -> Registry:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        vault = Vault(config.mcp.key_file or config.state_dir / "mcp.key")
        return await Registry.open(config.database_url or config.registry_file, vault)
    except RegistryUnavailable as error:
        raise ConfigError(f"the registry cannot be opened: {error.detail}") from error
    except (SQLAlchemyError, OSError, ImportError) as error:
        raise ConfigError(f"the registry cannot be opened: {error}") from error


def _check_installation(directory: Path, installation: str) -> None:
    """Refuse a state directory whose workspaces belong to another registry: the sweep would take them for leftovers."""
    path = directory / "installation"
    if not path.exists():
        temporary = directory / "installation.new"
        temporary.write_text(installation + "\n")
        temporary.replace(path)
    elif path.read_text().strip() != installation:
        raise ConfigError(
            f"the workspaces in {directory} belong to another registry than the configured one; restore that registry, "
            f"choose another state_dir, or remove {path} to give them up"
        )
