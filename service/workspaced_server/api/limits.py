"""What requests may hold; `ServerService.GetServerInfo` tells callers."""

from __future__ import annotations

from typing import Final

MAX_CHUNK_BYTES: Final = 1 << 20
MAX_RUN_OUTPUT_BYTES: Final = 1 << 20
MIN_JOURNAL_BYTES: Final = 64 << 10
MAX_JOURNAL_BYTES: Final = 16 << 30
MAX_PAGE_SIZE: Final = 1000
DEFAULT_PAGE_SIZE: Final = 100
MAX_PATH_BYTES: Final = 4096
MAX_REQUEST_BYTES: Final = 4 << 20
