"""Content of MCP as content of this API."""

from __future__ import annotations

import binascii
from base64 import b64decode

import mcp_types as types

from workspaced.v1 import content_pb2
from workspaced_server.mcps.failures import McpFailure

_ANY_BYTES = "application/octet-stream"


def block(item: types.ContentBlock) -> content_pb2.ContentBlock:
    """A block of a tool's result or of a prompt. An embedded resource has its URI as the name, a link is text.

    Raises McpFailure MCP_PROTOCOL_ERROR when data is no base64.
    """
    match item:
        case types.TextContent():
            return _text(item.text)
        case types.ImageContent() | types.AudioContent():
            return _data(decoded(item.data), item.mime_type)
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            media_type = resource.mime_type or "text/plain"
            return _data(resource.text.encode("utf-8", "replace"), media_type, str(resource.uri))
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            return _data(decoded(resource.blob), resource.mime_type or _ANY_BYTES, str(resource.uri))
        case types.ResourceLink():
            about = item.title or item.name
            return _text(f"[{about}]({item.uri})" + (f": {item.description}" if item.description else ""))
    return content_pb2.ContentBlock()


def decoded(data: str) -> bytes:
    """Bytes of base64 text. Raises McpFailure."""
    try:
        return b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise McpFailure("MCP_PROTOCOL_ERROR", "it sent data that is no base64") from None


def _text(text: str) -> content_pb2.ContentBlock:
    return content_pb2.ContentBlock(text=content_pb2.TextBlock(text=clean(text)))


def _data(data: bytes, media_type: str, name: str = "") -> content_pb2.ContentBlock:
    return content_pb2.ContentBlock(
        data=content_pb2.DataBlock(media_type=clean(media_type), bytes=data, name=clean(name))
    )


def clean(text: str) -> str:
    """Text that can be sent: JSON may hold halves of characters, UTF-8 may not."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
