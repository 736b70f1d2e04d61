"""What programs see of the library: names, the two faces, errors, arguments, the published service configuration."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2, descriptor_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

import workspaced
from workspaced import errors, spec
from workspaced.connection import is_loopback
from workspaced.stdin_buffer import StdinBuffer
from workspaced.v1 import (
    execution_pb2,
    file_pb2,
    lifecycle_pb2,
    port_pb2,
    process_pb2,
    server_pb2,
    workspace_pb2,
)

CLIENTS = Path(__file__).parents[3] / "clients"
RENAMED = {
    "aclose": "close",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}


def test_all_is_sorted_and_whole() -> None:
    assert workspaced.__all__ == sorted(
        workspaced.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)
    )
    for name in workspaced.__all__:
        assert hasattr(workspaced, name)
    public = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.WorkspacedError)
    }
    assert public <= set(workspaced.__all__)


def test_the_docstring_of_errors_is_the_tree() -> None:
    text = errors.__doc__ or ""
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, errors.WorkspacedError):
            assert f" {name} " in text.replace("\n", " \n"), name


@pytest.mark.parametrize("name", workspaced.sync.__all__)
def test_both_faces_have_the_same_calls(name: str) -> None:
    twin, face = getattr(workspaced, name), getattr(workspaced.sync, name)
    if not inspect.isclass(twin):
        assert inspect.signature(twin).parameters == inspect.signature(face).parameters
        return
    for method, value in vars(twin).items():
        if method.startswith("_") and method not in RENAMED:
            continue
        other = vars(face)[RENAMED.get(method, method)]
        assert isinstance(other, property) == isinstance(value, property), method
        if not isinstance(value, property):
            mine, theirs = inspect.signature(other), inspect.signature(value)
            assert mine.parameters == theirs.parameters, method
            # What is awaited or entered is, without await, what it gives.
            given = "LeasedWorkspace" if theirs.return_annotation == "Acquisition" else theirs.return_annotation
            assert mine.return_annotation == given, method
            assert not inspect.iscoroutinefunction(other), method


def test_the_synchronous_face_is_generated() -> None:
    subprocess.run([sys.executable, CLIENTS / "python" / "generate_sync.py", "--check"], check=True)


def test_the_package_carries_the_published_service_configuration() -> None:
    published = (CLIENTS / "service_config.json").read_text("utf-8")
    assert (CLIENTS / "python" / "workspaced" / "service_config.json").read_text("utf-8") == published


def test_only_repeatable_unary_calls_are_retried() -> None:
    config = json.loads((CLIENTS / "service_config.json").read_text("utf-8"))
    retried = {(name["service"], name["method"]) for part in config["methodConfig"] for name in part["name"]}
    unary: set[tuple[str, str]] = set()
    idempotent: set[tuple[str, str]] = set()
    for module in (execution_pb2, file_pb2, lifecycle_pb2, port_pb2, server_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                if method.client_streaming or method.server_streaming:
                    continue
                unary.add((service.full_name, method.name))
                if method.GetOptions().idempotency_level != descriptor_pb2.MethodOptions.IDEMPOTENCY_UNKNOWN:
                    idempotent.add((service.full_name, method.name))
    ours = {pair for pair in retried if pair[0] in {service for service, _ in unary}}
    assert ours <= unary
    assert idempotent <= ours
    # Those that are idempotent by an id that this client always sends, or by what they do.
    assert {method for _, method in ours - idempotent} == {
        "InitializeWorkspace", "CloseWorkspace", "ResetWorkspace", "ReleaseWorkspace", "RenewLease", "StartProcess",
    }  # fmt: skip


def status(code: str, reason: str = "", domain: str = "workspaced", *details: Any) -> workspaced.WorkspacedError:
    proto = status_pb2.Status()
    for detail in (error_details_pb2.ErrorInfo(domain=domain, reason=reason, metadata={"a": "b"}), *details):
        packed = any_pb2.Any()
        packed.Pack(detail)
        proto.details.append(packed)
    return errors.from_status(code, "why", {"grpc-status-details-bin": proto.SerializeToString()})


def test_a_reason_is_a_class_of_its_own() -> None:
    retry = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=1, nanos=500_000_000))
    error = status("UNAVAILABLE", "WORKSPACE_UNREACHABLE", "workspaced", retry)
    assert type(error) is workspaced.Unreachable
    assert (error.reason, error.metadata, error.retry_after) == ("WORKSPACE_UNREACHABLE", {"a": "b"}, 1.5)
    assert str(error) == "UNAVAILABLE/WORKSPACE_UNREACHABLE: why"


def test_an_unknown_reason_is_the_class_of_its_code() -> None:
    assert type(status("NOT_FOUND", "SOMETHING_NEW")) is workspaced.NotFound
    assert type(status("INTERNAL", "FILE_NOT_FOUND")) is workspaced.Internal
    assert status("NOT_FOUND", "FILE_NOT_FOUND", "somebody.else").reason == ""
    assert type(errors.from_status("NOT_FOUND", "", {"grpc-status-details-bin": b"\xff"})) is workspaced.NotFound


@pytest.mark.parametrize("code", [code.name for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_every_status_code_is_an_error(code: str) -> None:
    assert errors.from_status(code, "", {}).code == code


def test_what_counts_as_a_lost_connection() -> None:
    assert errors.connection_lost(errors.from_status("UNAVAILABLE", "", {}))
    assert errors.connection_lost(status("UNAVAILABLE", "SERVER_DRAINING"))
    assert not errors.connection_lost(status("UNAVAILABLE", "PROVIDER_UNAVAILABLE"))
    assert not errors.connection_lost(status("INTERNAL", "INTERNAL"))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("127.0.0.1:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("unix:///run/x", True),
        ("dns:///127.0.0.1:1", True),
        ("example.org:1", False),
        ("10.0.0.1:1", False),
        ("127.0.0.1.example.org:1", False),
    ],
)
def test_loopback(target: str, expected: bool) -> None:
    assert is_loopback(target) is expected


def test_a_token_does_not_go_over_the_network_in_the_clear() -> None:
    with pytest.raises(ValueError, match="tls"):
        workspaced.connect("example.org:7420", token="t")
    workspaced.connect("example.org:7420", token="t", insecure=True)
    workspaced.connect("example.org:7420", token="t", tls=workspaced.TLS())


def test_process_spec() -> None:
    made = spec.process_spec(["a", "b"], pty=(80, 24), timeout=1.5, stdin=True, disconnect_policy="kill")
    assert list(made.argv.args) == ["a", "b"]
    assert (made.pty.cols, made.pty.rows, made.timeout.nanos) == (80, 24, 500_000_000)
    assert made.disconnect_policy == process_pb2.DISCONNECT_POLICY_KILL
    with pytest.raises(ValueError, match="duration"):
        spec.process_spec("a", timeout=-1)
    with pytest.raises(ValueError, match="keep"):
        spec.process_spec("a", disconnect_policy="stay")  # type: ignore[arg-type]


def workspace_spec(**given: Any) -> workspace_pb2.WorkspaceSpec:
    arguments: dict[str, Any] = {
        "backend": None, "image": "", "template": "", "env": None, "resources": None, "network_policy": None,
        "workdir": "", "user": "", "persistent": None, "idle_timeout": None, "install_python": False,
        "seed_skills": (), "instructions": "", "options": {},
    }  # fmt: skip
    return spec.workspace_spec(**{**arguments, **given})


def test_workspace_spec() -> None:
    assert not workspace_spec().ListFields()
    options = {
        "docker": {"host_workdir": Path("/srv"), "cap_add": ["NET_RAW"], "mounts": [{"source": "/a", "target": "/b"}]}
    }
    made = workspace_spec(
        backend="Docker", resources={"pids": 5}, network_policy=["a.org"], persistent=True, options=options
    )
    assert made.backend == workspace_pb2.BACKEND_DOCKER
    assert made.docker.host_workdir == "/srv"
    assert made.docker.mounts[0].target == "/b"
    assert made.network.allow == ["a.org"]
    with pytest.raises(ValueError, match="docker"):
        workspace_spec(backend="dokcer")
    with pytest.raises(ValueError, match="no option"):
        workspace_spec(options={"docker": {"hostworkdir": "/srv"}})
    with pytest.raises(ValueError, match="options of docker"):
        workspace_spec(backend="local", options={"docker": {}})


def test_stdin_buffer() -> None:
    buffer = StdinBuffer()
    buffer.begin(10)
    buffer.append(b"abc")
    buffer.append(b"def")
    assert list(buffer.chunks(11)) == [(11, b"bc"), (13, b"def")]
    assert buffer.acknowledge(14)
    assert not buffer.acknowledge(12)
    assert list(buffer.chunks(buffer.acked)) == [(14, b"ef")]
    assert buffer.acknowledge(99)
    assert (buffer.acked, buffer.end) == (16, 16)


def test_check_raises_with_the_result() -> None:
    end = workspaced.Exit(workspaced.ExitReason.TIMED_OUT, None, "KILL", None, False, False, None)
    result = workspaced.Result("p", end, b"", b"last words", False)
    with pytest.raises(workspaced.CommandFailed, match=r"timed out \(signal KILL\): last words") as failed:
        result.check()
    assert failed.value.result is result
    assert result.reason == "TIMED_OUT"
