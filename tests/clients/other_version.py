"""A server of another version: ``python -m tests.clients.other_version ADDRESS CHANGES`` relays to a real server.

Unless CHANGES (JSON) says ``"unknown": false``, every message of every answer, however deep, carries fields that no
client knows, each stream has messages and events of kinds that no client knows between its own, and the status of an
error has a detail of an unknown type. Further keys:

``set``      {full name of a field: value}: a scalar or enumeration with another value, wherever it is set
``reasons``  {reason: another reason} of errors
``codes``    {reason: name of another status code}
``revision`` the revision of the API that each answer names
``blocks``   true: each list of content blocks has one more, of an unknown kind

Prints the port that it listens on.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from workspaced.v1 import (
    content_pb2,
    discovery_pb2,
    execution_pb2,
    file_pb2,
    lifecycle_pb2,
    management_pb2,
    offload_pb2,
    port_pb2,
    server_pb2,
)
from workspaced_server.api.revision import REVISION_KEY

_MODULES: tuple[Any, ...] = (
    discovery_pb2, execution_pb2, file_pb2, lifecycle_pb2, management_pb2, offload_pb2, port_pb2, server_pb2,
)  # fmt: skip
_OPTIONS = [("grpc.max_receive_message_length", 8 << 20), ("grpc.max_send_message_length", 8 << 20)]
_DETAILS = "grpc-status-details-bin"


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


_UNKNOWN = b"".join(
    (
        _key(15001, 0) + _varint(7),
        _key(15002, 2) + _varint(6) + b"future",
        _key(15003, 1) + bytes(8),
        _key(15004, 5) + bytes(4),
    )
)
"""A field of each wire type."""


class Changes:
    """What is made of messages and errors on their way to the client."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._unknown: bool = settings.get("unknown", True)
        self._set: dict[str, Any] = settings.get("set", {})
        self._reasons: dict[str, str] = settings.get("reasons", {})
        self._codes: dict[str, str] = settings.get("codes", {})
        self._blocks: bool = settings.get("blocks", False)
        self._revision: int | None = settings.get("revision")

    def message(self, message: Message) -> bytes:
        """The bytes of a message as the other version would send it."""
        self._change(message)
        return message.SerializeToString()

    def between(self, cls: type[Message]) -> Iterable[bytes]:
        """What is sent between the messages of a stream: one of no known kind, and an event of no known kind."""
        if not self._unknown:
            return
        yield _UNKNOWN
        event = cls.DESCRIPTOR.fields_by_name.get("event")
        if event is not None and event.message_type is not None:
            yield _key(event.number, 2) + _varint(len(_UNKNOWN)) + _UNKNOWN

    def error(self, error: grpc.aio.AioRpcError) -> tuple[grpc.StatusCode, str, list[tuple[str, str | bytes]]]:
        """Code, message and trailers of an error."""
        code, message = error.code(), error.details() or ""
        trailers = [(name, value) for name, value in self.metadata(error.trailing_metadata()) if name != _DETAILS]
        status = status_pb2.Status()
        for name, value in error.trailing_metadata() or ():
            if name == _DETAILS:
                status.ParseFromString(value)
        for detail in status.details:
            if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
                info = error_details_pb2.ErrorInfo()
                detail.Unpack(info)
                code = grpc.StatusCode[self._codes.get(info.reason, code.name)]
                info.reason = self._reasons.get(info.reason, info.reason)
                detail.Pack(info)
        status.code = code.value[0]
        if self._unknown and status.details:
            future = any_pb2.Any(type_url="type.googleapis.com/workspaced.v9.Future", value=b"\xff\xff\xff")
            status.details.insert(0, future)
        if status.details:
            trailers.append((_DETAILS, status.SerializeToString()))
        return code, message, trailers

    def metadata(self, given: Any) -> list[tuple[str, str | bytes]]:
        """Metadata of an answer."""
        revision = self._revision
        return [
            (name, str(revision) if name == REVISION_KEY and revision is not None else value)
            for name, value in given or ()
            if not name.startswith("grpc-") or name == _DETAILS
        ]

    def _change(self, message: Message) -> None:
        for field, value in message.ListFields():
            if field.message_type is None:
                continue
            if field.message_type.GetOptions().map_entry:
                if field.message_type.fields_by_name["value"].message_type is not None:
                    for item in value.values():
                        self._change(item)
            elif field.is_repeated:
                for item in value:
                    self._change(item)
                if self._blocks and field.message_type is content_pb2.ContentBlock.DESCRIPTOR:
                    value.add().MergeFromString(_UNKNOWN)
            else:
                self._change(value)
        for declared in message.DESCRIPTOR.fields:
            if declared.full_name in self._set and self._is_there(message, declared):
                setattr(message, declared.name, self._set[declared.full_name])
        if self._unknown:
            message.MergeFromString(_UNKNOWN)

    @staticmethod
    def _is_there(message: Message, field: Any) -> bool:
        return message.HasField(field.name) if field.has_presence else True


class Relay:
    """Handles every method of the API by calling it at the real server."""

    def __init__(self, channel: grpc.aio.Channel, changes: Changes) -> None:
        self._channel = channel
        self._changes = changes

    def handler(self, service: ServiceDescriptor) -> grpc.GenericRpcHandler:
        """All methods of a service."""
        methods = {method.name: self._method(method) for method in service.methods}
        return grpc.method_handlers_generic_handler(service.full_name, methods)

    def _method(self, method: MethodDescriptor) -> grpc.RpcMethodHandler[Any, Any]:
        path = f"/{method.containing_service.full_name}/{method.name}"
        cls = GetMessageClass(method.output_type)
        call: Any = self._channel.stream_stream(path, None, cls.FromString)  # any call looks so on the wire

        async def relay(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            metadata = tuple((key, value) for key, value in context.invocation_metadata() if _is_passed_on(key))
            left = context.time_remaining()
            upstream = call(requests, metadata=metadata, timeout=left)
            try:
                await context.send_initial_metadata(self._changes.metadata(await upstream.initial_metadata()))
                async for response in upstream:
                    if method.server_streaming:
                        for message in self._changes.between(cls):
                            yield message
                    yield self._changes.message(response)
                context.set_trailing_metadata(self._changes.metadata(await upstream.trailing_metadata()))
            except grpc.aio.AioRpcError as error:
                code, details, trailers = self._changes.error(error)
                await context.abort(code, details, tuple(trailers))
            finally:
                upstream.cancel()

        return grpc.stream_stream_rpc_method_handler(relay)


def _is_passed_on(key: str) -> bool:
    return not key.startswith((":", "grpc-")) and key not in ("user-agent", "te", "content-type")


async def main(address: str, settings: dict[str, Any]) -> None:
    """Serve until the process is ended."""
    async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
        server = grpc.aio.server(options=_OPTIONS)
        relay = Relay(channel, Changes(settings))
        for module in _MODULES:
            for service in module.DESCRIPTOR.services_by_name.values():
                server.add_generic_rpc_handlers((relay.handler(service),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
