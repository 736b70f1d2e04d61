"""Makes gRPC handlers of servicers, from the service's descriptor.

Unlike the generated ``add_…_to_server`` the responses may be ready-made bytes: a servicer that streams much encodes
its messages itself (`workspaced_server.api.encoding`), which saves about half of the CPU of a large chunk. What
a client streams much of is decoded there too.
"""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from workspaced_server.api.encoding import write_file_request

_DESERIALIZERS = {"workspaced.v1.FileService.WriteFile": write_file_request}


def serialize(message: Message | bytes) -> bytes:
    """The bytes of a response; bytes are one already."""
    return message if isinstance(message, bytes) else message.SerializeToString()


def service_handler(service: ServiceDescriptor, *servicers: object) -> grpc.GenericRpcHandler:
    """The handler for all RPCs of `service`: methods of the same names, each of the first servicer that has one.
    Raises AttributeError when none has.
    """
    handlers = {method.name: _method_handler(method, _behavior(method, servicers)) for method in service.methods}
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _behavior(method: MethodDescriptor, servicers: tuple[object, ...]) -> Any:
    for servicer in servicers:
        behavior = getattr(servicer, method.name, None)
        if behavior is not None:
            return behavior
    raise AttributeError(f"nothing serves {method.full_name}")


def _method_handler(method: MethodDescriptor, behavior: Any) -> grpc.RpcMethodHandler[Any, Any]:
    make: Any = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[method.client_streaming, method.server_streaming]
    handler: grpc.RpcMethodHandler[Any, Any] = make(
        behavior,
        request_deserializer=_DESERIALIZERS.get(method.full_name, GetMessageClass(method.input_type).FromString),
        response_serializer=serialize,
    )
    return handler
