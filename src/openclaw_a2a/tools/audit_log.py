"""The audit log of calls: who asked for what and when, one JSON line each, never the content."""

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.call import Caller
from openclaw_a2a.model.time_format import format_timestamp

log = get_logger(__name__)

FILE_NAME = "calls-audit.jsonl"
_MOST_BYTES = 16 * 1024 * 1024
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class AuditLog:
    """Appends to a file; when it is full it becomes `<name>.1`, in the place of the one before."""

    def __init__(self, path: Path, now: Callable[[], datetime]) -> None:
        self._path = path
        self._now = now
        self._is_broken = False

    def __call__(
        self, event: str, caller: Caller, *, target: str = "", skill: str = "", reason: str = ""
    ) -> None:
        """Write down one event. A log that cannot be written stops nobody."""
        line = {
            "time": format_timestamp(self._now()),
            "event": event,
            "requester": caller.agent_id,
            "token": caller.name,
            "target": target,
            "skill": skill,
            **({"reason": reason} if reason else {}),
        }
        try:
            self._append(msgspec.json.encode(line) + b"\n")
            self._is_broken = False
        except OSError as error:
            if not self._is_broken:
                log.warning("audit-not-written", path=str(self._path), reason=str(error))
            self._is_broken = True

    def _append(self, line: bytes) -> None:
        with self._open() as file:
            file.write(line)
            is_full = file.tell() >= _MOST_BYTES
        if is_full:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))

    def _open(self) -> BinaryIO:
        try:
            handle = os.open(self._path, _APPEND, 0o600)
        except FileNotFoundError:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._path, _APPEND, 0o600)
        return os.fdopen(handle, "ab")
