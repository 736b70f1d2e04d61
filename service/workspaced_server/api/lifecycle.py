"""LifecycleService: what is asked for in messages, handed to the workspaces in their own terms."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from workspaced.v1 import lifecycle_pb2 as pb
from workspaced.v1 import workspace_pb2 as wpb
from workspaced_server.errors import FieldViolation, invalid
from workspaced_server.workspaces import spec
from workspaced_server.workspaces.manager import Workspaces
from workspaced_server.workspaces.record import State
from workspaced_server.workspaces.registry import Query
from workspaced_server.workspaces.watch import Snapshot

_DEFAULT_PAGE = 100
_MAX_PAGE = 1000
_HEARTBEAT_SECONDS = 15.0
# The last microsecond that a timestamp holds, in the year 9999.
_MAX_TIME = 253_402_300_799_999_999

Context = grpc.aio.ServicerContext[Any, Any]


class LifecycleServicer:
    """Creates, finds, suspends and deletes workspaces. Leases come later and say so."""

    def __init__(self, workspaces: Workspaces, heartbeat_seconds: float = _HEARTBEAT_SECONDS) -> None:
        self._workspaces = workspaces
        self._heartbeat_seconds = heartbeat_seconds

    async def InitializeWorkspace(  # noqa: N802 - the name in the contract
        self, request: pb.InitializeWorkspaceRequest, context: Context
    ) -> pb.InitializeWorkspaceResponse:
        """Create or re-attach."""
        done = await self._workspaces.initialize(
            request.spec,
            workspace_id=request.workspace_id,
            labels=dict(request.labels),
            request_id=request.request_id,
            no_wait=request.no_wait,
        )
        return pb.InitializeWorkspaceResponse(workspace=to_message(done.snapshot), created=done.created)

    async def CloseWorkspace(  # noqa: N802
        self, request: pb.CloseWorkspaceRequest, context: Context
    ) -> pb.CloseWorkspaceResponse:
        """Suspend."""
        grace = request.grace.seconds + request.grace.nanos / 1e9 if request.HasField("grace") else None
        return pb.CloseWorkspaceResponse(
            workspace=to_message(await self._workspaces.close(request.workspace_id, grace))
        )

    async def ResetWorkspace(  # noqa: N802
        self, request: pb.ResetWorkspaceRequest, context: Context
    ) -> pb.ResetWorkspaceResponse:
        """Remove what agents left."""
        snapshot = await self._workspaces.reset(
            request.workspace_id, wipe_files=request.wipe_files, kill_processes=request.kill_processes
        )
        return pb.ResetWorkspaceResponse(workspace=to_message(snapshot))

    async def DeleteWorkspace(  # noqa: N802
        self, request: pb.DeleteWorkspaceRequest, context: Context
    ) -> pb.DeleteWorkspaceResponse:
        """Destroy."""
        await self._workspaces.delete(request.workspace_id, allow_missing=request.allow_missing)
        return pb.DeleteWorkspaceResponse()

    async def GetWorkspace(  # noqa: N802
        self, request: pb.GetWorkspaceRequest, context: Context
    ) -> pb.GetWorkspaceResponse:
        """Find one."""
        return pb.GetWorkspaceResponse(workspace=to_message(await self._workspaces.get(request.workspace_id)))

    async def ListWorkspaces(  # noqa: N802
        self, request: pb.ListWorkspacesRequest, context: Context
    ) -> pb.ListWorkspacesResponse:
        """Find many."""
        if not 0 <= request.page_size <= _MAX_PAGE:
            raise invalid(FieldViolation("page_size", f"must be from 0 to {_MAX_PAGE}"))
        size = request.page_size or _DEFAULT_PAGE
        mark = _filter_mark(request.filter)
        after = _parse_token(request.page_token, mark) if request.page_token else None
        found = await self._workspaces.list(to_query(request.filter, after), size + 1)
        token = _page_token(found[size - 1], mark) if len(found) > size else ""
        return pb.ListWorkspacesResponse(
            workspaces=[to_message(snapshot) for snapshot in found[:size]], next_page_token=token
        )

    async def WatchWorkspaces(  # noqa: N802
        self, request: pb.WatchWorkspacesRequest, context: Context
    ) -> AsyncIterator[pb.WatchWorkspacesResponse]:
        """Tell every change."""
        async with aclosing(self._workspaces.watch(to_query(request.filter))) as changes:
            following: asyncio.Task[Snapshot | None] | None = None
            try:
                while True:
                    if following is None:
                        following = asyncio.ensure_future(anext(changes))
                    await asyncio.wait([following], timeout=self._heartbeat_seconds)
                    if not following.done():
                        now = Timestamp()
                        now.GetCurrentTime()
                        yield pb.WatchWorkspacesResponse(heartbeat=now)
                        continue
                    snapshot, following = following.result(), None
                    if snapshot is None:
                        yield pb.WatchWorkspacesResponse(initial_done=pb.InitialDone())
                    else:
                        yield pb.WatchWorkspacesResponse(workspace=to_message(snapshot))
            finally:
                if following is not None:
                    following.cancel()
                    await asyncio.wait([following])


def to_message(snapshot: Snapshot) -> wpb.Workspace:
    """The workspace as a caller may see it: secrets redacted."""
    record = snapshot.record
    wanted = wpb.WorkspaceSpec.FromString(record.spec)
    spec.redact(wanted)
    message = wpb.Workspace(
        workspace_id=record.workspace_id,
        backend=spec.backend_number(record.backend),
        state=wpb.WorkspaceState.Value(f"WORKSPACE_STATE_{record.state.name}"),
        state_reason=record.state_reason,
        spec=wanted,
        workdir=record.workdir,
        labels=dict(record.labels),
        owner=record.owner,
        revision=record.revision,
    )
    message.create_time.FromMicroseconds(record.create_time)
    message.update_time.FromMicroseconds(record.update_time)
    message.last_used_time.FromMicroseconds(record.last_used_time)
    if snapshot.expire_time:
        message.expire_time.FromMicroseconds(min(snapshot.expire_time, _MAX_TIME))
    if snapshot.progress is not None:
        message.progress.phase = wpb.Progress.Phase.Value(f"PHASE_{snapshot.progress.phase.name}")
        message.progress.fraction = snapshot.progress.fraction
        message.progress.message = snapshot.progress.message.encode("utf-8", "replace").decode()
    return message


def to_query(filter_: pb.WorkspaceFilter, after: tuple[int, str] | None = None) -> Query:
    """The filter in the registry's terms. Raises INVALID_ARGUMENT."""
    try:
        states = frozenset(State(number) for number in filter_.states)
    except ValueError:
        raise invalid(FieldViolation("filter.states", "holds a number that is not a state")) from None
    unknown = [number for number in filter_.backends if number not in wpb.Backend.values() or not number]
    if unknown:
        raise invalid(FieldViolation("filter.backends", f"{unknown[0]} is not a backend"))
    if len(filter_.workspace_ids) > _MAX_PAGE:
        raise invalid(FieldViolation("filter.workspace_ids", f"holds more than {_MAX_PAGE}"))
    return Query(
        states=states,
        backends=frozenset(spec.backend_name(number) for number in filter_.backends),
        workspace_ids=frozenset(filter_.workspace_ids),
        labels=dict(filter_.labels),
        after=after,
    )


def _filter_mark(filter_: pb.WorkspaceFilter) -> str:
    """Binds a page token to its filter: pages of different lists do not fit together."""
    return hashlib.sha256(filter_.SerializeToString(deterministic=True)).hexdigest()[:8]


def _page_token(last: Snapshot, mark: str) -> str:
    text = f"{last.record.create_time}.{last.record.key}.{mark}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _parse_token(token: str, mark: str) -> tuple[int, str]:
    try:
        padded = token + "=" * (-len(token) % 4)
        created, key, found = base64.urlsafe_b64decode(padded.encode("ascii")).decode("ascii").split(".")
        if found == mark and 0 <= int(created) <= _MAX_TIME:
            return int(created), key
    except ValueError:
        pass
    raise invalid(FieldViolation("page_token", "is not a token that the previous page of this list gave"))
