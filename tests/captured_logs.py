"""Reading in tests what this package logs."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from openclaw_a2a.log import PACKAGE, record_fields


class _Capture(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.events: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        event = {**record_fields(record), "log_level": record.levelname.lower()}
        if record.exc_info:
            event["exc_info"] = record.exc_info[1]
        self.events.append(event)


@contextmanager
def capture_logs() -> Generator[list[dict[str, Any]]]:
    """The events that are logged meanwhile, each with its fields and its `log_level`."""
    logger, capture = logging.getLogger(PACKAGE), _Capture()
    level = logger.level
    logger.addHandler(capture)
    logger.setLevel(logging.DEBUG)
    try:
        yield capture.events
    finally:
        logger.removeHandler(capture)
        logger.setLevel(level)
