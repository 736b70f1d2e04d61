"""A workspace's spec as the engine's options for a container; refuses what it cannot or must not do."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from docker.types import DeviceRequest, Mount

from workspaced_server.drivers.base import DriverError, SandboxSpec
from workspaced_server.drivers.config import DockerConfig
from workspaced_server.drivers.leftovers import MARK

DEFAULT_WORKDIR = "/workspace"
CHANNEL_DIRECTORY = "/run/workspaced-channel"

INSTALLATION_LABEL = "workspaced.installation"
KEY_LABEL = "workspaced.key"
WORKDIR_LABEL = "workspaced.workdir"
CHANNEL_LABEL = "workspaced.channel"
USER_LABEL = "workspaced.user"
# What the server tells of a workspace, for people.
_OWN_LABELS = frozenset({"workspaced.workspace_id", "workspaced.owner"})

# What root needs to install packages (apt, pip, npm), change owners and users, and signal processes of other users.
# Not here of what Docker grants: AUDIT_WRITE, MKNOD, NET_RAW, SETFCAP, SETPCAP, SYS_CHROOT.
BASE_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID")

# Needs nothing but a shell, costs nothing, and ends at once when the container is stopped.
IDLE = ["/bin/sh", "-c", 'trap "exit 0" TERM INT; while :; do sleep 86400 & wait $!; done']

_SYSTEM = ("/dev", "/proc", "/sys")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to create.

    ``config`` and ``host`` are keyword arguments of the SDK's ``create_container`` and ``create_host_config``.
    """

    config: Mapping[str, Any]
    host: Mapping[str, Any]
    workdir: str
    persistent: bool
    volume: str = ""  # the managed volume that holds the workdir, if one does


def names(key: str, installation: str) -> str:
    """The name of the container and of the managed volume."""
    return f"workspaced-{key[:16]}-{installation[:8]}"


def plan(
    spec: SandboxSpec,
    config: DockerConfig,
    installation: str,
    info: Mapping[str, Any],
    *,
    same_machine: bool,
    channel_source: str = "",
    image_user: str = "",
) -> Plan:
    """Raises DriverError ARGUMENT_INVALID, OPTION_NOT_ALLOWED or UNSUPPORTED_BY_BACKEND, with the field in the
    metadata.

    ``info`` is the engine's. ``same_machine`` says that the engine's paths may be looked at here, ``channel_source``
    is the directory for the guest's socket, if there is one.
    """
    options = spec.options
    workdir = _workdir(spec.workdir)
    host_workdir = _source(options.get("host_workdir", ""), "spec.docker.host_workdir", config, same_machine)
    if host_workdir and spec.persistent is False:
        text = "spec.docker.host_workdir outlives the container, so the workspace cannot be ephemeral"
        raise DriverError("ARGUMENT_INVALID", text, field="spec.persistence")
    read_only = bool(options.get("read_only_root", False))
    volume = names(spec.key, installation) if spec.persistent and not host_workdir else ""
    labels = {
        **{_label(name): _printable(value) for name, value in spec.labels.items()},
        INSTALLATION_LABEL: installation,
        KEY_LABEL: spec.key,
        WORKDIR_LABEL: workdir,
        USER_LABEL: spec.user or image_user,
    }
    mounts = _mounts(options.get("mounts", ()), workdir, config, same_machine)
    if volume or (read_only and not host_workdir):
        # Without a name the engine makes one that goes with the container.
        own = {INSTALLATION_LABEL: installation, KEY_LABEL: spec.key, WORKDIR_LABEL: workdir} if volume else None
        mounts.append(Mount(workdir, volume or None, type="volume", labels=own))
    if channel_source:
        labels[CHANNEL_LABEL] = "1"
        mounts.append(Mount(CHANNEL_DIRECTORY, channel_source, type="bind"))
    host: dict[str, Any] = {
        "init": True,
        "mounts": mounts,
        "binds": [f"{host_workdir}:{workdir}:rw"] if host_workdir else None,
        "network_mode": _network(spec, config),
        "security_opt": ["no-new-privileges"],
        "read_only": read_only,
        **_limits(spec, info, outside=bool(volume or host_workdir)),
        **_capabilities(options, config),
    }
    if read_only:
        host["tmpfs"] = {"/tmp": "rw,exec,nosuid,nodev,mode=1777", "/run": "rw,nosuid,nodev,mode=755"}  # noqa: S108
    if options.get("runtime"):
        host["runtime"] = _runtime(options["runtime"], info)
    return Plan(
        config={
            "entrypoint": IDLE[:1],
            "command": IDLE[1:],
            "working_dir": workdir,
            "environment": {**spec.env, MARK: spec.key},
            # The guest is started as the workspace's user; the idle command is root, so that a root's exec has the
            # rights to give the workdir to that user.
            "user": "0:0",
            "labels": labels,
            "hostname": f"workspace-{spec.key[:12]}",
        },
        host=host,
        workdir=workdir,
        persistent=bool(volume or host_workdir),
        volume=volume,
    )


def _label(name: str) -> str:
    # Tools such as compose give a meaning to labels; a caller's may not be mistaken for theirs.
    return name if name in _OWN_LABELS else f"workspaced.label.{name}"


def _printable(value: str) -> str:
    # Terminals show labels; a line break or an escape sequence would forge what `docker ps` prints.
    return "".join(character if character.isprintable() else "\ufffd" for character in value)


def _limits(spec: SandboxSpec, info: Mapping[str, Any], *, outside: bool) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if spec.cpu_millis:
        _need(info, "CpuCfsQuota", "spec.resources.cpu_millis", "the engine cannot limit CPU time")
        limits["nano_cpus"] = spec.cpu_millis * 1_000_000
    if spec.memory_bytes:
        _need(info, "MemoryLimit", "spec.resources.memory_bytes", "the engine cannot limit memory")
        limits["mem_limit"] = spec.memory_bytes
        if info.get("SwapLimit"):
            limits["memswap_limit"] = spec.memory_bytes  # no swap, so that the limit is the limit
    if spec.pids:
        _need(info, "PidsLimit", "spec.resources.pids", "the engine cannot limit processes")
        limits["pids_limit"] = spec.pids
    if spec.disk_bytes:
        if outside:
            why = "a directory of the host or a volume cannot be limited; ask for an ephemeral workspace"
            raise _unsupported("spec.resources.disk_bytes", why)
        limits["storage_opt"] = {"size": str(spec.disk_bytes)}
    if spec.gpus:
        if "nvidia" not in (info.get("Runtimes") or {}):
            raise _unsupported("spec.resources.gpus", "the engine has no runtime for GPUs")
        limits["device_requests"] = [DeviceRequest(count=spec.gpus, capabilities=[["gpu"]])]
    return limits


def _capabilities(options: Mapping[str, Any], config: DockerConfig) -> dict[str, Any]:
    allowed = {_capability(name) for name in config.allowed_capabilities}
    added = [_capability(name) for name in options.get("cap_add", ())]
    for name in added:
        if name not in allowed:
            text = (
                f"spec.docker.cap_add: the server's configuration (docker.allowed_capabilities) does not allow {name}"
            )
            raise DriverError("OPTION_NOT_ALLOWED", text, field="spec.docker.cap_add", value=name)
    if options.get("keep_default_capabilities"):
        if not config.allow_default_capabilities:
            field = "spec.docker.keep_default_capabilities"
            text = f"{field} is not allowed by the server's configuration (docker.allow_default_capabilities)"
            raise DriverError("OPTION_NOT_ALLOWED", text, field=field)
        return {"cap_add": added}
    return {"cap_drop": ["ALL"], "cap_add": [*BASE_CAPABILITIES, *added]}


def _capability(name: str) -> str:
    return name.upper().removeprefix("CAP_")


def _network(spec: SandboxSpec, config: DockerConfig) -> str | None:
    named = str(spec.options.get("network", ""))
    field = "spec.docker.network"
    if spec.network == "allow_list":
        raise _unsupported("spec.network", "the Docker backend has no allow-list; use a network or a proxy of your own")
    if spec.network == "none":
        if named:
            raise DriverError("ARGUMENT_INVALID", f"{field} contradicts the network mode NONE", field=field)
        return "none"
    if not named:
        return None
    if not _NAME.fullmatch(named):
        raise DriverError("ARGUMENT_INVALID", f"{field} is not the name of a network", field=field)
    allowed = config.allowed_networks
    if named in ("host", "none", "default") or (allowed is not None and named not in allowed):
        raise DriverError("OPTION_NOT_ALLOWED", f"{field}: {named} is not allowed by the server", field=field)
    return named


def _runtime(runtime: str, info: Mapping[str, Any]) -> str:
    known = sorted(info.get("Runtimes") or {})
    if runtime not in known:
        raise _unsupported("spec.docker.runtime", f"the engine has no runtime {runtime!r}; it has {', '.join(known)}")
    return runtime


def _workdir(workdir: str) -> str:
    field = "spec.workdir"
    if not workdir:
        return DEFAULT_WORKDIR
    if not _is_plain(workdir) or workdir == "/" or _is_inside(workdir, (*_SYSTEM, CHANNEL_DIRECTORY)):
        text = f"{field} has to be an absolute path without '.', '..' and ':', outside /dev, /proc and /sys"
        raise DriverError("ARGUMENT_INVALID", text, field=field)
    return workdir


def _mounts(wanted: Any, workdir: str, config: DockerConfig, same_machine: bool) -> list[Any]:
    mounts: list[Any] = []
    used = {workdir, CHANNEL_DIRECTORY}
    for index, mount in enumerate(wanted):
        field = f"spec.docker.mounts[{index}]"
        source = _source(mount.get("source", ""), f"{field}.source", config, same_machine)
        target = str(mount.get("target", ""))
        if not source:
            raise DriverError("ARGUMENT_INVALID", f"{field}.source is empty", field=f"{field}.source")
        if (
            not _is_plain(target)
            or target == "/"
            or _is_inside(target, (*_SYSTEM, CHANNEL_DIRECTORY))
            or target in used
        ):
            text = f"{field}.target has to be an absolute path of its own, outside /dev, /proc and /sys"
            raise DriverError("ARGUMENT_INVALID", text, field=f"{field}.target")
        used.add(target)
        mounts.append(Mount(target, source, type="bind", read_only=bool(mount.get("read_only", False))))
    return mounts


def _source(path: str, field: str, config: DockerConfig, same_machine: bool) -> str:
    """Check a path of the engine's host, which may be another machine: by its text,
    and by what links lead to where that can be seen.
    """
    if not path:
        return ""
    if not _is_plain(path):
        text = f"{field} has to be an absolute path without '.', '..' and ':'"
        raise DriverError("ARGUMENT_INVALID", text, field=field)
    allowed = [os.path.normpath(root) for root in config.allowed_mounts if root.startswith("/")]
    inside = _is_inside(path, allowed)
    if inside and same_machine:
        # The engine follows links; a workspace may have made one in its own directory.
        inside = _is_inside(os.path.realpath(path), [os.path.realpath(root) for root in allowed])
    if not inside:
        text = f"{field} is not inside a directory that the server's configuration allows (docker.allowed_mounts)"
        raise DriverError("OPTION_NOT_ALLOWED", text, field=field)
    return path


def _is_plain(path: str) -> bool:
    return (
        path.startswith("/")
        and not path.startswith("//")
        and os.path.normpath(path) == path
        and not set(path) & {"\0", ":"}
    )


def _is_inside(path: str, roots: Any) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _need(info: Mapping[str, Any], flag: str, field: str, why: str) -> None:
    if not info.get(flag):
        raise _unsupported(field, why)


def _unsupported(field: str, why: str) -> DriverError:
    return DriverError("UNSUPPORTED_BY_BACKEND", f"{field}: {why}", field=field, backend="docker")
