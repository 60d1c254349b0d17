"""The audit log: who changed what, from where and with which outcome; never any content.

Entries are collected on the event loop and appended to the audit file (`audit_file`) in batches.
Repeated refusals of one caller are summed up, so that nobody can fill the log with them.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict, Unpack, cast

from openclaw_a2a.engine.audit_file import (
    AUDIT_FILE,
    FAILED,
    GATEWAY,
    OK,
    REFUSED,
    AuditEntry,
    AuditFile,
)
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import CallerError, GatewayError

log = get_logger(__name__)

OPERATOR = "operator"
EXPIRED = "data-expired"

acting: ContextVar[tuple[str, str]] = ContextVar("acting", default=(OPERATOR, ""))
"""The actor and its address, for code without such parameters: `decide` of agents, calls.

Set it right before calling such code and rely on it nowhere else: background work inherits the
value of the task that started it.
"""

_WRITE_DELAY_S = 0.05
"""How long an entry waits, to be written in one batch with others."""
_SUMMARY_S = 60.0
_MAX_SUMMARIZED = 1000  # addresses, and callers; the others are counted together
_MAX_REFUSAL_LINES = 10  # of a caller and event, between two summaries


class _Refusals:
    """Refusals of one kind, and the fields that are equal in those without a line of their own."""

    __slots__ = ("about", "count", "lines")

    def __init__(self) -> None:
        self.lines = 0
        """How many were logged one by one."""
        self.count = 0
        """How many are only in the summary."""
        self.about: About | None = None

    def add(self, about: "About") -> None:
        self.count += 1
        if self.about is None:
            self.about = about
        elif self.about != about:
            self.about = cast("About", dict(self.about.items() & about.items()))


class About(TypedDict, total=False):
    """The optional fields of an entry."""

    action: str
    target: str
    task: str
    account: str
    address: str
    outcome: str
    policy: str
    reason: str
    requester: str | None
    skill: str | None


class _Outcome(TypedDict):
    outcome: str
    reason: str


def audit_outcome(error: BaseException | None) -> _Outcome:
    """The outcome of an attempt, with the reason if it is not `ok`."""
    if error is None:
        return _Outcome(outcome=OK, reason="")
    if not isinstance(error, GatewayError):  # a fault of ours, or the server stops
        return _Outcome(outcome=FAILED, reason=type(error).__name__)
    # The code, not the message: messages quote what a caller wrote.
    is_refused = isinstance(error, CallerError)
    return _Outcome(outcome=REFUSED if is_refused else FAILED, reason=error.code)


class AuditLog:
    """Collects entries on the event loop and writes them in a worker thread, in batches.

    Only actions of the operator wait until their entry is written (`flush`). Any other entry is
    written within about 50 ms, and lost if the process is killed before that.
    """

    def __init__(self, file: AuditFile | None, now: Callable[[], datetime]) -> None:
        """Without a file nothing is logged."""
        self._file = file
        self.is_kept = file is not None
        self._now = now
        self._entries: list[AuditEntry] = []
        self._lost = 0
        self._lost_reason = ""
        self._timer: asyncio.TimerHandle | None = None
        self._batch: asyncio.Future[None] | None = None
        """The batch that is being written."""
        self._must_sync = False
        """The next batch ends with an fsync."""
        self._refusals: dict[tuple[str, str, str], _Refusals] = {}
        """Requests with wrong or insufficient credentials, by event, caller and address."""
        self._refused_changes: dict[tuple[str, str, str], _Refusals] = {}
        """By event, caller and outcome. A table of its own: unknown clients cannot fill it."""
        self._summary_timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Create the file, or read where it ends, so that its removal is detected later."""
        self._append([])

    def record(
        self, event: str, who: str, *, count: int | None = None, **about: Unpack[About]
    ) -> None:
        """Log one entry; `about` are fields of `AuditEntry`.

        It never fails: the action goes on if the log cannot be written.
        """
        if self._file is None:
            return
        self._entries.append(AuditEntry(self._now(), event, who, count=count, **about))
        if self._timer is None and self._batch is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_WRITE_DELAY_S, self._start_batch)

    def record_expired(self, what: str, count: int) -> None:
        """Log that a sweep deleted data."""
        if count:
            self.record(EXPIRED, GATEWAY, action=what, count=count)

    def record_upgrade(self, path: str, steps: int) -> None:
        """Log that opening a store changed its schema."""
        self.record("db-upgraded", GATEWAY, target=path, count=steps)

    def record_refusal(self, event: str, who: str, **about: Unpack[About]) -> None:
        """Log a change that was refused or that failed.

        Repeating refused requests costs a caller nothing. So each caller gets ten lines a minute
        for an event; one more line counts the others, with the fields that they have in common.
        """
        if self._file is None:
            return
        outcome = about.setdefault("outcome", REFUSED)
        key = (event, who, outcome)
        if key not in self._refused_changes and len(self._refused_changes) >= _MAX_SUMMARIZED:
            who = "other callers"
            key = (event, who, outcome)
        refusals = self._refused_changes.setdefault(key, _Refusals())
        if refusals.lines < _MAX_REFUSAL_LINES:
            refusals.lines += 1
            self.record(event, who, **about)
        else:
            refusals.add(about)
        self._schedule_summary()

    def count_refusal(self, status: int, who: str, address: str) -> None:
        """Count a request with wrong or insufficient credentials; one line a minute has the sum."""
        if self._file is None:
            return
        event = "request-forbidden" if status == 403 else "authentication-failed"
        key = (event, who, address)
        if key not in self._refusals and len(self._refusals) >= _MAX_SUMMARIZED:
            key = (event, "", "other addresses")
        about = About(address=key[2], outcome=REFUSED)
        self._refusals.setdefault(key, _Refusals()).add(about)
        self._schedule_summary()

    def _schedule_summary(self) -> None:
        if self._summary_timer is None:
            loop = asyncio.get_running_loop()
            self._summary_timer = loop.call_later(_SUMMARY_S, self._summarize)

    async def flush(self, *, sync: bool = False) -> None:
        """Wait until all entries so far are written; with `sync`, until they are on the disk."""
        if self._file is None:
            return
        self._must_sync = self._must_sync or sync
        # Only the entries so far: others may add entries without end.
        batches = (1 if self._entries else 0) + (0 if self._batch is None else 1)
        for _ in range(batches):
            await self._finish_batch()
        # All entries were in a batch that began before `sync` was asked for.
        if sync and self._must_sync:
            await self._finish_batch()

    async def _finish_batch(self) -> None:
        if self._batch is None:
            self._start_batch()
        batch = self._batch
        if batch is not None and not batch.done():
            # Shielded: a caller that disconnects must not cancel the batch of the others.
            await asyncio.shield(batch)
        if batch is not None:
            # Its callback may not have run yet, and awaiting a done future runs no callbacks.
            self._on_written(batch)

    def close(self) -> None:
        """Write the remaining entries when the gateway stops."""
        for timer in (self._timer, self._summary_timer):
            if timer is not None:
                timer.cancel()
        self._summarize()
        self._timer = self._summary_timer = None
        entries, self._entries = self._entries, []
        # A batch may still be under way in its thread: the lock of the file orders the two.
        self._write(entries, self._must_sync)

    def _start_batch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()  # a flush came first
        self._timer = None
        entries, self._entries = self._entries, []
        sync, self._must_sync = self._must_sync, False
        loop = asyncio.get_running_loop()
        # The thread pool owns it; one at a time, so that lines are in the order of `record`.
        self._batch = loop.run_in_executor(None, self._write, entries, sync)
        self._batch.add_done_callback(self._on_written)

    def _on_written(self, batch: "asyncio.Future[None]") -> None:
        if batch is not self._batch:
            return
        self._batch = None
        if self._entries and self._timer is None:
            # Delay these entries too, although they waited while this batch was written: without
            # the delay batches are small under load, and each wakes a thread.
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_WRITE_DELAY_S, self._start_batch)

    def _summarize(self) -> None:
        self._summary_timer = None
        refusals = [*self._refusals.items(), *self._refused_changes.items()]
        self._refusals, self._refused_changes = {}, {}
        for (event, who, _), found in refusals:
            if found.about is not None:
                now, about = self._now(), found.about
                self._entries.append(AuditEntry(now, event, who, count=found.count, **about))
        if self._entries and self._timer is None and self._batch is None:
            self._timer = asyncio.get_running_loop().call_later(0, self._start_batch)

    def _write(self, entries: list[AuditEntry], sync: bool) -> None:
        if entries or sync:
            self._append(entries, sync=sync)

    def _append(self, entries: list[AuditEntry], *, sync: bool = False) -> None:
        if self._file is None:
            return
        if self._lost and entries:
            text = f"{self._lost} entries could not be written: {self._lost_reason}"
            note = AuditEntry(entries[0].at, "audit-incomplete", GATEWAY, reason=text)
            entries = [note, *entries]
        try:
            self._file.append(entries, sync=sync)
        except Exception as error:  # also a bug of ours: later entries must still be written
            if not self._lost:
                reason, path = str(error), str(self._file.path)
                log.warning("audit.not_written", path=path, reason=reason)
            self._lost_reason = getattr(error, "strerror", None) or type(error).__name__
            self._lost += len(entries) - (1 if self._lost else 0)
        else:
            self._lost = 0 if entries else self._lost


def record_command(
    folder: Path, event: str, *, count: int | None = None, **about: Unpack[About]
) -> None:
    """Log a change by a command of the operator, which runs in its own process."""
    about.setdefault("address", "command line")
    entry = AuditEntry(datetime.now(UTC), event, OPERATOR, count=count, **about)
    try:
        AuditFile(folder / AUDIT_FILE).append([entry], sync=True)
    except OSError as error:  # as in the gateway, the action goes on
        log.warning("audit.not_written", path=str(folder / AUDIT_FILE), reason=str(error))
