"""Loggers of this package: structured events, written through the standard `logging` module.

Every logger is below the logger `openclaw_a2a`, and nothing here touches global configuration: a
program that imports the package decides what is shown. Only the gateway's own process adds a
handler (`app/logging.py`).
"""

import logging
from typing import Any, cast

import structlog

PACKAGE = "openclaw_a2a"
"""The logger above all of ours."""


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger to call with an event and its fields: `log.info("run.recovered", count=3)`."""
    return structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            _to_record,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def record_fields(record: logging.LogRecord) -> dict[str, Any]:
    """The event and the fields of a log record; of a foreign record, its message."""
    event = getattr(record, "event", None)
    if event is None:
        return {"event": record.getMessage()}
    return {"event": event, **cast("dict[str, Any]", record.__dict__["fields"])}


def _to_record(
    _logger: Any, _method: str, event: structlog.typing.EventDict
) -> tuple[tuple[str], dict[str, Any]]:
    """The arguments of the standard logger: one line for any formatter, and the fields for ours."""
    fields = dict(event)
    name = str(fields.pop("event"))
    exc_info = fields.pop("exc_info", None)
    line = " ".join([name, *(f"{key}={value!r}" for key, value in fields.items())])
    # No `%` arguments are given, so the line is not formatted again. The stack level skips the two
    # frames of structlog, so that records name the module that logged.
    extra = {"event": name, "fields": fields}
    return (line,), {"exc_info": exc_info, "extra": extra, "stacklevel": 3}
