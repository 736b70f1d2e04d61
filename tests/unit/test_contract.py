"""The contract holds what was promised of it, beyond what buf can lint."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor, ServiceDescriptor

from workspaced.v1 import options_pb2

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "clients/python/workspaced/v1"

UNARY, CLIENT_STREAM, SERVER_STREAM, BIDIRECTIONAL = (False, False), (True, False), (False, True), (True, True)

FILES = {
    "discovery": "DiscoveryService",
    "execution": "ExecutionService",
    "file": "FileService",
    "lifecycle": "LifecycleService",
    "management": "ManagementService",
    "offload": "OffloadService",
    "port": "PortService",
    "server": "ServerService",
}
RPCS = {
    "DiscoveryService": "ListTools ListMcps ListSkills GetSkill GetInstructions ListMcpResources ReadMcpResource "
    "ListMcpPrompts GetMcpPrompt",
    "ExecutionService": "Exec StartProcess AttachProcess RunProcess GetProcess ListProcesses SignalProcess WriteStdin "
    "WaitProcess CallTool",
    "FileService": "ReadFile WriteFile StatFile ListFiles WatchFiles MakeDirectory MoveFile CopyFile RemoveFile",
    "LifecycleService": "InitializeWorkspace CloseWorkspace ResetWorkspace DeleteWorkspace GetWorkspace ListWorkspaces "
    "WatchWorkspaces AcquireWorkspace ReleaseWorkspace RenewLease",
    "ManagementService": "AddMcp RemoveMcp AddSkill RemoveSkill PurgeSession PurgeAgent",
    "OffloadService": "OffloadContext OffloadToolResult OffloadData ListOffloads ReadOffload",
    "PortService": "Tunnel ListPorts",
    "ServerService": "GetServerInfo",
}
STREAMING = {
    "AddSkill": CLIENT_STREAM,
    "AttachProcess": SERVER_STREAM,
    "CallTool": SERVER_STREAM,
    "Exec": BIDIRECTIONAL,
    "OffloadContext": CLIENT_STREAM,
    "OffloadData": CLIENT_STREAM,
    "ReadFile": SERVER_STREAM,
    "ReadOffload": SERVER_STREAM,
    "Tunnel": BIDIRECTIONAL,
    "WatchFiles": SERVER_STREAM,
    "WatchWorkspaces": SERVER_STREAM,
    "WriteFile": CLIENT_STREAM,
}


def services() -> Iterator[ServiceDescriptor]:
    for file, name in FILES.items():
        import_module(f"workspaced.v1.{file}_pb2")
        yield descriptor_pool.Default().FindServiceByName(f"workspaced.v1.{name}")


def methods() -> Iterator[MethodDescriptor]:
    for service in services():
        yield from service.methods


def messages() -> Iterator[Descriptor]:
    """Every message that a request or a response can hold, of our own package."""
    pending = [message for method in methods() for message in (method.input_type, method.output_type)]
    seen: set[str] = set()
    while pending:
        message = pending.pop()
        if message.full_name in seen or not message.full_name.startswith("workspaced.v1."):
            continue
        seen.add(message.full_name)
        yield message
        pending += [field.message_type for field in message.fields if field.message_type is not None]


EACH_RPC = pytest.mark.parametrize("method", list(methods()), ids=lambda method: method.name)


@pytest.mark.parametrize("service", list(services()), ids=lambda service: service.name)
def test_service_has_the_promised_rpcs(service: ServiceDescriptor) -> None:
    assert [method.name for method in service.methods] == RPCS[service.name].split()


@EACH_RPC
def test_rpc_streams_as_promised(method: MethodDescriptor) -> None:
    assert (method.client_streaming, method.server_streaming) == STREAMING.get(method.name, UNARY)


@EACH_RPC
def test_rpc_declares_its_scope(method: MethodDescriptor) -> None:
    assert method.GetOptions().Extensions[options_pb2.required_scope] != options_pb2.SCOPE_UNSPECIFIED


@EACH_RPC
def test_rpc_without_side_effects_needs_no_more_than_read(method: MethodDescriptor) -> None:
    options = method.GetOptions()
    if options.idempotency_level == options.NO_SIDE_EFFECTS:
        assert options.Extensions[options_pb2.required_scope] == options_pb2.SCOPE_READ


@EACH_RPC
def test_list_is_paged(method: MethodDescriptor) -> None:
    if method.name.startswith("List"):
        assert {"page_size", "page_token"} <= set(method.input_type.fields_by_name)
        assert "next_page_token" in method.output_type.fields_by_name


def test_ids_of_agent_and_session_tell_absent_from_empty() -> None:
    required = {"OffloadContextStart", "OffloadToolResultRequest", "Offload", "PurgeSessionRequest"}
    for message in messages():
        for name in ("agent_id", "session_id"):
            field = message.fields_by_name.get(name)
            if field is not None and not (name == "session_id" and message.name in required):
                assert field.has_presence, field.full_name


def test_values_that_may_hold_secrets_are_marked() -> None:
    unmarked = [
        field.full_name
        for message in messages()
        for field in message.fields
        if field.name in {"env", "headers"} and not is_secret(field)
    ]
    assert unmarked == []


def is_secret(field: FieldDescriptor) -> bool:
    return field.GetOptions().Extensions[options_pb2.secret]


@pytest.mark.parametrize(
    "project", [ROOT / "pyproject.toml", ROOT / "clients/python/pyproject.toml"], ids=["server", "client"]
)
def test_distributions_require_what_the_generated_code_does(project: Path) -> None:
    """Generated modules refuse an older runtime when they are imported; an installation must not get that far."""
    requirements = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
    grpc_module = (GENERATED / "server_pb2_grpc.py").read_text(encoding="utf-8")
    grpcio = re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", grpc_module)
    protobuf = re.search(
        r"Protobuf Python Version: ([\d.]+)", (GENERATED / "server_pb2.py").read_text(encoding="utf-8")
    )
    assert grpcio is not None
    assert protobuf is not None
    assert f"grpcio>={grpcio[1]}" in requirements
    assert f"protobuf>={protobuf[1]}" in requirements
