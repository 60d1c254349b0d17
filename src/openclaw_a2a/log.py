"""Loggers of this package: structured events, written through the standard `logging` module.

Every logger is below the logger `openclaw_a2a`, and nothing here touches global configuration: a
program that imports the package decides what is shown. Only the gateway's own process adds a
handler (`app/logging.py`).
"""

import logging
import re
from typing import Any, cast

_URL_SECRETS = re.compile(
    r"""(?P<scheme>://)(?P<user>[^/?#@\s"']*@)?(?P<rest>[^?#\s"']*)(?P<query>[?#][^\s"']*)?"""
)

PACKAGE = "openclaw_a2a"
"""The logger above all of ours."""


class EventHandler(logging.Handler):
    """A handler that takes events as they are, without a record of `logging` around them.

    No abstract class: `isinstance` of one takes longer, and every line asks.
    """

    def write_event(self, level: int, fields: dict[str, Any]) -> None:
        """Write an event, which is among its fields; handlers of this kind override it."""


_package = logging.getLogger(PACKAGE)
_CONTAINERS = (dict, list, tuple)


class EventLogger:
    """Logs an event with its fields: `log.info("run.recovered", count=3)`."""

    __slots__ = ("_logger", "is_enabled")

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)
        self.is_enabled = self._logger.isEnabledFor
        """True when events of a level (of the `logging` module) are shown."""

    def debug(self, event: str, **fields: Any) -> None:
        """Log what is needed only to find a fault."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log what happens in normal operation."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log what an operator should look at; `exc_info` as in `logging`."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log what an operator must look at; `exc_info` as in `logging`."""
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Log an error with the exception that is being handled."""
        self._log(logging.ERROR, event, {"exc_info": True, **fields})

    def _log(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if not self.is_enabled(level):
            return
        exc_info = fields.pop("exc_info", None)
        handlers = _package.handlers
        # Nearly always the log of a gateway is written by its own handler alone. A record costs
        # more than everything else that is done for a line, and every task has one.
        if exc_info is None and len(handlers) == 1 and not _package.propagate:
            handler = handlers[0]
            is_alone = self._logger.parent is _package and not self._logger.handlers
            if is_alone and isinstance(handler, EventHandler):
                handler.write_event(level, {"event": event, **_without_url_secrets(fields)})
                return
        # The stack level skips the two frames of this class, so that records name the module
        # that logged.
        extra = {"event": event, "fields": fields}
        line = _Line(event, fields)
        self._logger.log(level, line, exc_info=exc_info, extra=extra, stacklevel=3)


class _Line:
    """An event as one line, for the handlers of other programs; made only when one asks."""

    __slots__ = ("_event", "_fields")

    def __init__(self, event: str, fields: dict[str, Any]) -> None:
        self._event = event
        self._fields = fields

    def __str__(self) -> str:
        fields = _without_url_secrets(self._fields)
        return " ".join([self._event, *(f"{key}={value!r}" for key, value in fields.items())])


def get_logger(name: str) -> EventLogger:
    """The logger of a module, by its name."""
    return EventLogger(name)


def record_fields(record: logging.LogRecord) -> dict[str, Any]:
    """The event and the fields of a log record; of a foreign record, its message and logger."""
    event = getattr(record, "event", None)
    if event is None:
        return {"event": hide_url_secrets(_message_of(record)), "logger": record.name}
    fields = cast("dict[str, Any]", record.__dict__["fields"])
    return {"event": event, **_without_url_secrets(fields)}


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # arguments that do not fit the text: both, instead of nothing
        return f"{record.msg} {record.args!r}"


def hide_url_secrets(text: str) -> str:
    """The text with user, query and fragment of every address in it hidden: they hold keys."""
    return _URL_SECRETS.sub(_hide_parts, text)


def _hide_parts(found: re.Match[str]) -> str:
    user = "(hidden)@" if found["user"] else ""
    query = f"{found['query'][0]}(hidden)" if found["query"] else ""
    return f"{found['scheme']}{user}{found['rest']}{query}"


def _without_url_secrets(fields: dict[str, Any]) -> dict[str, Any]:
    for value in fields.values():
        if "://" in value if isinstance(value, str) else isinstance(value, _CONTAINERS):
            break
    else:  # most lines have no address: then nothing is copied
        return fields
    return {key: _hide_nested(value) for key, value in fields.items()}


def _hide_nested(value: Any) -> Any:
    if isinstance(value, str):
        return hide_url_secrets(value)
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        return {key: _hide_nested(one) for key, one in members.items()}
    if isinstance(value, list | tuple):
        return [_hide_nested(one) for one in cast("list[Any]", value)]
    return value
