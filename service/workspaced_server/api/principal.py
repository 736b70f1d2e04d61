"""The caller of the present call, as servicers see it."""

from __future__ import annotations

from workspaced_server.principal import CallRecord, Principal, Scope, current, current_call

__all__ = ["CallRecord", "Principal", "Scope", "current", "current_call"]
