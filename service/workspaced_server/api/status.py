"""From our errors to ``google.rpc.Status``, the one place where that is done."""

from __future__ import annotations

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2 as details_pb  # type: ignore[import-untyped]
from google.rpc import status_pb2

from workspaced_server.api.revision import answer_metadata
from workspaced_server.errors import DOMAIN, Code, WorkspacedError

MAX_DETAIL_BYTES = 7 * 1024
"""Trailers above 16 KiB (base64 included) would replace the true status."""

_MAX_MESSAGE = 1024
_MAX_METADATA_VALUE = 512
_MAX_VIOLATIONS = 16
DETAILS_KEY = "grpc-status-details-bin"


def internal(request_id: str) -> WorkspacedError:
    """What a caller is told of an exception that nobody expected: where the log says more, and nothing else."""
    return WorkspacedError(
        Code.INTERNAL, "INTERNAL", f"an internal error; the server's log has it under request id {request_id}"
    )


def trailers(error: WorkspacedError, request_id: str) -> tuple[str, tuple[tuple[str, str | bytes], ...]]:
    """The status message and the trailing metadata of an error."""
    message = _printable(error.message)[:_MAX_MESSAGE]
    code: int = error.code.value.value[0]
    status = status_pb2.Status(code=code, message=message)
    for detail in _details(error, request_id):
        packed = any_pb2.Any()
        packed.Pack(detail)
        if status.ByteSize() + packed.ByteSize() + 8 <= MAX_DETAIL_BYTES:
            status.details.append(packed)
    return message, ((DETAILS_KEY, status.SerializeToString()), *answer_metadata(request_id))


def _details(error: WorkspacedError, request_id: str) -> list[Message]:
    """The details, the most important first: what does not fit is left out from the end."""
    metadata = {key: _printable(value)[:_MAX_METADATA_VALUE] for key, value in list(error.metadata.items())[:16]}
    found: list[Message] = [details_pb.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)]
    if error.retry_after is not None:
        seconds = int(error.retry_after)
        delay = duration_pb2.Duration(seconds=seconds, nanos=int((error.retry_after - seconds) * 1e9))
        found.append(details_pb.RetryInfo(retry_delay=delay))
    found.append(details_pb.RequestInfo(request_id=request_id))
    if error.violations:
        bad = details_pb.BadRequest()
        for violation in list(error.violations)[:_MAX_VIOLATIONS]:
            bad.field_violations.add(
                field=_printable(violation.field)[:256], description=_printable(violation.description)[:256]
            )
        found.append(bad)
    if error.resource is not None:
        kind, name = error.resource
        found.append(details_pb.ResourceInfo(resource_type=kind, resource_name=_printable(name)[:_MAX_METADATA_VALUE]))
    if error.quota is not None:
        quota = details_pb.QuotaFailure()
        quota.violations.add(subject=error.quota[0][:256], description=_printable(error.quota[1])[:256])
        found.append(quota)
    if error.code is Code.FAILED_PRECONDITION:
        failure = details_pb.PreconditionFailure()
        subject = _printable(error.resource[1])[:_MAX_METADATA_VALUE] if error.resource else ""
        failure.violations.add(type=error.reason, subject=subject, description=message_of(error))
        found.append(failure)
    return found


def message_of(error: WorkspacedError) -> str:
    """The message as it may be sent: one that cannot be UTF-8 has its bad characters replaced."""
    return _printable(error.message)[:_MAX_MESSAGE]


def _printable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def from_grpc(code: grpc.StatusCode) -> str:
    """The name of a status code, for the log."""
    return code.name
