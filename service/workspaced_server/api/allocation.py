"""AcquireWorkspace, ReleaseWorkspace, RenewLease: the workspace of a user, an agent or a session, held by a lease."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from workspaced.v1 import lifecycle_pb2 as pb
from workspaced_server.api.lifecycle import to_message
from workspaced_server.api.pairs import check_id, pair_of
from workspaced_server.api.validation import Violations, seconds
from workspaced_server.principal import current, current_call
from workspaced_server.workspaces.leases import Lease
from workspaced_server.workspaces.manager import Workspaces
from workspaced_server.workspaces.pools import DEFAULT_TEMPLATE, wanted

Context = grpc.aio.ServicerContext[Any, Any]

_DEFAULT_LEASE_SECONDS = 60
_LONGEST_LEASE_SECONDS = 3600
_NAMES = {
    pb.ALLOCATION_POLICY_PER_USER: "user",
    pb.ALLOCATION_POLICY_PER_AGENT: "agent",
    pb.ALLOCATION_POLICY_PER_SESSION: "session",
}


class AllocationServicer:
    """Finds or makes the workspace that belongs to a key, so that callers need no ids of workspaces."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def AcquireWorkspace(  # noqa: N802
        self, request: pb.AcquireWorkspaceRequest, context: Context
    ) -> pb.AcquireWorkspaceResponse:
        """The workspace of the key, READY, with a new lease."""
        key = _key(request)
        _check_template(request.template, self._workspaces.settings.templates)
        duration = _duration(request.lease_duration) if request.HasField("lease_duration") else None
        name = request.template or request.spec.template or DEFAULT_TEMPLATE
        requested = wanted(name, self._workspaces.settings.templates)
        template = requested.template
        requested.MergeFrom(request.spec)
        requested.template = template
        workspace_id = f"{next(iter(key))}-{_digest(key)}"
        initialized = await self._workspaces.initialize(
            requested, workspace_id=workspace_id, labels={**_labels(request), "template": name}
        )
        record = initialized.snapshot.record
        lease = await self._workspaces.leases.grant(
            current().name, record.key, workspace_id, duration or _DEFAULT_LEASE_SECONDS * 1_000_000
        )
        workspace = to_message(await self._workspaces.get(workspace_id))
        return pb.AcquireWorkspaceResponse(workspace=workspace, lease=_lease(lease), created=initialized.created)

    async def ReleaseWorkspace(  # noqa: N802
        self, request: pb.ReleaseWorkspaceRequest, context: Context
    ) -> pb.ReleaseWorkspaceResponse:
        """End a lease. The workspace's idle time begins now."""
        _check_lease_id(request.lease_id)
        lease = await self._workspaces.leases.release(current().name, request.lease_id)
        if lease is not None:
            _note(lease)
            await self._workspaces.entries.touch_now(lease.workspace_key)
        return pb.ReleaseWorkspaceResponse()

    async def RenewLease(self, request: pb.RenewLeaseRequest, context: Context) -> pb.RenewLeaseResponse:  # noqa: N802
        """Let a lease end later."""
        _check_lease_id(request.lease_id)
        duration = _duration(request.lease_duration) if request.HasField("lease_duration") else None
        lease = await self._workspaces.leases.renew(current().name, request.lease_id, duration)
        _note(lease)
        return pb.RenewLeaseResponse(lease=_lease(lease))


def _key(request: pb.AcquireWorkspaceRequest) -> dict[str, str]:
    """What the policy looks at, the policy's own id first. Raises WorkspacedError."""
    found = Violations()
    found.require(request.policy in _NAMES, "policy", "must be PER_USER, PER_AGENT or PER_SESSION")
    found.require(
        not (request.template and request.spec.template and request.template != request.spec.template),
        "spec.template",
        "names another template than `template`: leave one of them out",
    )
    found.check()
    user = check_id(request.user_id, "user_id")
    pair = pair_of(request)
    name = _NAMES[request.policy]
    key = {"user": user}
    if name in ("agent", "session"):
        found.require(pair.agent_id is not None, "agent_id", f"is needed by PER_{name.upper()}")
        key = {"agent": pair.agent_id or "", **key}
    if name == "session":
        found.require(pair.session_id is not None, "session_id", "is needed by PER_SESSION")
        key = {"session": pair.session_id or "", **key}
    found.check()
    return key


def _check_template(template: str, templates: Mapping[str, object]) -> None:
    """Raises WorkspacedError."""
    found = Violations()
    known = not template or template == DEFAULT_TEMPLATE or template in templates
    found.require(known, "template", f"there is no template {template[:64]!r} in the server's configuration")
    found.check()


def _digest(key: dict[str, str]) -> str:
    """The same for the same key, and for no other."""
    text = json.dumps(key, ensure_ascii=False, sort_keys=True)
    return base64.b32encode(hashlib.sha256(text.encode()).digest()[:15]).decode().lower()


def _labels(request: pb.AcquireWorkspaceRequest) -> dict[str, str]:
    """What an operator sees of the key, in `ls` and at the provider."""
    labels = {"user": request.user_id}
    if request.policy != pb.ALLOCATION_POLICY_PER_USER:
        labels["agent"] = request.agent_id
    if request.policy == pb.ALLOCATION_POLICY_PER_SESSION:
        labels["session"] = request.session_id
    return labels


def _duration(value: Duration) -> int:
    """Microseconds. Raises WorkspacedError."""
    length = seconds(value)
    found = Violations()
    found.require(
        0 < length <= _LONGEST_LEASE_SECONDS,
        "lease_duration",
        f"must be more than 0 and at most {_LONGEST_LEASE_SECONDS} s: renew a lease that is to last longer",
    )
    found.check()
    return int(length * 1_000_000)


def _check_lease_id(lease_id: str) -> None:
    found = Violations()
    found.require(0 < len(lease_id) <= 128, "lease_id", "must be the id of a lease that AcquireWorkspace gave")
    found.check()


def _note(lease: Lease) -> None:
    call = current_call()
    if call is not None:
        call.workspace_id = lease.workspace_id


def _lease(lease: Lease) -> pb.Lease:
    until = Timestamp()
    until.FromMicroseconds(lease.expire_time)
    return pb.Lease(lease_id=lease.lease_id, workspace_id=lease.workspace_id, expire_time=until)
