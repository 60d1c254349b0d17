"""The log of the gateway's process on stderr: pretty on a terminal, JSON lines elsewhere."""

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import structlog

from openclaw_a2a.log import PACKAGE, record_fields
from openclaw_a2a.settings import LogSettings


def configure_logs(settings: LogSettings) -> None:
    """Show the log of this package on stderr. Other loggers of the process stay as they are."""
    logger = logging.getLogger(PACKAGE)
    for handler in logger.handlers[:]:
        if isinstance(handler, _StderrHandler):
            logger.removeHandler(handler)
    logger.addHandler(_StderrHandler(is_pretty=is_for_people(settings)))
    logger.setLevel(settings.level.upper())
    logger.propagate = False


@contextmanager
def logging_to_stderr(settings: LogSettings) -> Generator[None]:
    """Show the log of this package on stderr meanwhile; afterwards its logger is as before."""
    logger = logging.getLogger(PACKAGE)
    before = logger.handlers[:], logger.level, logger.propagate
    configure_logs(settings)
    try:
        yield
    finally:
        logger.handlers[:], logger.propagate = before[0], before[2]
        logger.setLevel(before[1])


def is_for_people(settings: LogSettings) -> bool:
    """True when the log is read by people and not by programs."""
    return settings.format == "pretty" or (settings.format == "auto" and sys.stderr.isatty())


class _StderrHandler(logging.Handler):
    """Writes to what `sys.stderr` is at that moment; it may have been replaced."""

    def __init__(self, *, is_pretty: bool) -> None:
        super().__init__()
        plain = structlog.dev.plain_traceback
        self._renderers: list[structlog.typing.Processor] = (
            [structlog.dev.ConsoleRenderer(exception_formatter=plain)]
            if is_pretty
            else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        )

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)

    def format(self, record: logging.LogRecord) -> str:
        written_at = datetime.fromtimestamp(record.created, UTC)
        event: Any = {
            **record_fields(record),
            "level": record.levelname.lower(),
            "timestamp": written_at.isoformat().replace("+00:00", "Z"),
        }
        if record.exc_info:
            event["exc_info"] = record.exc_info
        for render in self._renderers:
            event = render(None, record.levelname.lower(), event)
        return str(event)
