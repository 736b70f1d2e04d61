"""What happens to every call around its handler: admission, request id, one log line, and errors made into statuses.

One interceptor does all of it, because each further one costs every call a few per cent. The order, outermost first:
errors, request id and log line, authentication, scope, drain.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

import grpc
import structlog
from google.protobuf.descriptor import FileDescriptor

from workspaced.v1 import options_pb2
from workspaced_server.api.auth import Authenticator
from workspaced_server.api.drain import Drain
from workspaced_server.api.revision import answer_metadata
from workspaced_server.api.status import internal, trailers
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.principal import REQUEST_ID_KEY, CallRecord, Principal, Scope, bind, bind_call
from workspaced_server.workspaces.faults import stopping

_log = structlog.stdlib.get_logger("workspaced.call")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_HEALTH = "/grpc.health.v1.Health/"
_REFLECTION = ("/grpc.reflection.v1.", "/grpc.reflection.v1alpha.")
_OURS = "/workspaced."
OWNER_KEY = "x-workspaced-owner"

Context = grpc.aio.ServicerContext[Any, Any]
Details = grpc.HandlerCallDetails


def scopes_of(*files: FileDescriptor) -> dict[str, Scope | None]:
    """The scope that each RPC of these files declares, by full method name; None when it declares none, and is
    refused.
    """
    found: dict[str, Scope | None] = {}
    for file in files:
        for service in file.services_by_name.values():
            for method in service.methods:
                number = method.GetOptions().Extensions[options_pb2.required_scope]
                found[f"/{service.full_name}/{method.name}"] = Scope(number) if number else None
    return found


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler."""

    def __init__(self, authenticator: Authenticator, drain: Drain, scopes: Mapping[str, Scope | None]) -> None:
        self._authenticator = authenticator
        self._drain = drain
        self._scopes = scopes
        self._wrapped: dict[str, tuple[object, grpc.RpcMethodHandler[Any, Any]]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[Details], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: Details,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return the handler, wrapped; None, which grpc answers with UNIMPLEMENTED, when there is none."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = str(handler_call_details.method)
        known = self._wrapped.get(method)
        if known is not None and known[0] is handler:
            return known[1]
        wrapped = self._wrap(method, handler)
        self._wrapped[method] = (handler, wrapped)
        return wrapped

    def _wrap(self, method: str, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
        codec = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.request_streaming and handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(self._stream(method, handler.stream_stream), **codec)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(self._stream(method, handler.unary_stream), **codec)
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(self._unary(method, handler.stream_unary), **codec)
        return grpc.unary_unary_rpc_method_handler(self._unary(method, handler.unary_unary), **codec)

    def _unary(self, method: str, behavior: Any) -> Any:
        async def call(request: Any, context: Context) -> Any:
            async def work() -> Any:
                return await behavior(request, context)

            return await self._run(method, context, work, streams=False)

        return call

    def _stream(self, method: str, behavior: Any) -> Any:
        generates = inspect.isasyncgenfunction(behavior)

        async def call(request: Any, context: Context) -> None:
            async def work() -> None:
                if not generates:
                    outcome = behavior(request, context)
                    if not inspect.isasyncgen(outcome):
                        await cast("Awaitable[None]", outcome)
                        return
                else:
                    outcome = behavior(request, context)
                async with aclosing(cast("AsyncGenerator[Any, None]", outcome)) as messages:
                    async for message in cast("AsyncIterator[Any]", messages):
                        await context.write(message)

            await self._run(method, context, work, streams=True)

        return call

    async def _run(self, method: str, context: Context, work: Callable[[], Awaitable[Any]], *, streams: bool) -> Any:
        started = time.perf_counter()
        metadata = {str(key): value for key, value in context.invocation_metadata() or ()}
        record = CallRecord(_request_id(metadata))
        bind_call(record)
        principal: Principal | None = None
        task: asyncio.Task[Any] | None = None
        error: WorkspacedError | None = None
        code = "OK"
        try:
            principal = self._admit(method, metadata, context, record)
            task = self._drain.enter(method, streams=streams) if not method.startswith(_HEALTH) else None
            answer = answer_metadata(record.request_id)
            if streams:
                await context.send_initial_metadata(answer)
            else:
                # Sent with the response: initial metadata of its own would cost each call 100 µs.
                context.set_trailing_metadata(answer)
            return await work()
        except grpc.aio.AbortError:
            code = _code_of(context)
            raise
        except WorkspacedError as raised:
            error = raised
        except (asyncio.CancelledError, grpc.aio.InternalError):
            # The latter is what a write raises when the caller has gone, where it is sooner than the cancellation.
            error = self._cancelled(context)
        except Exception:  # noqa: BLE001 - its text must not leave the server; the log line below has it
            _log.exception("unexpected error", method=method, request_id=record.request_id)
            error = internal(record.request_id)
        finally:
            if task is not None:
                self._drain.leave(task)
            if error is not None:
                code = error.code.name
            # After the answer is on its way: nobody has to wait for a line to be written.
            duration = time.perf_counter() - started
            asyncio.get_running_loop().call_soon(
                self._write_line, method, context, record, principal, code, error, duration
            )
        current = asyncio.current_task()
        while current is not None and current.cancelling():
            current.uncancel()
        message, trailing = trailers(error, record.request_id)
        await context.abort(error.code.value, message, trailing)
        raise AssertionError("abort returned")

    def _admit(
        self, method: str, metadata: Mapping[str, str | bytes], context: Context, record: CallRecord
    ) -> Principal | None:
        """Let the caller in and make it current, or raise: permission comes before everything else."""
        if method.startswith(_HEALTH):
            return None
        principal = self._authenticator.authenticate(metadata, context.auth_context)
        bind(principal)
        if method.startswith(_OURS):
            scope = self._scopes.get(method)
            if scope is None or scope not in principal.scopes:
                needed = scope.name if scope is not None else "none that a principal can hold"
                text = f"principal {principal.name!r} lacks the scope {needed}"
                raise WorkspacedError(Code.PERMISSION_DENIED, "SCOPE_MISSING", text, {"scope": needed})
        elif not method.startswith(_REFLECTION):
            raise WorkspacedError(Code.PERMISSION_DENIED, "METHOD_NOT_ALLOWED", "this method cannot be called here")
        owner = metadata.get(OWNER_KEY)
        if owner:
            if not principal.is_admin:
                text = f"only a principal with the scope ADMIN may name another owner by {OWNER_KEY}"
                raise WorkspacedError(Code.PERMISSION_DENIED, "SCOPE_MISSING", text, {"scope": "ADMIN"})
            record.owner = str(owner)
        return principal

    def _cancelled(self, context: Context) -> WorkspacedError:
        """Why the handler's task was cancelled: by the drain, by the deadline, or by the client."""
        remaining = cast("float | None", context.time_remaining())
        if remaining is not None and remaining <= 0:
            return WorkspacedError(Code.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", "the call's deadline has passed")
        if self._drain.draining:
            return stopping()
        return WorkspacedError(Code.CANCELLED, "CANCELLED", "the call was cancelled")

    def _write_line(
        self,
        method: str,
        context: Context,
        record: CallRecord,
        principal: Principal | None,
        code: str,
        error: WorkspacedError | None,
        duration: float,
    ) -> None:
        fields: dict[str, object] = {
            "method": method,
            "principal": principal.name if principal is not None else "",
            "code": code,
            "duration_ms": round(duration * 1000, 2),
            "request_id": record.request_id,
            "peer": context.peer(),
        }
        if record.workspace_id:
            fields["workspace_id"] = record.workspace_id
        if record.owner:
            fields["owner"] = record.owner
        if error is not None:
            fields["reason"] = error.reason
        fields.update(record.extra)
        level = _log.debug if method.startswith(_HEALTH) else _log.warning if code == "INTERNAL" else _log.info
        level("call", **fields)


def _request_id(metadata: Mapping[str, str | bytes]) -> str:
    given = metadata.get(REQUEST_ID_KEY)
    if isinstance(given, str) and _REQUEST_ID.fullmatch(given):
        return given
    return secrets.token_hex(8)


def _code_of(context: Context) -> str:
    code = cast("object", context.code())
    if isinstance(code, grpc.StatusCode):
        return code.name
    return next((known.name for known in grpc.StatusCode if known.value[0] == code), "UNKNOWN")
