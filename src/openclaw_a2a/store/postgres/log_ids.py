"""Ids of logs as PostgreSQL takes them."""

_ESCAPE = "\ufdd0"
"""A character that no text has: Unicode keeps it for such uses."""


def stored_id(log_id: str) -> str:
    """An id as PostgreSQL takes it, which has no zero character."""
    if "\0" not in log_id and _ESCAPE not in log_id:
        return log_id
    return log_id.replace(_ESCAPE, f"{_ESCAPE}1").replace("\0", f"{_ESCAPE}0")


def shown_id(stored: str) -> str:
    """An id as it was given."""
    if _ESCAPE not in stored:
        return stored
    return stored.replace(f"{_ESCAPE}0", "\0").replace(f"{_ESCAPE}1", _ESCAPE)
