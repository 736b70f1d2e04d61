"""A real guest on a Unix socket, and a gRPC server in front of it with nothing between but the servicers.

async with real_guest(directory) as guest, serve(guest) as server:
    stub = execution_pb2_grpc.ExecutionServiceStub(server.channel)
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from workspaced.v1.workspace_pb2 import WorkspaceSpec
from workspaced_server.api.auth import Authenticator
from workspaced_server.api.drain import Drain
from workspaced_server.api.execution import ExecutionServicer
from workspaced_server.api.files import FileServicer
from workspaced_server.api.handlers import service_handler
from workspaced_server.api.interceptors import CallInterceptor, scopes_of
from workspaced_server.api.mcps import McpServicer
from workspaced_server.api.offload import OffloadServicer
from workspaced_server.api.ports import PortServicer
from workspaced_server.api.server import FILES
from workspaced_server.api.skills import SkillServicer
from workspaced_server.api.tools import ToolServicer
from workspaced_server.config import AuthConfig
from workspaced_server.drivers.streams import connect_unix
from workspaced_server.errors import workspace_not_found
from workspaced_server.guest.channel import GuestChannel
from workspaced_server.instructions import Instructions
from workspaced_server.mcps.mcps import Mcps as RealMcps
from workspaced_server.offload.offloads import Offloads
from workspaced_server.skills.skills import Skills
from workspaced_server.tools.mcp import Mcps

WORKSPACE = "w"
TOKEN = "0123456789abcdef0123456789abcdef"

_SERVICE = Path(__file__).parents[2] / "service"


@dataclass
class RealGuest:
    """A guest of its own, with a directory of its own."""

    directory: Path
    process: asyncio.subprocess.Process

    @property
    def workdir(self) -> Path:
        return self.directory / "work"

    async def connect(self) -> GuestChannel:
        """A new channel to it."""
        return await GuestChannel.connect(await connect_unix(self.directory / "socket"), TOKEN)


@asynccontextmanager
async def real_guest(directory: Path) -> AsyncIterator[RealGuest]:
    """Start a guest, and kill it in the end."""
    (directory / "work").mkdir()
    (directory / "state").mkdir(mode=0o700)
    (directory / "state" / "token").write_text(TOKEN)
    options = ["--socket", directory / "socket", "--state", directory / "state", "--workdir", directory / "work"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "workspaced_guest", "serve", "--foreground", *map(str, options), cwd=_SERVICE
    )
    try:
        await _answers(directory / "socket", process)
        yield RealGuest(directory, process)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _answers(socket: Path, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(10):
        while process.returncode is None:
            try:
                stream = await connect_unix(socket)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                return await stream.aclose()
    raise RuntimeError(f"the guest ended with {process.returncode}")


@dataclass(frozen=True)
class Handle:
    """What a workspace gives to a servicer."""

    guest: GuestChannel
    workspace_id: str = WORKSPACE
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = ""
    key: str = "0" * 32
    spec: WorkspaceSpec = field(default_factory=WorkspaceSpec)

    async def process_room(self) -> int | None:
        return None


@dataclass
class OneWorkspace:
    """Gives out one workspace, over whatever channel is set."""

    channel: GuestChannel
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = ""
    spec: WorkspaceSpec = field(default_factory=WorkspaceSpec)
    uses: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def use(self, workspace_id: str) -> AsyncIterator[Handle]:
        if workspace_id != WORKSPACE:
            raise workspace_not_found(workspace_id)
        self.uses += 1
        self.idle.clear()
        try:
            yield Handle(self.channel, env=self.env, workdir=self.workdir, spec=self.spec)
        finally:
            self.uses -= 1
            if not self.uses:
                self.idle.set()


@dataclass
class RunningServer:
    """Servicers, and a channel to them."""

    workspaces: OneWorkspace
    execution: ExecutionServicer
    channel: grpc.aio.Channel
    address: str


class _Absent:
    """Stands in for the RPCs that need a whole server."""

    def __getattr__(self, name: str) -> Any:
        async def refuse(request: object, context: object) -> None:
            raise NotImplementedError(name)

        return refuse


@asynccontextmanager
async def serve(guest_channel: GuestChannel, mcps: Mcps | None = None) -> AsyncIterator[RunningServer]:
    """Serve ExecutionService, FileService, PortService and the roles on loopback; MCP's RPCs with the real one only."""
    workspaces = OneWorkspace(guest_channel)
    execution = ExecutionServicer(workspaces)
    offloads = Offloads()
    skills = Skills()
    tools = ToolServicer(workspaces, skills, offloads, offloads.calls, mcps)
    real = mcps if isinstance(mcps, RealMcps) else None
    servicers: tuple[object, ...] = (
        execution,
        FileServicer(workspaces),
        PortServicer(workspaces),
        OffloadServicer(workspaces, offloads, real, skills),
        SkillServicer(workspaces, skills, Instructions(skills)),
        tools,
        *([McpServicer(workspaces, real, offloads)] if real is not None else []),
    )
    interceptor = CallInterceptor(Authenticator(AuthConfig()), Drain(), scopes_of(*FILES))
    server = grpc.aio.server(interceptors=[interceptor], options=[("grpc.max_receive_message_length", 8 << 20)])
    server.add_generic_rpc_handlers(
        tuple(
            service_handler(service, *servicers, _Absent())
            for file in FILES
            for service in file.services_by_name.values()
        )
    )
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        async with grpc.aio.insecure_channel(address, [("grpc.max_receive_message_length", 8 << 20)]) as channel:
            yield RunningServer(workspaces, execution, channel, address)
    finally:
        await server.stop(0)
        await tools.aclose()


def reason(error: grpc.aio.AioRpcError) -> str:
    """The ErrorInfo's reason of a failed call."""
    return str(error_info(error).reason)


def error_info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    """The ErrorInfo of a failed call."""
    info = error_details_pb2.ErrorInfo()
    for detail in _status(error).details:
        if detail.Unpack(info):
            return info
    raise AssertionError(f"no ErrorInfo: {error.code()} {error.details()}")


def violations(error: grpc.aio.AioRpcError) -> set[str]:
    """The fields that a failed call's BadRequest names."""
    request = error_details_pb2.BadRequest()
    for detail in _status(error).details:
        detail.Unpack(request)
    return {violation.field for violation in request.field_violations}


def _status(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    trailers = dict(error.trailing_metadata() or ())
    status: status_pb2.Status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    return status
