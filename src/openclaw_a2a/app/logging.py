"""The log of the gateway's process on stderr: one line for people on a terminal, JSON elsewhere."""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from openclaw_a2a.log import PACKAGE, EventHandler, get_logger, hide_url_secrets, record_fields
from openclaw_a2a.settings import LogSettings, read_command_environment

log = get_logger(__name__)


def configure_logs(settings: LogSettings) -> None:
    """Show the log of this package on stderr.

    Where the program has not configured logging itself, warnings of other libraries (uvicorn,
    asyncio, Python's own) and exceptions that Python would only print are shown in the same form.
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
        threading.excepthook, sys.unraisablehook = _log_thread_exception, _log_unraisable
    package.addHandler(handler)
    package.setLevel(level)
    package.propagate = False


@contextmanager
def logging_to_stderr(settings: LogSettings) -> Generator[None]:
    """Show the log on stderr meanwhile, as `configure_logs`; afterwards logging is as before."""
    loggers = logging.getLogger(), logging.getLogger(PACKAGE)
    before = [(one, one.handlers[:], one.level, one.propagate) for one in loggers]
    hooks = threading.excepthook, sys.unraisablehook
    configure_logs(settings)
    try:
        yield
    finally:
        for handler in loggers[1].handlers:
            with suppress(OSError, ValueError):  # the reader of the log is gone
                handler.flush()
        for logger, handlers, level, propagate in before:
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)
        threading.excepthook, sys.unraisablehook = hooks
        # Not at the end of an inner block: the outer one still shows warnings.
        if threading.excepthook is not _log_thread_exception:
            logging.captureWarnings(False)


def _log_thread_exception(raised: threading.ExceptHookArgs) -> None:
    if raised.exc_type is SystemExit:  # how a thread may end; Python prints nothing either
        return
    thread = raised.thread.name if raised.thread is not None else None
    log.error("process.thread_raised", thread=thread, exc_info=raised.exc_value)


def _log_unraisable(raised: "sys.UnraisableHookArgs") -> None:
    where = raised.err_msg or "Exception ignored in"
    log.error(
        "process.exception_ignored", where=f"{where}: {raised.object!r}", exc_info=raised.exc_value
    )


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
        self._render: Callable[[dict[str, Any]], str] = _render_json
        if is_pretty:
            is_coloured = sys.stderr.isatty() and not read_command_environment().no_colour
            self._render = partial(_render_text, is_coloured=is_coloured)

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError):
            self.flush()  # in the order in which they came
            self._write(self.format(record))

    def write_event(self, level: int, fields: dict[str, Any]) -> None:
        # A log whose reader is gone must not stop the program.
        with suppress(OSError, ValueError):
            with self.lock or _NO_LOCK:  # one of another thread must not be lost to a flush
                self._events.append((level, time.time(), fields))
            # Events of one turn of the event loop are rendered together, and are one write. Not
            # those that somebody must see, nor those outside of an event loop: nothing would come
            # to write them.
            if level >= logging.WARNING or not self._schedule_flush():
                self.flush()

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
        if record.exc_info and record.exc_info[0] is not None:
            text = "".join(traceback.format_exception(*record.exc_info))
            fields = {**fields, "exception": hide_url_secrets(text.rstrip("\n"))}
        return self._line(record.levelno, record.created, fields)

    def _line(self, level: int, written_at: float, fields: dict[str, Any]) -> str:
        name = _LEVEL_NAMES.get(level) or logging.getLevelName(level).lower()
        about = {"level": name, "timestamp": datetime.fromtimestamp(written_at, UTC)}
        try:
            return self._render({**fields, **about})
        except Exception as error:  # the text of a value raises: the rest is shown nevertheless
            reason = f"the fields cannot be shown: {type(error).__name__}"
            return self._render({"event": str(fields["event"]), "reason": reason, **about})

    def _write(self, line: str) -> None:
        # One write for the whole line: lines of several threads must not mix.
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def _render_json(event: dict[str, Any]) -> str:
    try:
        return _encode(event).decode()
    except (TypeError, ValueError, OverflowError):  # a key that is no text, a lone surrogate
        about = {"level": event["level"], "timestamp": event["timestamp"]}
        shown = {key: repr(value) for key, value in event.items() if key not in about}
        return _encode({**shown, **about}).decode()


# -------------------------------------------------------------------- what people read

_EVENT_CELLS = 28
_BOLD, _DIM, _CYAN = "1", "2", "36"
_LEVEL_COLOURS = {"debug": _DIM, "info": "32", "warning": "33"}
_RED = "31"


def _render_text(event: dict[str, Any], *, is_coloured: bool) -> str:
    """`2026-01-31 12:00:00 info     run.recovered   count=3`, in local time."""

    def paint(text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if is_coloured else text

    fields = dict(event)
    level, exception = fields.pop("level"), fields.pop("exception", None)
    moment = fields.pop("timestamp").astimezone()
    name = _escape_controls(str(fields.pop("event")))
    line = [
        paint(f"{moment:%Y-%m-%d %H:%M:%S}", _DIM),
        paint(f"{level:<8}", _LEVEL_COLOURS.get(level, _RED)),
        paint(f"{name:<{_EVENT_CELLS if fields else 0}}", _BOLD),
        *(f"{paint(key, _CYAN)}={_value_text(value)}" for key, value in fields.items()),
    ]
    below = [_escape_controls(exception)] if exception else []
    return "\n".join([" ".join(line), *below])


def _value_text(value: object) -> str:
    """A value on one line; a text that is one plain word without quotes."""
    if not isinstance(value, str):
        return repr(value)
    return value if value and value.isprintable() and " " not in value else repr(value)


def _escape_controls(text: str) -> str:
    """A text with its line ends, and escapes for everything that could steer the terminal."""
    return "".join(one if one == "\n" or one.isprintable() else repr(one)[1:-1] for one in text)
