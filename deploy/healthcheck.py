"""Exits 0 when the server says SERVING, for a container's health check and for readiness scripts.

``WORKSPACED_HEALTH_TARGET`` is the address (default ``127.0.0.1:7420``). A server with TLS needs
``WORKSPACED_HEALTH_CA``, the file of the authority that signed its certificate, and ``WORKSPACED_HEALTH_NAME``, a name
in that certificate (default ``localhost``); one that wants client certificates also ``WORKSPACED_HEALTH_CERT`` and
``WORKSPACED_HEALTH_KEY``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2

TIMEOUT_SECONDS = 4.0


def channel() -> grpc.Channel:
    target = os.environ.get("WORKSPACED_HEALTH_TARGET", "127.0.0.1:7420")
    authority = os.environ.get("WORKSPACED_HEALTH_CA")
    if authority is None:
        return grpc.insecure_channel(target)
    certificate, key = os.environ.get("WORKSPACED_HEALTH_CERT"), os.environ.get("WORKSPACED_HEALTH_KEY")
    credentials = grpc.ssl_channel_credentials(
        root_certificates=Path(authority).read_bytes(),
        private_key=Path(key).read_bytes() if key else None,
        certificate_chain=Path(certificate).read_bytes() if certificate else None,
    )
    name = os.environ.get("WORKSPACED_HEALTH_NAME", "localhost")
    return grpc.secure_channel(target, credentials, options=[("grpc.ssl_target_name_override", name)])


def main() -> int:
    with channel() as connection:
        # By name: the published annotations of the generated stub lack its methods.
        check = connection.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            answer = check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            print(f"no answer: {error.code().name}", file=sys.stderr)
            return 1
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        print(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
