"""What the process says while it runs: pretty on a terminal, JSON lines elsewhere, on stderr."""

import logging
import sys

import structlog

from openclaw_a2a.settings import LogSettings


def configure_logs(settings: LogSettings) -> None:
    """Set the level and the form of log lines."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_rendering(is_pretty=is_for_people(settings)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_Stderr,
        cache_logger_on_first_use=True,
    )


class _Stderr:
    """Writes each line to what stderr is at that moment; somebody may have replaced it."""

    def __init__(self, *_names: object) -> None:
        pass

    def msg(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    debug = info = warning = error = critical = exception = msg


def is_for_people(settings: LogSettings) -> bool:
    """True when what is said is read by people and not by programs."""
    return settings.format == "pretty" or (settings.format == "auto" and sys.stderr.isatty())


def _rendering(*, is_pretty: bool) -> list[structlog.typing.Processor]:
    if is_pretty:
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(exception_formatter=plain)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
