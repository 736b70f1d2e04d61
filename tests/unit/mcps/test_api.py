"""The RPCs about MCP servers: what they check, and how their answers look."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from tests.support.real_guest import WORKSPACE, Handle, RunningServer, reason, serve, violations
from tests.unit.mcps.conftest import HOSTILE, Start, stdio
from workspaced.v1 import content_pb2, discovery_pb2, discovery_pb2_grpc, management_pb2, management_pb2_grpc, mcp_pb2

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server(start: Start, handle: Handle) -> AsyncIterator[RunningServer]:
    async with serve(handle.guest, await start()) as running:
        yield running


@pytest.fixture
def management(server: RunningServer) -> management_pb2_grpc.ManagementServiceAsyncStub:
    return management_pb2_grpc.ManagementServiceStub(server.channel)


@pytest.fixture
def discovery(server: RunningServer) -> discovery_pb2_grpc.DiscoveryServiceAsyncStub:
    return discovery_pb2_grpc.DiscoveryServiceStub(server.channel)


def adding(mcp: mcp_pb2.Mcp) -> management_pb2.AddMcpRequest:
    return management_pb2.AddMcpRequest(workspace_id=WORKSPACE, mcp=mcp)


def http(url: str, **headers: str) -> mcp_pb2.Mcp:
    return mcp_pb2.Mcp(name="m", http=mcp_pb2.McpHttp(url=url, headers=headers))


def program(command: str = "x", **fields: object) -> mcp_pb2.Mcp:
    return mcp_pb2.Mcp(**{"name": "m", "stdio": mcp_pb2.McpStdio(command=command), **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mcp", "field"),
    [
        (mcp_pb2.Mcp(name="m"), "mcp"),
        (program(name=""), "mcp.name"),
        (program(name=".m"), "mcp.name"),
        (program(name="a/b"), "mcp.name"),
        (program(name="m" * 65), "mcp.name"),
        (program(""), "mcp.stdio.command"),
        (program("a\0b"), "mcp.stdio"),
        (program(stdio=mcp_pb2.McpStdio(command="x", env={"a=b": "c"})), "mcp.stdio.env"),
        (program(stdio=mcp_pb2.McpStdio(command="x", env={"a": "b\0"})), "mcp.stdio.env['a']"),
        (program(call_timeout={"seconds": -1}), "mcp.call_timeout"),
        (http("ftp://host/"), "mcp.http.url"),
        (http("http://"), "mcp.http.url"),
        (http("http://host:99999/"), "mcp.http.url"),
        (http("http://ho st/"), "mcp.http.url"),
        (http("http://host/#part"), "mcp.http.url"),
        (http("http://host/", **{"bad header": "x"}), "mcp.http.headers"),
        (http("http://host/", Connection="close"), "mcp.http.headers"),
        (http("http://host/", X="a\r\nY: b"), "mcp.http.headers['X']"),
        (mcp_pb2.Mcp(name="m", http=mcp_pb2.McpHttp(url="http://x/", kind=9)), "mcp.http.kind"),  # type: ignore[arg-type]
    ],
)
async def test_declarations_are_checked(
    management: management_pb2_grpc.ManagementServiceAsyncStub, mcp: mcp_pb2.Mcp, field: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await management.AddMcp(adding(mcp))
    assert reason(caught.value) == "ARGUMENT_INVALID"
    assert violations(caught.value) == {field}


async def test_from_adding_to_removing(
    management: management_pb2_grpc.ManagementServiceAsyncStub, discovery: discovery_pb2_grpc.DiscoveryServiceAsyncStub
) -> None:
    mcp = stdio("m")
    mcp.stdio.env["SECRET"] = "hush-hush"
    added = await management.AddMcp(adding(mcp))
    assert added.mcp.state == mcp_pb2.MCP_STATE_READY
    assert added.mcp.mcp.stdio.env["SECRET"] == "[redacted]"
    assert (await management.AddMcp(adding(mcp))).existing
    listed = await discovery.ListMcps(discovery_pb2.ListMcpsRequest(workspace_id=WORKSPACE))
    assert [status.mcp.name for status in listed.mcps] == ["m"]
    request = management_pb2.RemoveMcpRequest(workspace_id=WORKSPACE, name="m")
    assert (await management.RemoveMcp(request)).removed
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await management.RemoveMcp(request)
    assert (caught.value.code(), reason(caught.value)) == (grpc.StatusCode.NOT_FOUND, "MCP_NOT_FOUND")
    request.allow_missing = True
    assert not (await management.RemoveMcp(request)).removed


async def test_resources_and_prompts(
    management: management_pb2_grpc.ManagementServiceAsyncStub,
    discovery: discovery_pb2_grpc.DiscoveryServiceAsyncStub,
    handle: Handle,
) -> None:
    await management.AddMcp(adding(stdio("m")))
    found: list[mcp_pb2.McpResource] = []
    token = ""
    while True:
        page = await discovery.ListMcpResources(
            discovery_pb2.ListMcpResourcesRequest(workspace_id=WORKSPACE, page_size=1, page_token=token)
        )
        assert len(page.resources) == 1
        found += page.resources
        token = page.next_page_token
        if not token:
            break
    by_name = {resource.name: resource for resource in found}
    assert by_name["one"].uri == "memo://one"
    assert by_name["one"].media_type == "text/plain"
    assert by_name["note"].uri_template == "note://{name}"

    read = discovery_pb2.ReadMcpResourceRequest(workspace_id=WORKSPACE, mcp="m", uri="memo://one")
    (part,) = (await discovery.ReadMcpResource(read)).contents
    assert (part.uri, part.text, part.media_type) == ("memo://one", "the memo", "text/plain")
    picture = discovery_pb2.ReadMcpResourceRequest(workspace_id=WORKSPACE, mcp="m", uri="memo://picture")
    (part,) = (await discovery.ReadMcpResource(picture)).contents
    data = part.data
    assert data.startswith(b"\x89PNG")
    picture.offload_over_bytes = 10
    (part,) = (await discovery.ReadMcpResource(picture)).contents
    assert part.WhichOneof("content") == "offloaded"
    assert Path(part.offloaded.path).read_bytes() == data
    assert (part.offloaded.size_bytes, part.offloaded.media_type) == (len(data), "image/png")
    read.uri = "memo://nothing"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await discovery.ReadMcpResource(read)
    assert reason(caught.value) == "MCP_RESOURCE_NOT_FOUND"

    (prompt,) = (await discovery.ListMcpPrompts(discovery_pb2.ListMcpPromptsRequest(workspace_id=WORKSPACE))).prompts
    assert (prompt.mcp, prompt.name, prompt.description) == ("m", "greet", "A greeting.")
    assert [(argument.name, argument.required) for argument in prompt.arguments] == [("name", True), ("tone", False)]
    get = discovery_pb2.GetMcpPromptRequest(workspace_id=WORKSPACE, mcp="m", name="greet", arguments={"name": "Ada"})
    (message,) = (await discovery.GetMcpPrompt(get)).messages
    assert message.role == content_pb2.ROLE_USER
    assert message.content[0].text.text == "Greet Ada in a friendly way."
    del get.arguments["name"]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await discovery.GetMcpPrompt(get)
    assert violations(caught.value) == {"arguments['name']"}


async def test_what_is_not_offered_is_told(
    management: management_pb2_grpc.ManagementServiceAsyncStub, discovery: discovery_pb2_grpc.DiscoveryServiceAsyncStub
) -> None:
    await management.AddMcp(adding(stdio("m", "patient", program=HOSTILE)))
    listed = await discovery.ListMcpResources(discovery_pb2.ListMcpResourcesRequest(workspace_id=WORKSPACE))
    assert not listed.resources
    assert not listed.mcp_errors
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await discovery.ReadMcpResource(
            discovery_pb2.ReadMcpResourceRequest(workspace_id=WORKSPACE, mcp="m", uri="x://y")
        )
    assert reason(caught.value) == "MCP_UNSUPPORTED"
    for call in (
        discovery.ListMcpPrompts(discovery_pb2.ListMcpPromptsRequest(workspace_id=WORKSPACE, mcp="other")),
        discovery.ListMcpResources(discovery_pb2.ListMcpResourcesRequest(workspace_id=WORKSPACE, mcp="other")),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert reason(caught.value) == "MCP_NOT_FOUND"


async def test_page_tokens_are_checked(discovery: discovery_pb2_grpc.DiscoveryServiceAsyncStub) -> None:
    for token in ("x", "W10", "WzAsIiJd", "bnVsbA"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await discovery.ListMcps(discovery_pb2.ListMcpsRequest(workspace_id=WORKSPACE, page_token=token))
        assert violations(caught.value) == {"page_token"}, token
