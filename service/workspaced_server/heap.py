"""What the C library does with memory that was freed."""

from __future__ import annotations

import ctypes
from typing import Any

# The options of mallopt(3), with glibc's numbers.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 16 << 20
_MAPPED_BYTES = 4 << 20


def keep_freed_memory() -> None:
    """Keep up to 16 MiB that were freed, instead of giving them back to the system and asking for them anew.

    By default messages of a quarter of a MiB and more, one after the other, each pay for fresh pages. Only glibc has
    such options; elsewhere this does nothing.
    """
    library: Any = ctypes.CDLL(None)
    try:
        mallopt = library.mallopt
    except AttributeError:
        return
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
