"""What the server's configuration says about MCP servers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class McpSettings:
    """Limits and housekeeping of MCP instances. All times in seconds; 0 switches a limit off."""

    key_file: Path | None = None  # keys that encrypt secrets of declarations; None: mcp.key in the state directory
    ca_file: Path | None = None  # certificates, beside the system's, that servers over https may be signed by
    max_instances_per_workspace: int = 64  # above it the least recently used one that is not in a call is closed
    max_instances_per_owner: int = 0  # live at once; above it RESOURCE_EXHAUSTED
    idle_close_seconds: float = 1800.0  # an instance that nobody used for so long is closed
    stateless_idle_close_seconds: float = 60.0
    list_wait_seconds: float = 30.0  # a listing waits for one start until it is so old, never beyond its own deadline
    retry_first_seconds: float = 1.0  # back-off after a failed start; doubles from here
    retry_most_seconds: float = 300.0
    steady_seconds: float = 30.0  # who lived so long, or answered a call, begins the back-off anew
    max_message_bytes: int = 16 * 1024 * 1024  # of one message of a server
