"""The Docker backend: a workspace is a container, found again by its name and labels."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import Any

import structlog

from workspaced_server.drivers.base import (
    Availability,
    ByteStream,
    Capabilities,
    DriverError,
    Phase,
    Progress,
    SandboxRef,
    SandboxSpec,
    SandboxState,
    SandboxStatus,
)
from workspaced_server.drivers.config import DockerConfig
from workspaced_server.drivers.docker.connect import GuestConnector, no_shell
from workspaced_server.drivers.docker.engine import Engine, EngineError
from workspaced_server.drivers.docker.images import Image, Images
from workspaced_server.drivers.docker.options import (
    CHANNEL_LABEL,
    INSTALLATION_LABEL,
    KEY_LABEL,
    USER_LABEL,
    WORKDIR_LABEL,
    Plan,
    names,
    plan,
)
from workspaced_server.drivers.trees import remove_tree
from workspaced_server.drivers.uninterrupted import uninterrupted

_log = structlog.get_logger(__name__)

# Storage drivers that can limit a container's disk; overlay2 can on some file systems, which only the attempt shows.
_DISK_LIMITS = frozenset({"btrfs", "zfs", "windowsfilter"})


class DockerDriver:
    """Containers of one engine,
    which may be on another machine: nothing relies on a shared file system or on addresses.
    """

    name = "docker"

    def __init__(self, config: DockerConfig, installation: str) -> None:
        self._config = config
        self._installation = installation
        self._engine = Engine(config)
        self._images = Images(self._engine, installation)
        self._connector = GuestConnector(self._engine, config)
        self._info: Mapping[str, Any] | None = None
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def probe(self) -> Availability:
        """Whether the engine answers now. Never raises."""
        try:
            info = self._info = await self._engine.call(lambda api: api.info())
        except DriverError as error:
            return Availability(False, error.message)
        if info.get("OSType") != "linux":
            return Availability(False, f"the engine runs {info.get('OSType')} containers; linux is needed")
        await self._connector.prepare()
        return Availability(
            True,
            version=str(info.get("ServerVersion", "")),
            capabilities=Capabilities(
                isolation=True,
                persistence=True,
                limits_cpu=bool(info.get("CpuCfsQuota")),
                limits_memory=bool(info.get("MemoryLimit")),
                limits_disk=info.get("Driver") in _DISK_LIMITS,
                limits_pids=bool(info.get("PidsLimit")),
                gpus="nvidia" in (info.get("Runtimes") or {}),
                network_none=True,
                images=True,
            ),
        )

    async def provision(self, spec: SandboxSpec, report: Progress) -> SandboxRef:
        """Create the container, or start the one there is: it is never replaced while it can run, so processes and
        files stay.

        On an error or cancellation what this call made is removed: the container, a new volume. Pulled images stay.
        """
        if self._info is None:
            self._info = await self._engine.call(lambda api: api.info())
        name = names(spec.key, self._installation)
        found = await self._engine.inspect_container(name)
        if found is not None and found["State"]["Status"] in ("dead", "removing"):
            await self._engine.remove_container(name)
            found = None
        if found is not None:
            report(Phase.STARTING)
            await self._resume(found)
            return self._ref(spec, found["Config"]["Labels"])
        return await self._create(spec, name, report)

    async def open_channel(self, ref: SandboxRef) -> ByteStream:
        """Connect to the guest by its socket where that is possible, else by an exec; start it if it does not run."""
        lock = self._locks.setdefault(ref.key, asyncio.Lock())
        return await self._connector.open(names(ref.key, self._installation), ref, lock)

    async def status(self, ref: SandboxRef) -> SandboxStatus:
        """Ask the engine."""
        found = await self._engine.inspect_container(names(ref.key, self._installation))
        if found is None:
            if ref.persistent:
                return SandboxStatus(SandboxState.SUSPENDED)
            return SandboxStatus(SandboxState.GONE, "its container was removed")
        state = str(found["State"]["Status"])
        if state in ("running", "restarting"):
            return SandboxStatus(SandboxState.RUNNING)
        if state in ("dead", "removing"):
            return SandboxStatus(SandboxState.GONE, f"its container is {state}")
        detail = f"its container is {state}"
        if found["State"].get("OOMKilled"):
            detail += " after it ran out of memory"
        return SandboxStatus(SandboxState.SUSPENDED, detail)

    async def renew(self, ref: SandboxRef, until: datetime) -> None:
        """Nothing to do: a container has no time-to-live."""

    async def suspend(self, ref: SandboxRef) -> None:
        """Remove the container; the files stay when they are in ``host_workdir`` or in a volume. Idempotent."""
        await self._engine.remove_container(names(ref.key, self._installation))
        await self._remove_channel(ref.key)

    async def destroy(self, ref: SandboxRef) -> None:
        """Remove the container and the managed volume; ``host_workdir`` is the caller's and stays. Idempotent."""
        name = names(ref.key, self._installation)
        await self._engine.remove_container(name)
        await self._remove_volume(name)
        await self._remove_channel(ref.key)

    async def list(self) -> AsyncIterator[SandboxRef]:
        """Containers, and volumes of suspended workspaces, with this installation's label."""
        filters = {"label": f"{INSTALLATION_LABEL}={self._installation}"}
        containers = await self._engine.call(lambda api: api.containers(all=True, filters=filters))
        volumes = await self._engine.call(lambda api: api.volumes(filters=filters))
        kept, running = _by_key(volumes["Volumes"] or ()), _by_key(containers)
        for key, labels in {**kept, **running}.items():
            data = _data(labels, owned=True)
            yield SandboxRef(key, "", labels.get(WORKDIR_LABEL, ""), data, persistent=key in kept)

    async def aclose(self) -> None:
        """Close connections. Containers go on."""
        await self._engine.close()

    def _ref(self, spec: SandboxSpec, labels: Mapping[str, str]) -> SandboxRef:
        named = bool(spec.options.get("host_workdir"))
        data = _data(labels, owned=not named)
        return SandboxRef(spec.key, spec.token, labels[WORKDIR_LABEL], data, persistent=named or bool(spec.persistent))

    async def _resume(self, found: Mapping[str, Any]) -> None:
        identity, state = found["Id"], found["State"]["Status"]
        if state == "paused":
            await self._engine.call(lambda api: api.unpause(identity))
        elif state in ("exited", "created"):
            await self._engine.call(lambda api: api.start(identity))

    async def _create(self, spec: SandboxSpec, name: str, report: Progress) -> SandboxRef:
        channel = await self._connector.make_directory(spec.key)
        new_volume = False
        try:
            source = str(channel or "")
            self._plan(spec, source)  # refuses what it can before anything is pulled
            image = await self._images.find(spec.image or self._config.default_image, report)
            if spec.install_python:
                image = await self._images.with_python(image, report)
            wanted = self._plan(spec, source, image.user)
            new_volume = bool(wanted.volume) and not await self._volume_exists(name)
            report(Phase.CREATING)
            wanted = await self._create_container(spec, wanted, image, name)
            report(Phase.STARTING)
            await self._start(name)
        except BaseException:
            await uninterrupted(self._undo(spec.key, name, new_volume))
            raise
        return self._ref(spec, wanted.config["labels"])

    def _plan(self, spec: SandboxSpec, channel: str, image_user: str = "") -> Plan:
        assert self._info is not None
        return plan(
            spec,
            self._config,
            self._installation,
            self._info,
            same_machine=self._engine.endpoint.scheme == "unix",
            channel_source=channel,
            image_user=image_user,
        )

    async def _create_container(self, spec: SandboxSpec, wanted: Plan, image: Image, name: str) -> Plan:
        def create(api: Any) -> None:
            host = api.create_host_config(**wanted.host)
            api.create_container(image.name, name=name, host_config=host, **wanted.config)

        try:
            await self._engine.call(create)
        except EngineError as error:
            if not self._connector.is_unknown(error) or CHANNEL_LABEL not in wanted.config["labels"]:
                raise _creation_failed(error)
            # The engine runs elsewhere, although its socket is here.
            self._connector.not_shared()
            wanted = self._plan(spec, "", image.user)
            return await self._create_container(spec, wanted, image, name)
        return wanted

    async def _start(self, name: str) -> None:
        try:
            await self._engine.call(lambda api: api.start(name))
        except EngineError as error:
            if "/bin/sh" in error.text or "docker-init" in error.text:
                raise no_shell() from error
            raise _creation_failed(error)

    async def _undo(self, key: str, name: str, new_volume: bool) -> None:
        # The error that led here is the one to report.
        for step in (
            self._engine.remove_container(name),
            self._remove_volume(name) if new_volume else None,
            self._remove_channel(key),
        ):
            if step is not None:
                try:
                    await step
                except DriverError as error:
                    _log.warning("undoing a failed provisioning", container=name, error=error.message)

    async def _volume_exists(self, name: str) -> bool:
        try:
            await self._engine.call(lambda api: api.inspect_volume(name))
        except EngineError as error:
            if error.status == 404:
                return False
            raise
        return True

    async def _remove_volume(self, name: str) -> None:
        try:
            await self._engine.call(lambda api: api.remove_volume(name))
        except EngineError as error:
            if error.status != 404:
                raise

    async def _remove_channel(self, key: str) -> None:
        await uninterrupted(remove_tree(self._connector.directory(key)))


def _data(labels: Mapping[str, str], *, owned: bool) -> dict[str, Any]:
    return {"channel": CHANNEL_LABEL in labels, "user": labels.get(USER_LABEL, ""), "owned": owned}


def _by_key(found: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, str]]:
    labels = [entry.get("Labels") or {} for entry in found]
    return {each[KEY_LABEL]: each for each in labels if KEY_LABEL in each}


def _creation_failed(error: EngineError) -> DriverError:
    """What the engine said of a container that it would not create, as an error that names the field."""
    text = error.text
    if "storage-opt" in text or "quota" in text.lower():
        why = "the engine's storage driver cannot limit disk space"
        return DriverError(
            "UNSUPPORTED_BY_BACKEND",
            f"spec.resources.disk_bytes: {why} ({text[:200]})",
            field="spec.resources.disk_bytes",
            backend="docker",
        )
    fields = {
        "memory limit": "spec.resources.memory_bytes",
        "CPUs": "spec.resources.cpu_millis",
        "runtime": "spec.docker.runtime",
        "network": "spec.docker.network",
        "unable to find user": "spec.user",
        "bind source path": "spec.docker.mounts",
        "capability": "spec.docker.cap_add",
        "invalid reference format": "spec.image",
    }
    for word, field in fields.items():
        if word.lower() in text.lower():
            return DriverError("ARGUMENT_INVALID", f"{field}: the engine refused it: {text[:300]}", field=field)
    return error
