"""Reading what a guest answered, as `workspaced_server.guest.answers` does, where servicers look for it."""

from __future__ import annotations

from workspaced_server.guest.answers import (
    MAX_UINT64,
    Answer,
    bad_page_token,
    flag,
    guest_page_token,
    integer,
    malformed,
    message,
    nanoseconds,
    page_token,
    printable,
    real,
    record,
    records,
    text,
    time,
)

__all__ = [
    "MAX_UINT64",
    "Answer",
    "bad_page_token",
    "flag",
    "guest_page_token",
    "integer",
    "malformed",
    "message",
    "nanoseconds",
    "page_token",
    "printable",
    "real",
    "record",
    "records",
    "text",
    "time",
]
