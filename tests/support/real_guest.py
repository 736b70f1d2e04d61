"""A real guest on a Unix socket, and a gRPC server in front of it with nothing between but the servicers.

async with real_guest(directory) as guest, serve(guest) as server:
    stub = execution_pb2_grpc.ExecutionServiceStub(server.channel)
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2
from grpc_status.rpc_status import to_status

from workspaced.v1 import execution_pb2, file_pb2, port_pb2
from workspaced_server.api.execution import ExecutionServicer
from workspaced_server.api.files import FileServicer
from workspaced_server.api.handlers import service_handler
from workspaced_server.api.ports import PortServicer
from workspaced_server.api.roles import SERVICES, UnavailableServicer
from workspaced_server.drivers.streams import connect_unix
from workspaced_server.errors import WorkspacedError, workspace_not_found
from workspaced_server.guest.channel import GuestChannel

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


@dataclass
class Handle:
    """What a workspace gives to a servicer."""

    guest: GuestChannel
    workspace_id: str = WORKSPACE
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = ""


@dataclass
class OneWorkspace:
    """Gives out one workspace, over whatever channel is set."""

    channel: GuestChannel
    env: dict[str, str] = field(default_factory=dict)
    uses: int = 0

    @asynccontextmanager
    async def use(self, workspace_id: str) -> AsyncIterator[Handle]:
        if workspace_id != WORKSPACE:
            raise workspace_not_found(workspace_id)
        self.uses += 1
        try:
            yield Handle(self.channel, env=self.env)
        finally:
            self.uses -= 1


@dataclass
class RunningServer:
    """Servicers, and a channel to them."""

    workspaces: OneWorkspace
    execution: ExecutionServicer
    channel: grpc.aio.Channel
    address: str


@asynccontextmanager
async def serve(guest_channel: GuestChannel) -> AsyncIterator[RunningServer]:
    """Serve ExecutionService, FileService, PortService and the roles on loopback."""
    workspaces = OneWorkspace(guest_channel)
    execution = ExecutionServicer(workspaces)
    server = grpc.aio.server(interceptors=[Errors()], options=[("grpc.max_receive_message_length", 8 << 20)])
    server.add_generic_rpc_handlers(
        (
            service_handler(execution_pb2.DESCRIPTOR.services_by_name["ExecutionService"], execution),
            service_handler(file_pb2.DESCRIPTOR.services_by_name["FileService"], FileServicer(workspaces)),
            service_handler(port_pb2.DESCRIPTOR.services_by_name["PortService"], PortServicer(workspaces)),
            *(service_handler(service, UnavailableServicer(service)) for service in SERVICES),
        )
    )
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        async with grpc.aio.insecure_channel(address, [("grpc.max_receive_message_length", 8 << 20)]) as channel:
            yield RunningServer(workspaces, execution, channel, address)
    finally:
        await server.stop(0)
        await execution.aclose()


class Errors(grpc.aio.ServerInterceptor):
    """Turns WorkspacedError into a status, and nothing else."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        kind = next(
            name for name in ("unary_unary", "unary_stream", "stream_unary", "stream_stream") if getattr(handler, name)
        )
        behavior = getattr(handler, kind)

        async def guarded(request: Any, context: Any) -> Any:
            try:
                return await behavior(request, context)
            except WorkspacedError as error:
                await context.abort_with_status(to_status(_status(error)))

        return handler._replace(**{kind: guarded})


def _status(error: WorkspacedError) -> status_pb2.Status:
    info = error_details_pb2.ErrorInfo(domain="workspaced", reason=error.reason, metadata=dict(error.metadata))
    details = [info]
    packed = []
    for message in details:
        detail = AnyMessage()
        detail.Pack(message)
        packed.append(detail)
    if error.violations:
        request = error_details_pb2.BadRequest()
        for violation in error.violations:
            request.field_violations.add(field=violation.field, description=violation.description)
        detail = AnyMessage()
        detail.Pack(request)
        packed.append(detail)
    return status_pb2.Status(code=error.code.value.value[0], message=error.message, details=packed)
