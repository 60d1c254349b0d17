"""Texts as PostgreSQL takes them: none of them may have a zero character."""

_ESCAPE = "\ufdd0"
"""A character that no text has: Unicode keeps it for such uses."""


def stored_id(log_id: str) -> str:
    """The stored form of the id of a log."""
    if "\0" not in log_id and _ESCAPE not in log_id:
        return log_id
    return log_id.replace(_ESCAPE, f"{_ESCAPE}1").replace("\0", f"{_ESCAPE}0")


def shown_id(stored: str) -> str:
    """The id of a log from its stored form."""
    if _ESCAPE not in stored:
        return stored
    return stored.replace(f"{_ESCAPE}0", "\0").replace(f"{_ESCAPE}1", _ESCAPE)


def stored_reason(reason: str | None) -> str | None:
    """The stored form of a reason, which may quote what a receiver answered."""
    return None if reason is None else reason.replace("\0", "\ufffd")
