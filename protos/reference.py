"""A protoc plugin that writes the reference manual of the API, in Markdown, from the comments of the protos.

One page a service, with its RPCs and the messages and enums that only it uses; one page, ``types.md``, with what
several share; and a ``README.md`` that lists them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from google.protobuf.compiler import plugin_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    MethodOptions,
    ServiceDescriptorProto,
)
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

NOTICE = "<!-- Generated from protos/ by `make generate`; edit the comments there. -->\n"
SCOPE_FIELD = 50420
SECRET_FIELD = 50421
# Numbers of the fields of FileDescriptorProto and its parts, which make up the paths of source locations.
FILE_MESSAGE, FILE_ENUM, FILE_SERVICE = 4, 5, 6
MESSAGE_FIELD, MESSAGE_NESTED, MESSAGE_ENUM, MESSAGE_ONEOF = 2, 3, 4, 8
MEMBER = 2  # of a service its methods, of an enum its values

Path = tuple[int, ...]


@dataclass(frozen=True)
class Type:
    """A message or an enum, where it is declared and what it refers to."""

    name: str
    order: tuple[str, int]
    path: Path
    comments: Mapping[Path, str]
    message: DescriptorProto | None = None
    enum: EnumDescriptorProto | None = None
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class Service:
    """A service and where it is declared."""

    proto: ServiceDescriptorProto
    path: Path
    comments: Mapping[Path, str]

    @property
    def page(self) -> str:
        words: list[str] = re.findall("[A-Z][a-z0-9]*", self.proto.name.removesuffix("Service"))
        return "-".join(words).lower() + ".md"


@dataclass
class Contract:
    """What the protos declare, by full name without the package."""

    package: str
    services: list[Service] = field(default_factory=list)
    types: dict[str, Type] = field(default_factory=dict)
    scopes: dict[int, str] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)

    def local(self, name: str) -> str | None:
        """``Workspace`` for ``.workspaced.v1.Workspace``; None for a type of another package."""
        prefix = f".{self.package}."
        return name.removeprefix(prefix) if name.startswith(prefix) else None


def comments_of(file: FileDescriptorProto) -> dict[Path, str]:
    """The leading comment of each location, without the blank that follows the slashes."""
    return {
        tuple(location.path): "\n".join(line.removeprefix(" ") for line in location.leading_comments.splitlines())
        for location in file.source_code_info.location
        if location.leading_comments
    }


def read(files: Sequence[FileDescriptorProto]) -> Contract:
    contract = Contract(files[0].package)
    for file in files:
        comments = comments_of(file)
        for index, enum in enumerate(file.enum_type):
            add_enum(contract, file, enum, (FILE_ENUM, index), "", comments)
        for index, message in enumerate(file.message_type):
            add_message(contract, file, message, (FILE_MESSAGE, index), "", comments)
        for index, service in enumerate(file.service):
            contract.services.append(Service(service, (FILE_SERVICE, index), comments))
    contract.services.sort(key=lambda service: service.proto.name)
    scope = contract.types["Scope"].enum
    assert scope is not None
    contract.scopes = {value.number: value.name.removeprefix("SCOPE_") for value in scope.value}
    place(contract)
    return contract


def add_enum(
    contract: Contract,
    file: FileDescriptorProto,
    enum: EnumDescriptorProto,
    path: Path,
    outer: str,
    comments: Mapping[Path, str],
) -> None:
    contract.types[outer + enum.name] = Type(
        outer + enum.name, (file.name, len(contract.types)), path, comments, enum=enum
    )


def add_message(
    contract: Contract,
    file: FileDescriptorProto,
    message: DescriptorProto,
    path: Path,
    outer: str,
    comments: Mapping[Path, str],
) -> None:
    if message.options.map_entry:
        return
    name = outer + message.name
    references = [declared.type_name for declared in message.field]
    references += [inner.field[1].type_name for inner in message.nested_type if inner.options.map_entry]
    names = tuple(local for reference in references if (local := contract.local(reference)))
    contract.types[name] = Type(
        name, (file.name, len(contract.types)), path, comments, message=message, references=names
    )
    for index, enum in enumerate(message.enum_type):
        add_enum(contract, file, enum, (*path, MESSAGE_ENUM, index), f"{name}.", comments)
    for index, inner in enumerate(message.nested_type):
        add_message(contract, file, inner, (*path, MESSAGE_NESTED, index), f"{name}.", comments)


def place(contract: Contract) -> None:
    """Decides on which page each type is described: its only service's, or the shared one."""
    users: dict[str, set[str]] = {name: set() for name in contract.types}
    for service in contract.services:
        for method in service.proto.method:
            pending = [contract.local(method.input_type), contract.local(method.output_type)]
            while pending:
                name = pending.pop()
                if name in contract.types and service.page not in users[name]:
                    users[name].add(service.page)
                    pending += contract.types[name].references
    for name, pages in users.items():
        contract.pages[name] = next(iter(pages)) if len(pages) == 1 else "types.md"


def render(contract: Contract) -> Iterator[tuple[str, str]]:
    """The pages: file name and text."""
    yield "README.md", index_page(contract)
    for service in contract.services:
        yield service.page, service_page(contract, service)
    yield "types.md", "".join([NOTICE, "\n# Shared types\n", *describe(contract, "types.md")])


def index_page(contract: Contract) -> str:
    lines = [NOTICE, f"\n# Reference of {contract.package}\n"]
    for service in contract.services:
        lines.append(f"\n## [{service.proto.name}]({service.page})\n\n| RPC | scope | |\n|---|---|---|\n")
        for index, method in enumerate(service.proto.method):
            summary = first_sentence(service.comments[(*service.path, MEMBER, index)])
            target = f"[{method.name}]({service.page}#{method.name.lower()})"
            lines.append(f"| {target} | {scope(contract, method)} | {cell(summary)} |\n")
    lines.append("\nMessages and enums that several services use are in [shared types](types.md).\n")
    return "".join(lines)


def service_page(contract: Contract, service: Service) -> str:
    lines = [NOTICE, f"\n# {service.proto.name}\n\n{service.comments[service.path]}\n"]
    for index, method in enumerate(service.proto.method):
        comment = service.comments[(*service.path, MEMBER, index)]
        lines.append(f"\n## {method.name}\n\n```proto\n{signature(contract, method)}\n```\n\n{comment}\n")
        request, response = (link(contract, service.page, name) for name in (method.input_type, method.output_type))
        lines.append(f"\nRequest: {request}. Response: {response}. Scope: {scope(contract, method)}.")
        if method.options.idempotency_level == MethodOptions.NO_SIDE_EFFECTS:
            lines.append(" Safe to retry: it has no side effects.")
        elif method.options.idempotency_level == MethodOptions.IDEMPOTENT:
            lines.append(" Safe to retry: it is idempotent.")
        lines.append("\n")
    lines.append("\n# Messages and enums\n")
    lines += describe(contract, service.page)
    return "".join(lines)


def describe(contract: Contract, page: str) -> Iterator[str]:
    shown = sorted((t for t in contract.types.values() if contract.pages[t.name] == page), key=lambda t: t.order)
    for declared in shown:
        yield f"\n## {declared.name}\n\n{declared.comments[declared.path]}\n"
        if declared.message is not None:
            yield from describe_fields(contract, page, declared, declared.message)
        if declared.enum is not None:
            yield "\n| value | number | |\n|---|---|---|\n"
            for index, value in enumerate(declared.enum.value):
                comment = declared.comments[(*declared.path, MEMBER, index)]
                yield f"| `{value.name}` | {value.number} | {cell(comment)} |\n"


def describe_fields(contract: Contract, page: str, declared: Type, message: DescriptorProto) -> Iterator[str]:
    if not message.field:
        return
    yield "\n| field | type | number | |\n|---|---|---|---|\n"
    oneof = None
    for index, item in enumerate(message.field):
        inside = item.HasField("oneof_index") and not item.proto3_optional
        if inside and item.oneof_index != oneof:
            oneof = item.oneof_index
            comment = declared.comments[(*declared.path, MESSAGE_ONEOF, oneof)]
            yield f"| *one of `{message.oneof_decl[oneof].name}`* | | | {cell(comment)} |\n"
        comment = cell(declared.comments[(*declared.path, MESSAGE_FIELD, index)])
        if option(item.options, SECRET_FIELD):
            comment += " **Secret.**"
        name = f"↳ `{item.name}`" if inside else f"`{item.name}`"
        yield f"| {name} | {field_type(contract, page, message, item)} | {item.number} | {comment} |\n"


def field_type(contract: Contract, page: str, message: DescriptorProto, item: FieldDescriptorProto) -> str:
    for inner in message.nested_type:
        if inner.options.map_entry and item.type_name.endswith(f".{message.name}.{inner.name}"):
            key, value = (field_type(contract, page, inner, part) for part in inner.field)
            return f"map of {key} to {value}"
    if item.type_name:
        name = link(contract, page, item.type_name)
    else:
        name = FieldDescriptorProto.Type.Name(item.type).removeprefix("TYPE_").lower()
    if item.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {name}"
    return f"optional {name}" if item.proto3_optional else name


def link(contract: Contract, page: str, type_name: str) -> str:
    name = contract.local(type_name)
    if name is None:
        return type_name.removeprefix(".google.protobuf.")
    target = contract.pages[name]
    return f"[{name}]({'' if target == page else target}#{name.lower().replace('.', '')})"


def signature(contract: Contract, method: MethodDescriptorProto) -> str:
    request = "stream " * method.client_streaming + (contract.local(method.input_type) or method.input_type)
    response = "stream " * method.server_streaming + (contract.local(method.output_type) or method.output_type)
    return f"rpc {method.name}({request}) returns ({response})"


def scope(contract: Contract, method: MethodDescriptorProto) -> str:
    """The scope that the RPC declares; an RPC without one is a mistake in the protos."""
    value = option(method.options, SCOPE_FIELD)
    if value is None:
        raise ValueError(f"{method.name} declares no required_scope")
    return contract.scopes[value]


def option(options: Message, number: int) -> int | None:
    """The value of one of our own options: unknown to this program, which runs before their module is generated."""
    fields = UnknownFieldSet(options)
    for unknown in (fields[index] for index in range(len(fields))):
        if unknown.field_number == number:
            assert isinstance(unknown.data, int)
            return unknown.data
    return None


def first_sentence(comment: str) -> str:
    paragraph = " ".join(comment.split("\n\n")[0].splitlines())
    return re.split(r"(?<=[.:;]) ", paragraph)[0].rstrip(".:;") + "."


def cell(comment: str) -> str:
    """A comment as the content of a table's cell."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in comment.split("\n\n")]
    return "<br>".join(paragraphs).replace("|", "\\|")


def main() -> None:
    request = plugin_pb2.CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
    wanted = set(request.file_to_generate)
    contract = read([file for file in request.proto_file if file.name in wanted])
    response = plugin_pb2.CodeGeneratorResponse(
        supported_features=plugin_pb2.CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL
    )
    for name, text in render(contract):
        response.file.add(name=name, content=text)
    sys.stdout.buffer.write(response.SerializeToString())


if __name__ == "__main__":
    main()
