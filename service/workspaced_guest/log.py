"""The guest's log: its standard error, which is bounded when it is the daemon's own file."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_MAX_BYTES = 1 << 20
_bounded = False


def own_file() -> None:
    """Standard error is a file of ours: it begins anew when it has grown to 1 MiB. Unexpected errors go there too."""
    global _bounded  # noqa: PLW0603  (standard error is one for the whole program as well)
    _bounded = True
    sys.excepthook = _write_error


def bounded() -> bool:
    """Whether `own_file` was called."""
    return _bounded


def write(message: str) -> None:
    """Adds lines. What can't be written (a full disk) is lost: the guest's work goes on."""
    text = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {message}\n"
    try:
        if _bounded and os.fstat(2).st_size > _MAX_BYTES:
            os.ftruncate(2, 0)
        os.write(2, text.encode("utf-8", "backslashreplace"))
    except OSError:
        return


def _write_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    import traceback

    write("".join(traceback.format_exception(kind, error, trace)).rstrip())
