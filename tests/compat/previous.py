"""A client of an earlier revision of the contract, made at run time from the descriptors that were frozen then.

``revision_<N>.binpb`` is the ``google.protobuf.FileDescriptorSet`` of revision N, without comments; what an earlier
release had generated knows no more than that. docs/compatibility.md says when another is added.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

DIRECTORY = Path(__file__).parent
REVISIONS = sorted(int(path.stem.removeprefix("revision_")) for path in DIRECTORY.glob("revision_*.binpb"))


def descriptors(revision: int) -> descriptor_pb2.FileDescriptorSet:
    """The frozen files of a revision, with what they import."""
    content = (DIRECTORY / f"revision_{revision}.binpb").read_bytes()
    return descriptor_pb2.FileDescriptorSet.FromString(content)


class Contract:
    """The services and messages of a revision, apart from those that this program has generated code of."""

    def __init__(self, revision: int) -> None:
        self.pool = descriptor_pool.DescriptorPool()
        self._files = descriptors(revision).file
        for file in self._files:
            self.pool.Add(file)

    def services(self) -> Iterator[ServiceDescriptor]:
        """All, in the order of their names."""
        for file in self._files:
            for service in file.service:
                yield self.pool.FindServiceByName(f"{file.package}.{service.name}")

    def method(self, name: str) -> MethodDescriptor:
        """The RPC of this name; names are unique in the contract."""
        (found,) = (method for service in self.services() for method in service.methods if method.name == name)
        return found


class PreviousClient:
    """Calls RPCs by name with requests as dictionaries, and checks that every answer is one that it understands."""

    def __init__(self, contract: Contract, channel: grpc.aio.Channel) -> None:
        self._contract = contract
        self._channel = channel
        self._answered: set[str] = set()

    async def ask(self, rpc: str, *requests: dict[str, Any]) -> Any:
        """The one answer, or the last of a stream."""
        return (await self.answers(rpc, *requests))[-1]

    async def answers(self, rpc: str, *requests: dict[str, Any]) -> list[Any]:
        """All answers of a call that ends by itself."""
        async with aclosing(self.stream(rpc, *requests)) as stream:
            return [answer async for answer in stream]

    async def stream(self, rpc: str, *requests: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """The answers as they come. The call is cancelled when the generator is closed."""
        method = self._contract.method(rpc)
        request_class = message_factory.GetMessageClass(method.input_type)
        response_class = message_factory.GetMessageClass(method.output_type)
        messages = [json_format.ParseDict(request, request_class()) for request in requests]
        call = self._channel.stream_stream(
            f"/{method.containing_service.full_name}/{rpc}",
            request_serializer=request_class.SerializeToString,
            response_deserializer=response_class.FromString,
        )(iter(messages), timeout=60)
        try:
            async for answer in call:
                assert_understood(answer)
                self._answered.add(rpc)
                yield answer
        finally:
            call.cancel()

    def unanswered(self, service: str) -> list[str]:
        """The RPCs of a service that no test has had an answer of."""
        found = self._contract.pool.FindServiceByName(f"workspaced.v1.{service}")
        return [method.name for method in found.methods if method.name not in self._answered]


def assert_understood(message: Message) -> None:
    """What is unknown in an answer has numbers of its own: a field that changed its type would be found here."""
    own = {field.number for field in message.DESCRIPTOR.fields}
    unknown: Any = UnknownFieldSet(message)
    moved = own & {field.field_number for field in unknown}
    assert not moved, f"{message.DESCRIPTOR.full_name}: fields {sorted(moved)} are no longer of the type that they were"
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for part in value if field.is_repeated else [value]:
            assert_understood(part)
