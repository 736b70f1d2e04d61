"""The revision of the API, and the metadata of each answer that names it."""

from __future__ import annotations

from typing import Final

from workspaced.v1 import options_pb2, server_pb2
from workspaced_server.principal import REQUEST_ID_KEY

API_REVISION: Final[int] = server_pb2.DESCRIPTOR.GetOptions().Extensions[options_pb2.api_revision]
REVISION_KEY: Final = "x-workspaced-api-revision"

_REVISION: Final = (REVISION_KEY, str(API_REVISION))


def answer_metadata(request_id: str) -> tuple[tuple[str, str], ...]:
    """The metadata that every answer has."""
    return (REQUEST_ID_KEY, request_id), _REVISION
