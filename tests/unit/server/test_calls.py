"""What a client of the whole server sees: errors, request ids, scopes, drain. The backend is the fake one."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
import trustme
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from tests.support.fake_driver import FakeDriver, fake_connect
from workspaced.v1 import lifecycle_pb2 as pb
from workspaced.v1 import lifecycle_pb2_grpc as rpc
from workspaced.v1 import workspace_pb2
from workspaced_server.api import interceptors
from workspaced_server.api.auth import new_token
from workspaced_server.api.server import FILES, ApiServer
from workspaced_server.config import Config, ConfigError, load
from workspaced_server.workspaces.manager import Workspaces
from workspaced_server.workspaces.registry import Registry

pytestmark = pytest.mark.anyio


@dataclass
class Served:
    """A server with its client's stub."""

    server: ApiServer
    workspaces: Workspaces
    driver: FakeDriver
    channel: grpc.aio.Channel
    port: int

    @property
    def stub(self) -> Any:
        return rpc.LifecycleServiceStub(self.channel)


@asynccontextmanager
async def serving(
    tmp_path: Path, credentials: grpc.ChannelCredentials | None = None, flags: Mapping[str, object] | None = None
) -> AsyncIterator[Served]:
    config: Config = load(environment={}, flags={"state_dir": tmp_path, "listen": "localhost:0", **(flags or {})})
    driver = FakeDriver()
    registry = await Registry.open(tmp_path / "registry.db")
    workspaces = Workspaces(registry, {"local": driver}, config.workspaces, connect=fake_connect)
    await workspaces.start()
    server = ApiServer(config, workspaces)
    port = await server.start()
    target = config.listen if config.listen.startswith("unix:") else f"localhost:{port}"
    channel = (
        grpc.aio.secure_channel(target, credentials) if credentials is not None else grpc.aio.insecure_channel(target)
    )
    try:
        yield Served(server, workspaces, driver, channel, port)
    finally:
        await channel.close()
        await server.abort()
        await workspaces.aclose()
        await registry.aclose()


def details(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    """The details of an error by the names of their types."""
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    assert status is not None
    assert status.code == error.code().value[0]
    found = {}
    for packed in status.details:
        name = packed.type_url.rpartition(".")[2]
        message = getattr(error_details_pb2, name)()
        packed.Unpack(message)
        found[name] = message
    assert found["ErrorInfo"].domain == "workspaced"
    return found


async def fails(call: Any) -> tuple[grpc.StatusCode, str, dict[str, Any]]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    found = details(caught.value)
    return caught.value.code(), found["ErrorInfo"].reason, found


async def read_out(stream: Any) -> None:
    """What was sent before the end may still arrive."""
    while await stream.read() is not grpc.aio.EOF:
        pass


def reply(context: Any) -> Mapping[str, Any]:
    return dict(context)


async def test_errors_carry_their_details(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        code, reason, found = await fails(served.stub.GetWorkspace(pb.GetWorkspaceRequest(workspace_id="用户")))
        assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "WORKSPACE_NOT_FOUND")
        assert found["ErrorInfo"].metadata["workspace_id"] == "用户"
        assert found["ResourceInfo"].resource_name == "用户"
        code, reason, found = await fails(served.stub.GetWorkspace(pb.GetWorkspaceRequest()))
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "ARGUMENT_INVALID")
        assert found["BadRequest"].field_violations[0].field == "workspace_id"
        code, reason, found = await fails(served.stub.RenewLease(pb.RenewLeaseRequest(lease_id="gone")))
        assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "LEASE_NOT_FOUND")


async def test_an_unexpected_exception_tells_only_its_request_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def explode(*_: object, **__: object) -> None:
        raise RuntimeError("/etc/secret")

    async with serving(tmp_path) as served:
        monkeypatch.setattr(served.workspaces, "get", explode)
        call = served.stub.GetWorkspace(pb.GetWorkspaceRequest(workspace_id="a"), metadata=(("x-request-id", "req-1"),))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        found = details(caught.value)
        assert found["ErrorInfo"].reason == "INTERNAL"
        assert found["RequestInfo"].request_id == "req-1"
        assert "secret" not in str(caught.value)


async def test_a_cancellation_inside_becomes_a_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def cancelled(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    async with serving(tmp_path) as served:
        monkeypatch.setattr(served.workspaces, "get", cancelled)
        code, reason, _ = await fails(served.stub.GetWorkspace(pb.GetWorkspaceRequest(workspace_id="a"), timeout=5))
        assert (code, reason) == (grpc.StatusCode.CANCELLED, "CANCELLED")


async def test_huge_messages_do_not_hide_the_status(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        spec = workspace_pb2.WorkspaceSpec(env={f"{number}=" + "x" * 500: "" for number in range(200)})
        code, reason, _ = await fails(
            served.stub.InitializeWorkspace(pb.InitializeWorkspaceRequest(workspace_id="a", spec=spec))
        )
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "ARGUMENT_INVALID")


async def test_request_ids_are_taken_or_made(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for given, taken in (("abc-1", True), ("two words", False), ("x" * 200, False)):
            call = served.stub.ListWorkspaces(pb.ListWorkspacesRequest(), metadata=(("x-request-id", given),))
            await call
            answered = reply(await call.trailing_metadata())["x-request-id"]
            assert (answered == given) is taken
            assert answered


async def test_one_log_line_a_call_without_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from workspaced_server import logging as server_logging
    from workspaced_server.config import LogConfig

    root, handlers = logging.getLogger(), logging.getLogger().handlers
    server_logging.configure(LogConfig(format="json"))
    try:
        async with serving(tmp_path) as served:
            spec = workspace_pb2.WorkspaceSpec(env={"KEY": "hidden-value"})
            made = await served.stub.InitializeWorkspace(pb.InitializeWorkspaceRequest(workspace_id="a", spec=spec))
            assert made.workspace.spec.env["KEY"] == "[redacted]"
    finally:
        root.handlers = handlers
    text = capsys.readouterr().err
    assert "hidden-value" not in text
    (line,) = [found for found in map(json.loads, text.splitlines()) if found["event"] == "call"]
    assert line["method"].endswith("/InitializeWorkspace")
    assert (line["principal"], line["workspace_id"], line["code"]) == ("local", "a", "OK")
    assert line["duration_ms"] > 0


async def test_no_traceback_shows_local_variables(capsys: pytest.CaptureFixture[str]) -> None:
    from workspaced_server import logging as server_logging
    from workspaced_server.config import LogConfig

    root, handlers = logging.getLogger(), logging.getLogger().handlers

    def fail(token: str) -> None:
        raise RuntimeError("surprise")

    try:
        for form in ("pretty", "json"):
            server_logging.configure(LogConfig(format=form))
            try:
                fail("hidden" + "-value")
            except RuntimeError:
                structlog.stdlib.get_logger("workspaced.test").exception("failed")
            text = capsys.readouterr().err
            assert "surprise" in text
            assert "hidden-value" not in text
    finally:
        root.handlers = handlers


async def test_every_rpc_of_the_contract_declares_its_scope() -> None:
    scopes = interceptors.scopes_of(*FILES)
    assert len(scopes) > 40
    assert [method for method, scope in scopes.items() if scope is None] == []


async def test_scopes_and_tokens(tmp_path: Path) -> None:
    reader, manager = new_token("ada", ["read"]), new_token("bob", ["read", "manage"])
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{reader.line}\n{manager.line}\n")
    async with serving(tmp_path, flags={"auth.token_file": tokens}) as served:

        def bearer(token: str) -> tuple[tuple[str, str], ...]:
            return (("authorization", f"Bearer {token}"),)

        code, reason, _ = await fails(served.stub.ListWorkspaces(pb.ListWorkspacesRequest()))
        assert (code, reason) == (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_MISSING")
        code, reason, _ = await fails(served.stub.ListWorkspaces(pb.ListWorkspacesRequest(), metadata=bearer("no")))
        assert (code, reason) == (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_INVALID")
        # Permission comes before existence, and before validation.
        for name in ("a", "", "x" * 300):
            doomed = pb.DeleteWorkspaceRequest(workspace_id=name)
            code, reason, found = await fails(served.stub.DeleteWorkspace(doomed, metadata=bearer(reader.token)))
            assert (code, reason) == (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING")
            assert found["ErrorInfo"].metadata["scope"] == "MANAGE"
        request = pb.InitializeWorkspaceRequest(workspace_id="a")
        made = await served.stub.InitializeWorkspace(request, metadata=bearer(manager.token))
        assert made.workspace.owner == "bob"
        code, reason, _ = await fails(
            served.stub.GetWorkspace(pb.GetWorkspaceRequest(workspace_id="a"), metadata=bearer(reader.token))
        )
        assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "WORKSPACE_NOT_FOUND")
        metadata = (*bearer(manager.token), ("x-workspaced-owner", "ada"))
        code, reason, _ = await fails(served.stub.ListWorkspaces(pb.ListWorkspacesRequest(), metadata=metadata))
        assert (code, reason) == (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING")
        health: Any = health_pb2_grpc.HealthStub(served.channel)
        answer = await health.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(served.channel)  # type: ignore[arg-type]
        call = reflection.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        code, reason, _ = await fails(call.read())
        assert reason == "TOKEN_MISSING"


async def test_reflection_in_both_versions_describes_every_service(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for version in ("v1", "v1alpha"):
            method = served.channel.stream_stream(
                f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
                response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
            )
            call: Any = method()
            await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            listed = await call.read()
            names = {service.name for service in listed.list_services_response.service}
            ours = {service.full_name for file in FILES for service in file.services_by_name.values()}
            assert names == ours | {
                "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection",
            }
            for name in names:
                await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=name))
                described = await call.read()
                assert described.file_descriptor_response.file_descriptor_proto, name
            await call.done_writing()


async def test_pages_of_workspaces(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for number in range(5):
            await served.stub.InitializeWorkspace(pb.InitializeWorkspaceRequest(workspace_id=f"w{number}"))
        found, token = [], ""
        while True:
            page = await served.stub.ListWorkspaces(pb.ListWorkspacesRequest(page_size=2, page_token=token))
            found += [item.workspace_id for item in page.workspaces]
            token = page.next_page_token
            if not token:
                break
        assert found == [f"w{number}" for number in range(5)]
        first = await served.stub.ListWorkspaces(pb.ListWorkspacesRequest(page_size=2))
        other = pb.WorkspaceFilter(workspace_ids=["w1"])
        for request in (
            pb.ListWorkspacesRequest(page_token="nonsense"),
            pb.ListWorkspacesRequest(page_token=first.next_page_token, filter=other),
            pb.ListWorkspacesRequest(page_size=1001),
            pb.ListWorkspacesRequest(filter=pb.WorkspaceFilter(states=[99])),  # type: ignore[list-item]
        ):
            code, _, found_details = await fails(served.stub.ListWorkspaces(request))
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert found_details["BadRequest"].field_violations


async def test_watch_over_the_wire(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tmp_path) as served:
        call = served.stub.WatchWorkspaces(pb.WatchWorkspacesRequest())
        assert (await call.read()).WhichOneof("event") == "initial_done"
        await served.stub.InitializeWorkspace(pb.InitializeWorkspaceRequest(workspace_id="a"))
        while (await call.read()).workspace.state != workspace_pb2.WORKSPACE_STATE_READY:
            pass
        call.cancel()
        async with asyncio.timeout(5):
            await served.server.drain.idle()
        assert served.workspaces._feed._subscriptions == set()
        assert "Traceback" not in caplog.text


async def test_a_deadline_ends_the_work(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.driver.hold["provision"] = asyncio.Event()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.stub.InitializeWorkspace(pb.InitializeWorkspaceRequest(workspace_id="a"), timeout=0.2)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        async with asyncio.timeout(5):
            for entry in served.workspaces.entries.all():
                if entry.flight is not None:
                    await entry.flight.settled()
        assert (await served.stub.ListWorkspaces(pb.ListWorkspacesRequest())).workspaces == []


async def test_drain(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        health: Any = health_pb2_grpc.HealthStub(served.channel)
        watched = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watched.read()).status == health_pb2.HealthCheckResponse.SERVING
        stream = served.stub.WatchWorkspaces(pb.WatchWorkspacesRequest())
        await stream.read()
        served.driver.hold["provision"] = held = asyncio.Event()
        served.driver.reached["provision"] = reached = asyncio.Event()
        request = pb.InitializeWorkspaceRequest(workspace_id="a")
        unary = asyncio.ensure_future(served.stub.InitializeWorkspace(request))
        await reached.wait()
        stopping = asyncio.create_task(served.server.stop(10))
        # The long stream ends at once, new calls are refused, and the unary call may finish.
        code, reason, found = await fails(read_out(stream))
        assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")
        assert found["RetryInfo"].retry_delay.seconds == 1
        assert (await watched.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        code, reason, _ = await fails(served.stub.ListWorkspaces(pb.ListWorkspacesRequest()))
        assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")
        held.set()
        assert (await unary).workspace.workspace_id == "a"
        await stopping


async def test_a_call_that_outlasts_the_drain_is_told_why(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.driver.hold["provision"] = asyncio.Event()
        served.driver.reached["provision"] = reached = asyncio.Event()
        call = asyncio.ensure_future(served.stub.InitializeWorkspace(pb.InitializeWorkspaceRequest(workspace_id="a")))
        await reached.wait()
        await served.server.stop(0.05)
        code, reason, _ = await fails(call)
        assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")


async def test_a_certificate_makes_a_principal(tmp_path: Path) -> None:
    authority = trustme.CA()
    paths = {name: tmp_path / name for name in ("cert", "key", "ca")}
    server = authority.issue_cert("localhost")
    server.cert_chain_pems[0].write_to_path(paths["cert"])
    server.private_key_pem.write_to_path(paths["key"])
    authority.cert_pem.write_to_path(paths["ca"])
    (tmp_path / "config.toml").write_text("")

    def credentials(identity: str | None) -> grpc.ChannelCredentials:
        root = authority.cert_pem.bytes()
        if identity is None:
            return grpc.ssl_channel_credentials(root)
        issued = authority.issue_cert(common_name=identity) if "/" not in identity else authority.issue_cert(identity)
        return grpc.ssl_channel_credentials(root, issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes())

    flags = {
        "tls.certificate": paths["cert"],
        "tls.key": paths["key"],
        "tls.client_ca": paths["ca"],
        "auth.certificates": {"ada": ("read", "manage")},
    }
    async with serving(tmp_path, credentials("ada"), flags) as served:
        made = await served.stub.InitializeWorkspace(pb.InitializeWorkspaceRequest(workspace_id="a"))
        assert made.workspace.owner == "ada"
        async with grpc.aio.secure_channel(f"localhost:{served.port}", credentials("mallory")) as channel:
            call = rpc.LifecycleServiceStub(channel).ListWorkspaces(pb.ListWorkspacesRequest())
            assert (await fails(call))[1] == "CERTIFICATE_UNKNOWN"
        async with grpc.aio.secure_channel(f"localhost:{served.port}", credentials(None)) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await rpc.LifecycleServiceStub(channel).ListWorkspaces(pb.ListWorkspacesRequest())
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    certificate, key = tmp_path / "cert", tmp_path / "key"

    def install(authority: trustme.CA) -> None:
        issued = authority.issue_cert("localhost")
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)

    install(old)
    credentials = grpc.ssl_channel_credentials(old.cert_pem.bytes())
    async with serving(tmp_path, credentials, {"tls.certificate": certificate, "tls.key": key}) as served:
        await served.stub.ListWorkspaces(pb.ListWorkspacesRequest())
        install(new)
        renewed = grpc.ssl_channel_credentials(new.cert_pem.bytes())
        async with grpc.aio.secure_channel(f"localhost:{served.port}", renewed) as channel:
            await rpc.LifecycleServiceStub(channel).ListWorkspaces(pb.ListWorkspacesRequest())


async def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("localhost").cert_chain_pems[0].write_to_path(tmp_path / "cert")
    authority.issue_cert("localhost").private_key_pem.write_to_path(tmp_path / "key")
    with pytest.raises(ConfigError, match=r"tls\.key"):
        async with serving(tmp_path, flags={"tls.certificate": tmp_path / "cert", "tls.key": tmp_path / "key"}):
            pass


async def test_an_address_in_use_is_told(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with serving(tmp_path) as served:
        with pytest.raises(ConfigError, match="cannot listen"):
            async with serving(tmp_path / "other", flags={"listen": f"localhost:{served.port}"}):
                pass


async def test_a_unix_socket_is_private(tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    async with serving(tmp_path, flags={"listen": f"unix:{path}"}) as served:
        assert path.stat().st_mode & 0o077 == 0
        await served.stub.ListWorkspaces(pb.ListWorkspacesRequest())
