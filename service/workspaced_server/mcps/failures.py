"""Why an MCP server is not usable, as listings and errors tell it."""

from __future__ import annotations

from collections.abc import Iterable

from workspaced.v1 import mcp_pb2
from workspaced_server.errors import Code, WorkspacedError

_MAX_TAIL_BYTES = 4096
_MAX_MESSAGE = 500
_MAX_DETAIL = 480
_MIN_SECRET = 5


class McpFailure(Exception):
    """An MCP server cannot be used. ``reason`` is one of those of ``McpError.reason``; ``message`` is for people.

    ``steady`` says that nothing is wrong with the server itself, so that it may be tried again at once.
    """

    def __init__(self, reason: str, message: str, stderr_tail: str = "", *, steady: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.stderr_tail = stderr_tail
        self.steady = steady

    def redacted(self, secrets: Iterable[str]) -> McpFailure:
        """The same without what the declaration keeps secret."""
        return McpFailure(
            self.reason,
            redact(self.message, secrets)[:_MAX_MESSAGE],
            redact(self.stderr_tail, secrets),
            steady=self.steady,
        )

    def to_message(self, mcp: str, *, time_us: int, attempts: int) -> mcp_pb2.McpError:
        """As it travels inside of a successful answer."""
        error = mcp_pb2.McpError(
            mcp=mcp, reason=self.reason, message=self.message, stderr_tail=self.stderr_tail, attempts=attempts
        )
        error.time.FromMicroseconds(time_us)
        return error


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text without the values of secrets; very short ones are no secrets and would hit words."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _MIN_SECRET:
            text = text.replace(secret, "[redacted]")
    return text


def tail(data: bytes) -> str:
    """The end of a stderr as text, cut at a line where there is one."""
    cut = data[-_MAX_TAIL_BYTES:]
    if len(cut) < len(data) and b"\n" in cut[:-1]:
        cut = cut[cut.index(b"\n") + 1 :]
    text = cut.decode("utf-8", "replace").strip()
    while len(text.encode()) > _MAX_TAIL_BYTES:  # replacement characters are longer than what they replace
        text = text[len(text) // 8 + 1 :]
    return text


def not_added(mcp: str, failure: McpFailure) -> WorkspacedError:
    """What AddMcp answers when it could not connect."""
    metadata = {"mcp": mcp}
    if failure.stderr_tail:
        metadata["stderr_tail"] = failure.stderr_tail[-_MAX_DETAIL:]
    text, resource = f"MCP server {mcp!r} was not added: {failure.message}", ("mcp", mcp)
    match failure.reason:
        case "MCP_TIMEOUT":
            return WorkspacedError(Code.DEADLINE_EXCEEDED, "MCP_TIMEOUT", text, metadata, resource=resource)
        case "MCP_CONNECT_FAILED":
            return WorkspacedError(Code.FAILED_PRECONDITION, "MCP_CONNECT_FAILED", text, metadata, resource=resource)
        case "MCP_PROTOCOL_ERROR":
            return WorkspacedError(Code.FAILED_PRECONDITION, "MCP_PROTOCOL_ERROR", text, metadata, resource=resource)
        case _:
            return WorkspacedError(Code.FAILED_PRECONDITION, "MCP_START_FAILED", text, metadata, resource=resource)


def unavailable(mcp: str, failure: McpFailure, retry_after: float | None = None) -> WorkspacedError:
    """What a call of an MCP server that is not usable answers."""
    metadata = {"mcp": mcp, "mcp_reason": failure.reason}
    if failure.stderr_tail:
        metadata["stderr_tail"] = failure.stderr_tail[-_MAX_DETAIL:]
    return WorkspacedError(
        Code.UNAVAILABLE,
        "MCP_UNAVAILABLE",
        f"MCP server {mcp!r} is not usable: {failure.message}",
        metadata,
        retry_after=retry_after,
        resource=("mcp", mcp),
    )


def ended(mcp: str, why: str) -> WorkspacedError:
    """What a call answers whose MCP server was ended on purpose."""
    return WorkspacedError(
        Code.UNAVAILABLE,
        "MCP_UNAVAILABLE",
        f"MCP server {mcp!r} was ended: {why}",
        {"mcp": mcp, "mcp_reason": "MCP_ENDED"},
        resource=("mcp", mcp),
    )


def purged(mcp: str) -> WorkspacedError:
    """What a call answers whose session was purged meanwhile."""
    return WorkspacedError(
        Code.ABORTED,
        "SESSION_PURGED",
        f"the session was purged while it used MCP server {mcp!r}",
        {"mcp": mcp},
        resource=("mcp", mcp),
    )


def timed_out(mcp: str, what: str) -> WorkspacedError:
    """``call_timeout``, or the caller's own limit, passed before the server answered."""
    return WorkspacedError(
        Code.DEADLINE_EXCEEDED, "MCP_TIMEOUT", f"MCP server {mcp!r}: {what}", {"mcp": mcp}, resource=("mcp", mcp)
    )


def request_failed(mcp: str, message: str, code: int | None = None) -> WorkspacedError:
    """The server answered a request with an error, or with something that is no answer to it."""
    metadata = {"mcp": mcp}
    if code is not None:
        metadata["mcp_code"] = str(code)
    return WorkspacedError(
        Code.FAILED_PRECONDITION,
        "MCP_REQUEST_FAILED",
        f"MCP server {mcp!r} refused: {message[:_MAX_MESSAGE]}",
        metadata,
        resource=("mcp", mcp),
    )


def unsupported(mcp: str, what: str) -> WorkspacedError:
    """The server does not offer what is asked for."""
    return WorkspacedError(
        Code.FAILED_PRECONDITION,
        "MCP_UNSUPPORTED",
        f"MCP server {mcp!r} offers no {what}",
        {"mcp": mcp},
        resource=("mcp", mcp),
    )


def not_found(mcp: str) -> WorkspacedError:
    """No MCP server of that name is declared for the agent and session."""
    return WorkspacedError(
        Code.NOT_FOUND,
        "MCP_NOT_FOUND",
        f"there is no MCP server {mcp!r} for this agent and session",
        {"mcp": mcp},
        resource=("mcp", mcp),
    )


def exists(mcp: str) -> WorkspacedError:
    """The name is taken by another declaration."""
    return WorkspacedError(
        Code.ALREADY_EXISTS,
        "MCP_EXISTS",
        f"MCP server {mcp!r} is declared differently for this agent and session; remove it first, or take another name",
        {"mcp": mcp},
        resource=("mcp", mcp),
    )


def late(limit: float | None) -> McpFailure:
    """It was not ready in time."""
    return McpFailure("MCP_TIMEOUT", f"it was not ready within its call_timeout of {limit or 0:g} s")


def short(error: BaseException) -> str:
    """The first line of what an exception says."""
    return str(error).split("\n", 1)[0][:300] or type(error).__name__
