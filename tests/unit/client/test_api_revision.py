"""A server or a client that is older than the other is told of, once, whatever the first call is."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

import workspaced
from tests.unit.client.fake_server import FakeExecution, running, serve
from workspaced.v1 import execution_pb2, port_pb2, server_pb2

KEY = "x-workspaced-api-revision"
OLDER, NEWER = str(workspaced.API_REVISION - 1), str(workspaced.API_REVISION + 1)


class Answers(grpc.GenericRpcHandler):
    """Answers every method with an empty message, or refuses it, as a server of this revision does."""

    def __init__(self, revision: str | None, *, refuses: bool = False, info: int = 0) -> None:
        self._metadata = () if revision is None else ((KEY, revision),)
        self._refuses = refuses
        self._info = server_pb2.GetServerInfoResponse(api_revision=info or workspaced.API_REVISION)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        method = str(handler_call_details.method).rsplit("/", 1)[-1]
        if method in ("ReadFile", "ReadOffload", "CallTool", "WatchFiles", "WatchWorkspaces", "Tunnel"):
            return grpc.stream_stream_rpc_method_handler(self._stream)
        if method in ("OffloadData", "WriteFile"):
            return grpc.stream_unary_rpc_method_handler(self._received)
        return grpc.unary_unary_rpc_method_handler(self._info_of if method == "GetServerInfo" else self._unary)

    async def _info_of(self, request: bytes, context: Any) -> bytes:
        await self._unary(request, context)
        return self._info.SerializeToString()

    async def _received(self, requests: Any, context: Any) -> bytes:
        async for _ in requests:
            pass
        return await self._unary(b"", context)

    async def _unary(self, request: Any, context: Any) -> bytes:
        context.set_trailing_metadata(self._metadata)
        if self._refuses:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no", self._metadata)
        return b""

    async def _stream(self, requests: Any, context: Any) -> AsyncIterator[bytes]:
        await context.send_initial_metadata(self._metadata)
        yield port_pb2.TunnelResponse(opened=port_pb2.TunnelOpened()).SerializeToString()


@asynccontextmanager
async def client_of(answers: Answers) -> AsyncIterator[workspaced.Client]:
    async with (
        running(lambda server: server.add_generic_rpc_handlers((answers,))) as target,
        workspaced.connect(target) as client,
    ):
        yield client


async def unary(client: workspaced.Client) -> None:
    await client.list()


async def client_stream(client: workspaced.Client) -> None:
    await client.workspace("w").offload.data(b"data", media_type="text/plain")


async def server_stream(client: workspaced.Client) -> None:
    async with client.workspace("w").offload.read_stream("a") as parts:
        async for _ in parts:
            pass


async def tunnel(client: workspaced.Client) -> None:
    async with client.workspace("w").tunnel(80):
        pass


async def info(client: workspaced.Client) -> None:
    await client.server_info()


@pytest.mark.parametrize("first", [unary, client_stream, server_stream, tunnel, info])
@pytest.mark.parametrize(("revision", "text"), [(OLDER, "upgrade the server"), (NEWER, "upgrade the client")])
async def test_the_first_answer_warns(first: Any, revision: str, text: str) -> None:
    async with client_of(Answers(revision)) as client:
        with pytest.warns(workspaced.ApiRevisionWarning, match=text) as caught:
            await first(client)
    assert isinstance(caught[0].message, workspaced.ApiRevisionWarning)
    assert (caught[0].message.server_revision, caught[0].message.client_revision) == (
        int(revision),
        workspaced.API_REVISION,
    )


async def test_an_error_warns_too() -> None:
    async with client_of(Answers(OLDER, refuses=True)) as client:
        with pytest.warns(workspaced.ApiRevisionWarning), pytest.raises(workspaced.NotFound):
            await client.list()


async def test_server_info_is_enough() -> None:
    async with client_of(Answers(None, info=99)) as client:
        await client.list()
        with pytest.warns(workspaced.ApiRevisionWarning, match="revision 99 of the server"):
            assert (await client.server_info()).api_revision == 99


async def test_a_client_warns_once() -> None:
    async with client_of(Answers(OLDER)) as client:
        with warnings.catch_warnings(record=True, action="always") as caught:
            await client.list()
            await client.server_info()
            await client.workspace("w").offload.data(b"data", media_type="text/plain")
    assert [warning.category for warning in caught] == [workspaced.ApiRevisionWarning]


@pytest.mark.parametrize("revision", [None, "", "-1", "1.5", "next", "9" * 40, str(workspaced.API_REVISION)])
async def test_what_names_no_other_revision_says_nothing(revision: str | None) -> None:
    async with client_of(Answers(revision)) as client:
        await client.list()


async def test_a_process_as_the_first_call_warns() -> None:
    class Older(FakeExecution):
        async def Exec(self, request_iterator: Any, context: Any) -> AsyncIterator[execution_pb2.ExecResponse]:  # noqa: N802
            await context.send_initial_metadata(((KEY, OLDER),))
            async for response in super().Exec(request_iterator, context):
                yield response

    async with serve(Older()) as target, workspaced.connect(target) as client:
        with pytest.warns(workspaced.ApiRevisionWarning):
            async with client.workspace("w").exec("true") as process:
                await process.wait()
