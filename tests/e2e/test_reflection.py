"""A caller with no file of ours: `buf curl` and plain reflection learn everything from the server itself."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import Message
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection_pb2

from tests.support.server import ServerProcess

VERSIONS = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
SERVICES = {
    f"workspaced.v1.{name}Service"
    for name in ("Discovery", "Execution", "File", "Lifecycle", "Management", "Offload", "Port", "Server")
}
BUF = Path(sys.executable).parent / "buf"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("reflection") / "state")
    server.start()
    yield server
    assert server.stop() == 0


def curl(server: ServerProcess, home: Path, path: str, *arguments: str, code: int = 0) -> str:
    """What `buf curl` prints; run where there is neither a proto file nor a configuration of buf."""
    done = subprocess.run(
        [
            str(BUF),
            "curl",
            "--protocol",
            "grpc",
            "--http2-prior-knowledge",
            *arguments,
            f"http://{server.address}{path}",
        ],
        cwd=home,
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


@pytest.mark.parametrize("protocol", ["grpc-v1", "grpc-v1alpha"])
def test_buf_lists_services_and_methods(server: ServerProcess, tmp_path: Path, protocol: str) -> None:
    reflect = ("--reflect-protocol", protocol)
    services = curl(server, tmp_path, "", *reflect, "--list-services").split()
    assert {*SERVICES, "grpc.health.v1.Health", *(f"{name}.ServerReflection" for name in VERSIONS)} == set(services)
    methods = curl(server, tmp_path, "", *reflect, "--list-methods").split()
    assert {"workspaced.v1.ExecutionService/Exec", "workspaced.v1.LifecycleService/InitializeWorkspace"} <= set(methods)


@pytest.mark.parametrize("protocol", ["grpc-v1", "grpc-v1alpha"])
def test_buf_runs_a_command(server: ServerProcess, tmp_path: Path, protocol: str) -> None:
    name = f"reflected-{uuid.uuid4().hex[:8]}"

    def call(method: str, **request: Any) -> list[dict[str, Any]]:
        data = json.dumps({"workspace_id": name, **request})
        text = curl(server, tmp_path, f"/workspaced.v1.{method}", "--reflect-protocol", protocol, "-d", data)
        decoder, found = json.JSONDecoder(), []
        while text := text.strip():
            value, end = decoder.raw_decode(text)
            found.append(value)
            text = text[end:]
        return found

    call("LifecycleService/InitializeWorkspace", spec={"backend": "BACKEND_LOCAL"})
    (ran,) = call("ExecutionService/RunProcess", spec={"shell_command": "printf hello; exit 3"})
    ended = ran["process"]["exit"]
    assert (ended["exitCode"], ended["reason"]) == (3, "EXIT_REASON_EXITED")
    assert base64.b64decode(ran["stdout"]) == b"hello"
    call("ExecutionService/StartProcess", process_id="p", spec={"shell_command": "echo streamed"})
    streamed = call("ExecutionService/AttachProcess", process_id="p")
    assert streamed[-1]["event"]["exited"]["exitCode"] == 0
    text = base64.b64encode(b"streamed\n").decode()
    assert any(text in json.dumps(event) for event in streamed)
    call("LifecycleService/DeleteWorkspace")


def test_an_error_tells_its_reason_to_buf(server: ServerProcess, tmp_path: Path) -> None:
    path = "/workspaced.v1.LifecycleService/GetWorkspace"
    # buf ends with the code of gRPC times eight.
    said = json.loads(curl(server, tmp_path, path, "-d", '{"workspace_id": "nobody"}', code=8 * 5))
    assert said["code"] == "not_found"
    (info,) = (item["value"] for item in said["details"] if item["type"] == "google.rpc.ErrorInfo")
    told = error_details_pb2.ErrorInfo.FromString(base64.b64decode(info + "=" * (-len(info) % 4)))
    assert (told.domain, told.reason) == ("workspaced", "WORKSPACE_NOT_FOUND")


def test_health_is_reflected(server: ServerProcess, tmp_path: Path) -> None:
    assert json.loads(curl(server, tmp_path, "/grpc.health.v1.Health/Check", "-d", "{}")) == {"status": "SERVING"}


# As grpcurl does it: no generated code, only descriptors that the server sent


class Reflected:
    """Calls by names and plain data, with descriptors from reflection."""

    def __init__(self, channel: grpc.Channel, version: str) -> None:
        self._channel = channel
        self._ask = channel.stream_stream(
            f"/{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        self.pool = descriptor_pool.DescriptorPool()
        self._known: set[str] = set()

    def ask(self, **request: Any) -> reflection_pb2.ServerReflectionResponse:
        (answer,) = self._ask(iter([reflection_pb2.ServerReflectionRequest(**request)]), timeout=20)
        return answer

    def learn(self, symbol: str) -> None:
        answer = self.ask(file_containing_symbol=symbol)
        self._add(answer.file_descriptor_response.file_descriptor_proto)

    def _add(self, files: Any) -> None:
        """Add files to the pool, each after what it imports."""
        for proto in (descriptor_pb2.FileDescriptorProto.FromString(data) for data in files):
            if proto.name in self._known:
                continue
            for needed in proto.dependency:
                if needed not in self._known:
                    self._add(self.ask(file_by_filename=needed).file_descriptor_response.file_descriptor_proto)
            self.pool.AddSerializedFile(proto.SerializeToString())
            self._known.add(proto.name)

    def call(self, service: str, method: str, **request: Any) -> dict[str, Any]:
        found = self.pool.FindServiceByName(service).methods_by_name[method]
        kinds = [message_factory.GetMessageClass(kind) for kind in (found.input_type, found.output_type)]
        invoke: Callable[..., Message] = self._channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=kinds[1].FromString,
        )
        answer = invoke(json_format.ParseDict(request, kinds[0]()), timeout=30)
        return json_format.MessageToDict(answer, descriptor_pool=self.pool)


@pytest.mark.parametrize("version", VERSIONS)
def test_descriptors_from_reflection_are_enough(server: ServerProcess, version: str) -> None:
    name = f"described-{uuid.uuid4().hex[:8]}"
    with grpc.insecure_channel(server.address) as channel:
        reflected = Reflected(channel, version)
        listed = {item.name for item in reflected.ask(list_services="").list_services_response.service}
        assert listed >= SERVICES
        for service in sorted(SERVICES):
            reflected.learn(service)
        lifecycle, execution = "workspaced.v1.LifecycleService", "workspaced.v1.ExecutionService"
        reflected.call(lifecycle, "InitializeWorkspace", workspace_id=name, spec={"backend": "BACKEND_LOCAL"})
        ran = reflected.call(execution, "RunProcess", workspace_id=name, spec={"shell_command": "exit 9"})
        assert ran["process"]["exit"]["exitCode"] == 9
        reflected.call(lifecycle, "DeleteWorkspace", workspace_id=name)


def test_what_is_unknown_is_not_found(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        answer = Reflected(channel, VERSIONS[0]).ask(file_containing_symbol="no.Such")
    assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
