"""What an earlier contract had is in the present one, under the same names and numbers and of the same type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from tests.compat.previous import REVISIONS, descriptors

Lines = set[tuple[object, ...]]
PREFIX = "workspaced/v1/"


def lines_of(file: FileDescriptorProto) -> Lines:
    """One tuple for each promise that a file makes."""
    found: Lines = set()
    for service in file.service:
        for method in service.method:
            streams = (method.client_streaming, method.server_streaming)
            found.add(("rpc", service.name, method.name, method.input_type, method.output_type, *streams))
    found |= _enums("", file.enum_type)
    for scope, message in _messages("", file.message_type):
        found |= _enums(f"{scope}.", message.enum_type)
        for field in message.field:
            member = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
            kind = (field.type, field.label, field.type_name, field.proto3_optional, member)
            found.add(("field", scope, field.name, field.number, *kind))
    return found


def _messages(scope: str, messages: Sequence[DescriptorProto]) -> Iterator[tuple[str, DescriptorProto]]:
    for message in messages:
        name = f"{scope}.{message.name}" if scope else message.name
        yield name, message
        yield from _messages(name, message.nested_type)


def _enums(scope: str, enums: Any) -> Lines:
    return {("enum", f"{scope}{enum.name}", value.name, value.number) for enum in enums for value in enum.value}


def present(name: str) -> FileDescriptorProto:
    """The file as it is now."""
    proto = FileDescriptorProto()
    import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR.CopyToProto(proto)
    return proto


@pytest.mark.parametrize("revision", REVISIONS)
def test_nothing_is_gone_or_different(revision: int) -> None:
    files = [file for file in descriptors(revision).file if file.name.startswith(PREFIX)]
    assert files
    for file in files:
        assert lines_of(file) - lines_of(present(file.name)) == set()


def test_a_moved_field_would_be_found() -> None:
    file = next(file for file in descriptors(1).file if file.name == f"{PREFIX}process.proto")
    before = lines_of(file)
    file.message_type[0].field[0].number = 999
    assert len(before - lines_of(file)) == 1
