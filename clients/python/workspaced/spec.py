"""From the arguments of this library to the specs of the API. Wrong arguments raise ValueError or TypeError here."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from google.protobuf.duration_pb2 import Duration

from .enums import BACKENDS
from .v1 import process_pb2, workspace_pb2

Command = str | Sequence[str]
"""A command line for ``/bin/sh -c``, or a program and its arguments."""
DisconnectPolicy = Literal["keep", "kill"]
OverflowPolicy = Literal["block", "drop_oldest"]


@dataclass(frozen=True)
class Resources:
    """What a workspace may use; 0 is the backend's default."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    pids: int = 0
    gpus: int = 0


_PERSISTENCE = {
    None: workspace_pb2.PERSISTENCE_UNSPECIFIED,
    True: workspace_pb2.PERSISTENCE_PERSISTENT,
    False: workspace_pb2.PERSISTENCE_EPHEMERAL,
}
_DISCONNECT = {
    None: process_pb2.DISCONNECT_POLICY_UNSPECIFIED,
    "keep": process_pb2.DISCONNECT_POLICY_KEEP,
    "kill": process_pb2.DISCONNECT_POLICY_KILL,
}
_OVERFLOW = {
    None: process_pb2.OVERFLOW_POLICY_UNSPECIFIED,
    "block": process_pb2.OVERFLOW_POLICY_BLOCK,
    "drop_oldest": process_pb2.OVERFLOW_POLICY_DROP_OLDEST,
}


def new_id() -> str:
    """An id for a process or a request that nobody else has."""
    return uuid.uuid4().hex


def duration(seconds: float) -> Duration:
    """Seconds, to the nanosecond. Raises :class:`ValueError` for a negative number."""
    if not seconds >= 0:
        raise ValueError(f"{seconds} is no duration")
    whole = int(seconds)
    return Duration(seconds=whole, nanos=min(int((seconds - whole) * 1e9), 999_999_999))


def network(value: str | Iterable[str] | None) -> workspace_pb2.Network | None:
    """``None``, ``"default"``, ``"none"``, or the hosts and networks to allow."""
    if value is None or value == "default":
        return None
    if value == "none":
        return workspace_pb2.Network(mode=workspace_pb2.Network.MODE_NONE)
    if isinstance(value, str):
        raise ValueError(f'network is "default", "none" or a list of hosts, not {value!r}')
    return workspace_pb2.Network(mode=workspace_pb2.Network.MODE_ALLOW_LIST, allow=list(value))


def workspace_spec(
    *,
    backend: str | None,
    image: str,
    template: str,
    env: Mapping[str, str] | None,
    resources: Resources | Mapping[str, int] | None,
    network_policy: str | Iterable[str] | None,
    workdir: str,
    user: str,
    persistent: bool | None,
    idle_timeout: float | None,
    install_python: bool,
    seed_skills: Sequence[str],
    instructions: str,
    options: Mapping[str, Mapping[str, Any] | None],
) -> workspace_pb2.WorkspaceSpec:
    """The spec of a workspace. ``options`` maps a backend's name to its options, of which one may be set."""
    if isinstance(resources, Mapping):
        resources = Resources(**resources)
    spec = workspace_pb2.WorkspaceSpec(
        image=image,
        template=template,
        env=dict(env or {}),
        network=network(network_policy),
        workdir=workdir,
        user=user,
        persistence=_PERSISTENCE[persistent],
        install_python=install_python,
        seed_skills=seed_skills,
        instructions=instructions,
    )
    if backend is not None:
        spec.backend = workspace_pb2.Backend.ValueType(BACKENDS.number(backend))
    if resources is not None:
        spec.resources.CopyFrom(workspace_pb2.Resources(**vars(resources)))
    if idle_timeout is not None:
        spec.idle_timeout.CopyFrom(duration(idle_timeout))
    given = {name: value for name, value in options.items() if value is not None}
    if len(given) > 1:
        raise ValueError(f"options of one backend, not of {', '.join(given)}")
    for name, value in given.items():
        if backend is not None and backend.lower() != name:
            raise ValueError(f"options of {name} with backend {backend!r}")
        if backend is None:
            spec.backend = workspace_pb2.Backend.ValueType(BACKENDS.number(name))
        target = getattr(spec, name)
        target.SetInParent()
        for key, item in value.items():
            if key == "mounts":
                target.mounts.extend(workspace_pb2.Mount(**mount) for mount in item)
            elif isinstance(item, Mapping):
                getattr(target, key).update(item)
            elif isinstance(item, (list, tuple)):
                getattr(target, key).extend(item)
            elif key in type(target).DESCRIPTOR.fields_by_name:
                setattr(target, key, os.fspath(item) if isinstance(item, os.PathLike) else item)
            else:
                raise ValueError(f"{name} has no option {key!r}")
    return spec


def process_spec(
    command: Command,
    *,
    cwd: str = "",
    env: Mapping[str, str] | None = None,
    user: str = "",
    pty: tuple[int, int] | None = None,
    stdin: bool = False,
    timeout: float | None = None,
    kill_grace: float | None = None,
    disconnect_policy: DisconnectPolicy | None = None,
    overflow_policy: OverflowPolicy | None = None,
    journal_limit_bytes: int = 0,
    nice: int = 0,
) -> process_pb2.ProcessSpec:
    """The spec of a process."""
    if disconnect_policy not in _DISCONNECT:
        raise ValueError(f'disconnect_policy is "keep" or "kill", not {disconnect_policy!r}')
    if overflow_policy not in _OVERFLOW:
        raise ValueError(f'overflow_policy is "block" or "drop_oldest", not {overflow_policy!r}')
    spec = process_pb2.ProcessSpec(
        cwd=cwd,
        env=env,
        user=user,
        stdin=process_pb2.STDIN_MODE_OPEN if stdin else process_pb2.STDIN_MODE_CLOSED,
        disconnect_policy=_DISCONNECT[disconnect_policy],
        overflow_policy=_OVERFLOW[overflow_policy],
        journal_limit_bytes=journal_limit_bytes,
        nice=nice,
    )
    if isinstance(command, str):
        spec.shell_command = command
    else:
        spec.argv.args.extend(command)
    if pty is not None:
        spec.pty.cols, spec.pty.rows = pty
    if timeout is not None:
        spec.timeout.CopyFrom(duration(timeout))
    if kill_grace is not None:
        spec.kill_grace.CopyFrom(duration(kill_grace))
    return spec
