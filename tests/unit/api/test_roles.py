"""RPCs of the contract that answer NOT_YET_AVAILABLE: exactly these."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from tests.support.real_guest import RunningServer, reason
from workspaced_server.api.handlers import service_handler
from workspaced_server.api.roles import UnavailableServicer
from workspaced_server.api.server import FILES

pytestmark = pytest.mark.anyio

NOT_YET_AVAILABLE = {
    "DiscoveryService": {
        "ListMcps",
        "ListMcpResources",
        "ReadMcpResource",
        "ListMcpPrompts",
        "GetMcpPrompt",
    },
    "ManagementService": {"AddMcp", "RemoveMcp"},
}


async def test_each_answers_with_the_reason(server: RunningServer) -> None:
    answered = set()
    for file in FILES:
        for service in file.services_by_name.values():
            for method in service.methods:
                if method.name in NOT_YET_AVAILABLE.get(service.name, ()):
                    assert await _ask(server.channel, method) == "NOT_YET_AVAILABLE", method.full_name
                    answered.add((service.name, method.name))
    assert len(answered) == sum(map(len, NOT_YET_AVAILABLE.values()))


async def _ask(channel: grpc.aio.Channel, method: MethodDescriptor) -> str:
    assert method.containing_service is not None
    path = f"/{method.containing_service.full_name}/{method.name}"
    request = GetMessageClass(method.input_type)()
    serializer, deserializer = type(request).SerializeToString, GetMessageClass(method.output_type).FromString
    kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    call = getattr(channel, kind)(path, serializer, deserializer)
    pending = call() if method.client_streaming else call(request)
    if method.client_streaming:
        await pending.done_writing()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (pending.read() if method.server_streaming else pending)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    return reason(caught.value)


def test_a_servicer_that_lacks_an_rpc_is_noticed() -> None:
    service = FILES[0].services_by_name["DiscoveryService"]
    with pytest.raises(AttributeError, match="ListTools"):
        service_handler(service, object())
    service_handler(service, object(), UnavailableServicer(service))
