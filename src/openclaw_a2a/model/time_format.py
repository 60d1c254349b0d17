"""Timestamps in JSON."""

from datetime import UTC, datetime


def format_timestamp(moment: datetime) -> str:
    """An aware time in ISO 8601, in UTC with milliseconds: 2026-01-05T10:00:00.000Z."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
