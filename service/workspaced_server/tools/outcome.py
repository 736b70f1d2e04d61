"""What a tool gets and what it gives back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from workspaced.v1 import content_pb2, tool_pb2
from workspaced_server.partitions import Pair, directory_name
from workspaced_server.stopping import Stops
from workspaced_server.workspaces.handle import Handle

Emit = Callable[[tool_pb2.CallToolResponse], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool, its input checked.

    ``timeout`` is the caller's, in seconds. ``emit`` sends an event; ``data`` sends a data block, stored first where
    it is too large, and returns what the result holds of it. ``whole`` says that text of any length is wanted, since
    what overflows is stored.
    """

    handle: Handle
    pair: Pair
    call_id: str
    input: dict[str, Any]
    timeout: float | None
    whole: bool
    emit: Emit
    data: Callable[[bytes, str, str], Awaitable[content_pb2.ContentBlock]]
    stops: Stops

    @property
    def reader(self) -> str:
        """Who reads and edits files, for the guest."""
        agent, session = directory_name(self.pair.agent_id), directory_name(self.pair.session_id)
        # Either may have 255 bytes; the guest keeps many of these.
        import hashlib

        return hashlib.sha256(f"{agent}/{session}".encode()).hexdigest()[:32]


@dataclass(slots=True)
class Outcome:
    """What a tool answered; ``result`` makes the message of it."""

    content: list[content_pb2.ContentBlock] = field(default_factory=list)
    is_error: bool = False
    state: content_pb2.ToolResultState.ValueType = content_pb2.TOOL_RESULT_STATE_UNSPECIFIED
    structured: dict[str, Any] | None = None
    background_process_id: str = ""


def text_block(text: str) -> content_pb2.ContentBlock:
    """A block of text."""
    return content_pb2.ContentBlock(text=content_pb2.TextBlock(text=text))


def said(text: str) -> Outcome:
    """A success that says so."""
    return Outcome([text_block(text)])


def failed(text: str) -> Outcome:
    """An error that a model can act on."""
    return Outcome([text_block(text)], is_error=True)


def interrupted(text: str) -> Outcome:
    """The time was up; what came before is the output."""
    return Outcome([text_block(text)], is_error=True, state=content_pb2.TOOL_RESULT_STATE_INTERRUPTED)
