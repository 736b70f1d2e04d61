"""Structured logging: one JSON object a line, or lines for people on a terminal. Secrets and payloads never go into
it.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog

from workspaced_server.config import LogConfig


def configure(config: LogConfig, stream: TextIO | None = None) -> None:
    """Set up structlog, and send the standard library's log (grpc, docker, sqlalchemy) through it. To stderr by
    default.
    """
    stream = sys.stderr if stream is None else stream
    pretty = config.format == "pretty" or (config.format == "auto" and stream.isatty())
    level = logging.getLevelNamesMapping()[config.level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: list[structlog.typing.Processor] = (
        # A plain traceback: the default one shows local variables, and secrets are among them.
        [structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback)]
        if pretty
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[remove, *renderer]))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("workspaced").setLevel(level)
