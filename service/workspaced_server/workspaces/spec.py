"""Specs of workspaces: checked, resolved with template and defaults, compared, redacted, and handed to drivers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from workspaced.v1 import options_pb2
from workspaced.v1 import workspace_pb2 as pb
from workspaced_server.drivers.base import SandboxSpec
from workspaced_server.errors import Code, FieldViolation, WorkspacedError, invalid
from workspaced_server.workspaces.mcp_rules import check_defaults
from workspaced_server.workspaces.record import Record

REDACTED = "[redacted]"
_PREFIX = "BACKEND_"
_ENV_NAME = re.compile(r"[^=\0]+")
_MAX_ENV_BYTES = 128 * 1024
_NETWORKS = {
    pb.Network.MODE_UNSPECIFIED: "default",
    pb.Network.MODE_DEFAULT: "default",
    pb.Network.MODE_NONE: "none",
    pb.Network.MODE_ALLOW_LIST: "allow_list",
}
_PERSISTENCE = {
    pb.PERSISTENCE_UNSPECIFIED: None,
    pb.PERSISTENCE_PERSISTENT: True,
    pb.PERSISTENCE_EPHEMERAL: False,
}


def backend_name(backend: pb.Backend.ValueType) -> str:
    """The driver's name of a backend, for example ``docker``."""
    return pb.Backend.Name(backend).removeprefix(_PREFIX).lower()


def backend_number(name: str) -> pb.Backend.ValueType:
    """The API's number of a driver's name. Raises ValueError."""
    return pb.Backend.Value(_PREFIX + name.upper())


def serialize(spec: pb.WorkspaceSpec) -> bytes:
    """The spec as bytes that are equal when the specs are."""
    return spec.SerializeToString(deterministic=True)


def check(spec: pb.WorkspaceSpec) -> None:
    """Raise WorkspacedError INVALID_ARGUMENT naming every field that breaks a rule."""
    violations: list[FieldViolation] = []

    def bad(field: str, text: str) -> None:
        violations.append(FieldViolation(f"spec.{field}", text))

    if spec.backend not in pb.Backend.values():
        bad("backend", f"{spec.backend} is not a backend")
    for name, value in spec.env.items():
        if not _ENV_NAME.fullmatch(name):
            bad(f"env[{name[:64]!r}]", "a name must not be empty and holds neither '=' nor NUL")
        elif "\0" in value:
            bad(f"env[{name!r}]", "a value holds no NUL")
    if sum(len(name) + len(value) for name, value in spec.env.items()) > _MAX_ENV_BYTES:
        bad("env", f"is larger than {_MAX_ENV_BYTES} bytes")
    if spec.workdir and (not spec.workdir.startswith("/") or "\0" in spec.workdir or ".." in spec.workdir.split("/")):
        bad("workdir", "must be an absolute path without '..'")
    for field in ("image", "user", "template"):
        text = getattr(spec, field)
        if len(text) > 1024 or any(ord(character) < 32 or ord(character) == 127 for character in text):
            bad(field, "holds a control character, or more than 1024 characters")
    if spec.network.mode not in _NETWORKS:
        bad("network.mode", f"{spec.network.mode} is not a mode")
    elif spec.network.allow and spec.network.mode != pb.Network.MODE_ALLOW_LIST:
        bad("network.allow", "needs mode ALLOW_LIST")
    if spec.persistence not in _PERSISTENCE:
        bad("persistence", f"{spec.persistence} is not a persistence")
    if spec.idle_timeout.seconds < 0 or spec.idle_timeout.nanos < 0:
        bad("idle_timeout", "must not be negative")
    if spec.idle_timeout.seconds > 315_576_000_000:
        bad("idle_timeout", "is longer than a duration may be")
    check_defaults(spec.default_mcps, "default_mcps", bad)
    options = spec.WhichOneof("backend_options")
    if options is not None and spec.backend and options != backend_name(spec.backend):
        bad(options, f"are options of another backend than {backend_name(spec.backend)}")
    if violations:
        raise invalid(*violations)


def resolve(
    spec: pb.WorkspaceSpec, templates: Mapping[str, pb.WorkspaceSpec], default_backend: str
) -> pb.WorkspaceSpec:
    """The spec with its template and the server's defaults filled in, checked. The argument stays as it is.

    What is set in ``spec`` wins over the template; maps are merged by key, lists and ``network`` replaced whole.
    """
    resolved = pb.WorkspaceSpec()
    if spec.template:
        template = templates.get(spec.template)
        if template is None:
            text = f"there is no template {spec.template!r} in the server's configuration"
            raise invalid(FieldViolation("spec.template", text))
        resolved.CopyFrom(template)
        for field, _ in spec.ListFields():
            replaced = field.is_repeated and not _is_map(field)
            if replaced or field.name in ("network", "idle_timeout"):
                resolved.ClearField(field.name)  # type: ignore[arg-type]  # the stub wants a literal
    resolved.MergeFrom(spec)
    if not resolved.backend:
        options = resolved.WhichOneof("backend_options")
        resolved.backend = backend_number(options or default_backend)
    check(resolved)
    return resolved


def differing_fields(one: Message, other: Message) -> list[str]:
    """Paths of the fields that differ, nested messages one level down, for example ``resources.pids``."""
    paths: list[str] = []
    for field in one.DESCRIPTOR.fields:
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if mine == theirs and (not field.has_presence or one.HasField(field.name) == other.HasField(field.name)):
            continue
        nested = field.message_type is not None and not field.is_repeated and field.message_type.file is pb.DESCRIPTOR
        inner = differing_fields(mine, theirs) if nested else []
        paths += [f"{field.name}.{path}" for path in inner] or [field.name]
    return paths


def compare(
    record: Record, requested: pb.WorkspaceSpec, templates: Mapping[str, pb.WorkspaceSpec], default: str
) -> None:
    """Raise ALREADY_EXISTS, WORKSPACE_SPEC_MISMATCH unless the record is what is asked for.

    An empty spec asks for whatever there is. The same words as at its creation match even when the template has
    changed since.
    """
    asked = serialize(requested)
    if not asked or asked == record.requested:
        return
    stored = pb.WorkspaceSpec.FromString(record.spec)
    resolved = resolve(requested, templates, backend_name(stored.backend) if not requested.template else default)
    fields = [path for path in differing_fields(resolved, stored) if path != "template"]
    if fields:
        raise WorkspacedError(
            Code.ALREADY_EXISTS,
            "WORKSPACE_SPEC_MISMATCH",
            f"workspace {record.workspace_id!r} exists with another spec; these fields differ: {', '.join(fields)}",
            {"workspace_id": record.workspace_id, "fields": ",".join(fields)},
            resource=("workspace", record.workspace_id),
        )


def disk_bytes(record: Record) -> int:
    """The disk limit of a workspace, 0 when it has none."""
    return pb.WorkspaceSpec.FromString(record.spec).resources.disk_bytes


def has_secrets(message: Message) -> bool:
    """Whether a field that the contract calls secret is set."""
    for field, value in message.ListFields():
        if field.GetOptions().Extensions[options_pb2.secret]:
            return True
        nested = field.message_type is not None and not _is_map(field)
        if nested and any(has_secrets(item) for item in (value if field.is_repeated else [value])):
            return True
    return False


def redact(message: Message) -> None:
    """Replace the value of every field that the contract calls secret, in place."""
    for field, value in message.ListFields():
        if field.GetOptions().Extensions[options_pb2.secret]:
            if _is_map(field):
                for key in list(value):  # a map must not be changed under its iterator
                    value[key] = REDACTED
            else:
                setattr(message, field.name, REDACTED)
        elif field.message_type is not None and not _is_map(field):
            for item in value if field.is_repeated else [value]:
                redact(item)


def to_sandbox(record: Record, spec: pb.WorkspaceSpec) -> SandboxSpec:
    """The spec as its driver sees it."""
    which = spec.WhichOneof("backend_options")
    options: dict[str, Any] = {}
    if which is not None:
        options = MessageToDict(getattr(spec, which), preserving_proto_field_name=True)
    return SandboxSpec(
        key=record.provider_key,
        token=record.token,
        image=spec.image,
        env=dict(spec.env),
        cpu_millis=spec.resources.cpu_millis,
        memory_bytes=spec.resources.memory_bytes,
        disk_bytes=spec.resources.disk_bytes,
        pids=spec.resources.pids,
        gpus=spec.resources.gpus,
        network=_NETWORKS[spec.network.mode],
        network_allow=tuple(spec.network.allow),
        workdir=spec.workdir,
        user=spec.user,
        persistent=_PERSISTENCE[spec.persistence],
        install_python=spec.install_python,
        labels={
            **record.labels,
            "workspaced.workspace_id": record.workspace_id,
            "workspaced.owner": record.owner,
        },
        options=options,
    )


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
