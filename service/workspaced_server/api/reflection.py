"""Reflection under both of its names. grpcio ships v1alpha only; v1 has the same messages in another package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha._async import ReflectionServicer

V1ALPHA: Final = "grpc.reflection.v1alpha.ServerReflection"
V1: Final = "grpc.reflection.v1.ServerReflection"


def handlers(services: Sequence[str]) -> list[grpc.GenericRpcHandler]:
    """Handlers of both versions, which tell of ``services`` and of themselves."""
    _describe_v1()
    servicer = ReflectionServicer(service_names=[*services, V1, V1ALPHA])
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return [grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": method}) for name in (V1, V1ALPHA)]


def _describe_v1() -> None:
    """Add the file of v1 to the pool, so that the service can describe itself."""
    pool = descriptor_pool.Default()
    name = "grpc/reflection/v1/reflection.proto"
    try:
        pool.FindFileByName(name)
    except KeyError:
        file = descriptor_pb2.FileDescriptorProto()
        reflection_pb2.DESCRIPTOR.CopyToProto(file)
        text = file.SerializeToString()
        file = descriptor_pb2.FileDescriptorProto.FromString(text)
        file.name, file.package = name, "grpc.reflection.v1"
        old, new = ".grpc.reflection.v1alpha.", ".grpc.reflection.v1."
        for message in file.message_type:
            for field in message.field:
                if not field.type_name:
                    continue
                field.type_name = field.type_name.replace(old, new)
        for service in file.service:
            for method in service.method:
                method.input_type = method.input_type.replace(old, new)
                method.output_type = method.output_type.replace(old, new)
        pool.AddSerializedFile(file.SerializeToString())
