"""The log of the gateway's process on stderr: pretty on a terminal, JSON lines elsewhere."""

import asyncio
import logging
import sys
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from openclaw_a2a.log import PACKAGE, EventHandler, record_fields
from openclaw_a2a.settings import LogSettings


def configure_logs(settings: LogSettings) -> None:
    """Show the log of this package on stderr.

    Where the program has not configured logging itself, warnings of other libraries (uvicorn,
    asyncio, Python's own) are shown in the same form.
    """
    root, package = logging.getLogger(), logging.getLogger(PACKAGE)
    for logger in (root, package):
        for handler in logger.handlers[:]:
            if isinstance(handler, _StderrHandler):
                logger.removeHandler(handler)
    handler = _StderrHandler(is_pretty=is_for_people(settings))
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    if not root.handlers:
        root.addHandler(handler)
        # Not below: at the levels for their developers libraries write secrets and contents.
        root.setLevel(max(level, logging.WARNING))
        logging.captureWarnings(True)
    package.addHandler(handler)
    package.setLevel(level)
    package.propagate = False


@contextmanager
def logging_to_stderr(settings: LogSettings) -> Generator[None]:
    """Show the log on stderr meanwhile, as `configure_logs`; afterwards logging is as before."""
    loggers = logging.getLogger(), logging.getLogger(PACKAGE)
    before = [(one, one.handlers[:], one.level, one.propagate) for one in loggers]
    configure_logs(settings)
    try:
        yield
    finally:
        for handler in loggers[1].handlers:
            with suppress(OSError, ValueError):  # nobody reads the log any more
                handler.flush()
        for logger, handlers, level, propagate in before:
            if logger is loggers[0] and logger.handlers != handlers:
                logging.captureWarnings(False)
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)


def is_for_people(settings: LogSettings) -> bool:
    """True when the log is read by people and not by programs."""
    return settings.format == "pretty" or (settings.format == "auto" and sys.stderr.isatty())


_NO_LOCK = nullcontext()
_LEVEL_NAMES = {level: name.lower() for name, level in logging.getLevelNamesMapping().items()}
_encode = msgspec.json.Encoder(enc_hook=repr).encode


class _StderrHandler(EventHandler):
    """Writes to what `sys.stderr` is at that moment; it may have been replaced."""

    def __init__(self, *, is_pretty: bool) -> None:
        super().__init__()
        self._events: list[tuple[int, float, dict[str, Any]]] = []
        """Events that are not rendered yet, with their levels and times."""
        self._flushing: asyncio.AbstractEventLoop | None = None
        """The event loop that is about to call `flush`."""
        self._render: Callable[[Any, str, dict[str, Any]], str] = _render_json
        if is_pretty:
            # Only here: it imports much that a gateway without a terminal does not need.
            from structlog.dev import ConsoleRenderer, plain_traceback

            console = ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=plain_traceback
            )

            def render(logger: Any, name: str, event: dict[str, Any]) -> str:
                event["timestamp"] = event["timestamp"].isoformat().replace("+00:00", "Z")
                return console(logger, name, event)

            self._render = render

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.flush()  # in the order in which they came
            self._write(self.format(record))
        except Exception:
            self.handleError(record)

    def write_event(self, level: int, fields: dict[str, Any]) -> None:
        try:
            with self.lock or _NO_LOCK:  # one of another thread must not be lost to a flush
                self._events.append((level, time.time(), fields))
            # Events of one turn of the event loop are rendered together, and are one write. Not
            # those that somebody must see, nor those outside of an event loop: nothing would come
            # to write them.
            if level >= logging.WARNING or not self._schedule_flush():
                self.flush()
        except Exception:
            # As `handleError`: a log that nobody reads any more must not stop the program.
            with suppress(OSError):
                if logging.raiseExceptions:
                    traceback.print_exc()

    def _schedule_flush(self) -> bool:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        if self._flushing is not loop:
            self._flushing = loop
            loop.call_soon(self.flush)
        return True

    def flush(self) -> None:
        """Write the lines that wait."""
        with self.lock or _NO_LOCK:
            events, self._events, self._flushing = self._events, [], None
            if events:
                self._write("\n".join([self._line(*event) for event in events]))

    def format(self, record: logging.LogRecord) -> str:
        fields = record_fields(record)
        if record.exc_info:
            fields = {**fields, "exc_info": record.exc_info}
        return self._line(record.levelno, record.created, fields)

    def _line(self, level: int, written_at: float, fields: dict[str, Any]) -> str:
        name = _LEVEL_NAMES.get(level) or logging.getLevelName(level).lower()
        moment = datetime.fromtimestamp(written_at, UTC)
        return self._render(None, name, {**fields, "level": name, "timestamp": moment})

    def _write(self, line: str) -> None:
        # One write for the whole line: lines of several threads must not mix.
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def _render_json(_logger: Any, _level: str, event: dict[str, Any]) -> str:
    exc_info = event.pop("exc_info", None)
    if exc_info:
        event["exception"] = "".join(traceback.format_exception(*exc_info)).rstrip("\n")
    try:
        return _encode(event).decode()
    except (TypeError, ValueError, OverflowError):  # a key that is no text, a lone surrogate
        return msgspec.json.encode({key: repr(value) for key, value in event.items()}).decode()
