"""PortService: TCP ports inside a workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from workspaced.v1 import port_pb2
from workspaced_guest import wire
from workspaced_server.api import answers
from workspaced_server.api.access import Access, use
from workspaced_server.api.encoding import file_data as encoded_data
from workspaced_server.api.limits import MAX_CHUNK_BYTES
from workspaced_server.api.validation import check, page_size
from workspaced_server.companion import companion
from workspaced_server.errors import FieldViolation, invalid
from workspaced_server.guest.stream import GuestStream

_GUEST_PAGE_LIMIT = 500

Context = grpc.aio.ServicerContext[Any, Any]


class PortServicer:
    """The RPCs of ``workspaced.v1.PortService``; what each does and its errors are in the proto's comments."""

    def __init__(self, workspaces: Access) -> None:
        self._workspaces = workspaces

    async def Tunnel(  # noqa: N802
        self, requests: AsyncIterator[port_pb2.TunnelRequest], context: Context
    ) -> None:
        iterator = aiter(requests)
        first = await anext(iterator, None)
        if first is None or first.WhichOneof("part") != "open":
            raise invalid(FieldViolation("open", "must be the first message of the stream"))
        head = first.open
        check(head)
        params: dict[str, object] = {"port": head.port}
        if head.host:
            params["host"] = head.host
        async with (
            use(self._workspaces, head.workspace_id) as handle,
            handle.guest.open("port.dial", params) as stream,
        ):
            answers.record(answers.message(await stream.receive()), "connected")
            await context.write(port_pb2.TunnelResponse(opened=port_pb2.TunnelOpened()))
            async with companion(_send(stream, iterator), stream.fail):
                while (item := await stream.receive()) is not None:
                    if not isinstance(item, bytes) or len(item) > wire.MAX_DATA:
                        raise answers.malformed()
                    if item:
                        await context.write(encoded_data(item))
                    else:
                        await context.write(port_pb2.TunnelResponse(half_closed=port_pb2.TunnelHalfClosed()))

    async def ListPorts(  # noqa: N802
        self, request: port_pb2.ListPortsRequest, context: Context
    ) -> port_pb2.ListPortsResponse:
        check(request)
        params = {
            "page_size": min(page_size(request.page_size), _GUEST_PAGE_LIMIT),
            "page_token": answers.guest_page_token(request.page_token),
        }
        async with use(self._workspaces, request.workspace_id) as handle:
            result = await handle.guest.call("port.list", params)
        return port_pb2.ListPortsResponse(
            ports=[_port(item) for item in answers.records(result, "ports")],
            next_page_token=answers.page_token(result),
        )


async def _send(stream: GuestStream, requests: AsyncIterator[port_pb2.TunnelRequest]) -> None:
    async for request in requests:
        if request.WhichOneof("part") != "data":
            raise invalid(FieldViolation("open", "may only be the first message of the stream"))
        if len(request.data) > MAX_CHUNK_BYTES:
            raise invalid(FieldViolation("data", "must have at most 1 MiB: send it in several messages"))
        await stream.send(request.data)
    stream.end()


def _port(item: answers.Answer) -> port_pb2.Port:
    return port_pb2.Port(
        port=answers.integer(item, "port", high=65_535),
        address=answers.text(item, "address"),
        process_id=answers.text(item, "process_id"),
        pid=answers.integer(item, "pid", high=0x7FFFFFFF),
    )
