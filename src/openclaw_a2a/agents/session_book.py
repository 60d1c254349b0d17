"""Which session of a program belongs to which conversation, kept in a JSON file."""

import logging
from pathlib import Path

import msgspec

_log = logging.getLogger(__name__)


class SessionBook:
    """Session ids by context key. Without a path they are known as long as the process lives.

    A file that is missing or cannot be read is empty; one that cannot be written is logged.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path).expanduser() if path else None
        self._sessions = _read(self._path) if self._path is not None else {}

    def get(self, context_key: str) -> str | None:
        """The session to go on with."""
        return self._sessions.get(context_key)

    def keep(self, context_key: str, session_id: str) -> None:
        """Go on with this session next time."""
        if self._sessions.get(context_key) != session_id:
            self._sessions[context_key] = session_id
            self._save()

    def forget(self, context_key: str) -> None:
        """Begin a new session next time."""
        if self._sessions.pop(context_key, None) is not None:
            self._save()

    def _save(self) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # A second file takes the place of the first, so that a crash leaves one of them whole.
            fresh = self._path.with_name(self._path.name + ".new")
            fresh.write_bytes(msgspec.json.format(msgspec.json.encode(self._sessions)))
            fresh.replace(self._path)
        except OSError as error:
            _log.warning("The sessions could not be written to %s: %s", self._path, error)


def _read(path: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        _log.warning("The sessions in %s cannot be read and are forgotten: %s", path, error)
        return {}
