"""RPCs of the contract that this server does not serve yet. They say so, with a reason, instead of being absent."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from workspaced_server.errors import Code, WorkspacedError


def not_yet_available(rpc: str) -> WorkspacedError:
    """UNIMPLEMENTED for `rpc`, as ``Service.Method``."""
    return WorkspacedError(
        Code.UNIMPLEMENTED,
        "NOT_YET_AVAILABLE",
        f"{rpc} is part of the API, but this version of the server does not serve it yet",
        {"rpc": rpc},
    )


class UnavailableServicer:
    """Answers every RPC of `service` with NOT_YET_AVAILABLE."""

    def __init__(self, service: ServiceDescriptor) -> None:
        for method in service.methods:
            setattr(self, method.name, _refuse(f"{service.name}.{method.name}"))


def _refuse(rpc: str) -> Any:
    async def refuse(request: object, context: grpc.aio.ServicerContext[Any, Any]) -> NoReturn:
        raise not_yet_available(rpc)

    return refuse
