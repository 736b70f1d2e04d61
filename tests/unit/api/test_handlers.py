"""Every RPC of the contract is served by something, and that is noticed before a server starts."""

from __future__ import annotations

import pytest

from workspaced.v1 import discovery_pb2
from workspaced_server.api.handlers import service_handler

SERVICE = discovery_pb2.DESCRIPTOR.services_by_name["DiscoveryService"]


class Some:
    async def ListTools(self, request: object, context: object) -> None:  # noqa: N802
        raise NotImplementedError


class Rest:
    def __getattr__(self, name: str) -> object:
        return Some().ListTools


def test_an_rpc_that_nothing_serves_is_noticed() -> None:
    with pytest.raises(AttributeError, match="ListMcps"):
        service_handler(SERVICE, Some())
    service_handler(SERVICE, Some(), Rest())
