"""Audit log of calls: who called whom and when, one JSON line each, never the content."""

import asyncio
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.call import Caller
from openclaw_a2a.model.message import format_timestamp

log = get_logger(__name__)

AUDIT_FILE = "calls-audit.jsonl"
_MAX_BYTES = 16 * 1024 * 1024
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class AuditLog:
    """Appends lines to a file; a full file becomes `<name>.1` in place of the previous one.

    The file is written in a worker thread, never on the event loop. Lines that arrive while a
    batch is being written share the next one.
    """

    def __init__(self, path: Path, now: Callable[[], datetime], supervisor: Supervisor) -> None:
        self._path = path
        self._now = now
        self._supervisor = supervisor
        self._lines: list[bytes] = []
        self._next: asyncio.Future[None] | None = None
        """Done when the lines that wait now are written; None while none wait."""
        self._last: asyncio.Future[None] | None = None
        self._turn = asyncio.Lock()
        self._is_failing = False

    def record(
        self, event: str, caller: Caller, *, target: str = "", skill: str = "", reason: str = ""
    ) -> None:
        """Have one line written. A log that cannot be written stops nobody."""
        line = {
            "time": format_timestamp(self._now()),
            "event": event,
            "requester": caller.agent_id,
            "token": caller.name,
            "target": target,
            "skill": skill,
            **({"reason": reason} if reason else {}),
        }
        self._lines.append(msgspec.json.encode(line) + b"\n")
        if self._next is None:
            self._next = self._last = asyncio.get_running_loop().create_future()
            self._supervisor.spawn("calls-audit", self._write_batch(self._next))

    async def flush(self) -> None:
        """Wait until all lines so far are written: batches are written in order."""
        if self._last is not None and not self._last.done():
            # Shielded: a caller that disconnects must not cancel the future of the others.
            await asyncio.shield(self._last)

    def close(self) -> None:
        """Write what is left when the gateway stops."""
        self._write(self._take_lines())

    async def _write_batch(self, written: "asyncio.Future[None]") -> None:
        try:
            # One thread at a time: batches must be written in order, and the file renamed once.
            async with self._turn:
                self._next = None  # later lines belong to the next batch
                await asyncio.to_thread(self._write, self._take_lines())
        finally:
            # Also when it failed: a log that cannot be written must not hold up any result.
            written.set_result(None)

    def _take_lines(self) -> list[bytes]:
        lines, self._lines = self._lines, []
        return lines

    def _write(self, lines: list[bytes]) -> None:
        try:
            if lines:
                self._append(b"".join(lines))
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                log.warning("calls.audit_not_written", path=str(self._path), reason=str(error))
            self._is_failing = True

    def _append(self, lines: bytes) -> None:
        try:
            handle = os.open(self._path, _APPEND, 0o600)
        except FileNotFoundError:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._path, _APPEND, 0o600)
        with os.fdopen(handle, "ab") as file:
            file.write(lines)
            is_full = file.tell() >= _MAX_BYTES
        if is_full:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
