"""The audit log: who changed what, from where and with which outcome; never any content.

One JSON line each, in a file that the gateway and its commands append to. Each line has a number
and the SHA-256 of the line before it, over rotations and restarts, so that a line that was changed,
removed or moved can be found (`audit_reader.verify_chain`). A small file beside the log, the head,
holds the number and hash of the last line; it is also the lock that writers take. Another file, the
anchor, and the memory of the gateway hold them too: so a log removed with its head is missed.
"""

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict, Unpack, cast

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import CallerError, GatewayError
from openclaw_a2a.model.file_lock import lock_file
from openclaw_a2a.model.message import format_timestamp

log = get_logger(__name__)

AUDIT_FILE = "audit.jsonl"
HEAD_SUFFIX = ".head"
ANCHOR_FILE = ".audit-anchor"
"""Hidden, and with another beginning than the log: what removes `audit*` or `*` leaves it."""
OLD_FILES = ("calls-audit.jsonl.1", "calls-audit.jsonl")
"""The calls that earlier versions logged, without numbers and hashes; oldest first."""

OK, REFUSED, FAILED = "ok", "refused", "failed"
OPERATOR = "operator"
_GATEWAY = "gateway"
"""Who did what nobody had done: the log itself, and what expires."""
EXPIRED = "data-expired"
AUDIT_LOST = "audit-lost"
"""Lines are gone that were written; the entry has the number after the last one known of."""

acting: ContextVar[tuple[str, str]] = ContextVar("acting", default=(OPERATOR, ""))
"""Who has this done and from where, for code that is not told: `decide` of agents, calls.

Set right before such code is called. Nothing else may rely on it: background work keeps the value
of whoever happened to start it.
"""

_WRITE_DELAY_S = 0.05
"""How long an entry waits for others, to be written in one batch with them."""
_SUMMARY_S = 60.0
_MAX_SUMMARIZED = 1000  # addresses, and callers; those beyond are counted together
_MAX_REFUSAL_LINES = 10  # of a caller and event, between two sums
_MAX_TEXT = 500
HEAD_BYTES = 256  # of a fixed width: it is overwritten in place by one small write
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_NUMBERED = re.compile(r"\.([1-9][0-9]*)")
decode_line = msgspec.json.Decoder(dict[str, object]).decode
"""The fields of a line. Raises: msgspec.MsgspecError, UnicodeDecodeError, RecursionError."""


class AuditEntry(msgspec.Struct, frozen=True, gc=False):
    """One change. Texts are names and ids: no token, no address of a webhook, no message.

    `action` is the method, tool or route where `event` stands for several. `requester` and `skill`
    are of calls: the agent that calls, and what for. `policy` is the decision of the policy.
    """

    at: datetime
    event: str
    who: str
    action: str = ""
    target: str = ""
    task: str = ""
    account: str = ""
    address: str = ""
    outcome: str = OK
    policy: str = ""
    reason: str = ""
    requester: str | None = None
    skill: str | None = None
    count: int | None = None


class _Line(msgspec.Struct, frozen=True, omit_defaults=True, rename={"address": "from"}):
    n: int
    time: str
    event: str
    who: str
    account: str = ""
    requester: str | None = None
    action: str = ""
    target: str = ""
    skill: str | None = None
    task: str = ""
    address: str = ""
    outcome: str = ""
    policy: str = ""
    reason: str = ""
    count: int | None = None
    previous: str = ""


class AuditHead(msgspec.Struct, frozen=True):
    """The last line that was written, the size of the file then, and the first line that is kept.

    It is written after the lines. Whatever the file has beyond `size` was written by a process
    that was killed in between.
    """

    n: int = 0
    hash: str = ""
    size: int = 0
    first: int = 1

    def follows(self, known: "AuditHead") -> bool:
        """True when this can be the end of a log that has had the end `known`."""
        return self.n > known.n or (self.n, self.hash) == (known.n, known.hash)


class AuditFile:
    """The file and its chain. Processes take turns by a lock; a batch is one write.

    `max_bytes` None: never rotated here (a command leaves that to the gateway).
    """

    def __init__(self, path: Path, *, max_bytes: int | None = None, keep: int = 10) -> None:
        self.path = path
        self.head_path = path.with_name(path.name + HEAD_SUFFIX)
        self.anchor_path = path.with_name(ANCHOR_FILE)
        self._max_bytes = max_bytes
        self._keep = keep
        self._last = AuditHead()
        """The end of the log when this process last wrote."""

    def append(self, entries: Sequence[AuditEntry], *, sync: bool = False) -> None:
        """Add lines. Unless they are synced, a machine that loses power may lose some.

        Raises: OSError.
        """
        # One function with plain system calls: this runs for every burst of requests.
        try:
            lock = os.open(self.head_path, _FLAGS, 0o600)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self.head_path, _FLAGS, 0o600)
        with ExitStack() as files:
            files.callback(os.close, lock)  # which releases the lock, too
            lock_file(lock)
            handle = os.open(self.path, _FLAGS | os.O_APPEND, 0o600)
            files.callback(os.close, handle)
            anchor = os.open(self.anchor_path, _FLAGS, 0o600)
            files.callback(os.close, anchor)
            size = os.fstat(handle).st_size
            head = read_head(os.pread(lock, HEAD_BYTES, 0))
            anchored = read_head(os.pread(anchor, HEAD_BYTES, 0)) or AuditHead()
            known = max(anchored, self._last, key=lambda one: one.n)
            if head is None or size != head.size or not head.follows(known):
                head, entries = self._repair(handle, size, head, known, entries)
                size = head.size
                # A head from now on: lines without one were not left by a killed process.
                _write_head(lock, head)
            n, previous, lines = head.n, head.hash, list[bytes]()
            for entry in entries:
                n += 1
                line = _encode(entry, n, previous)
                previous = hashlib.sha256(line).hexdigest()
                lines += (line, b"\n")
            batch = b"".join(lines)
            # After an error the rest is a torn line, which the next writer repairs.
            while batch:
                written = os.write(handle, batch)
                size += written
                batch = batch[written:]
            if sync:
                os.fsync(handle)
            head = AuditHead(n, previous, size, head.first)
            _write_head(lock, head)
            if self._max_bytes is not None and size >= self._max_bytes:
                head = self._rotate(lock, head)
            # Last: after a crash in between it is behind the log, never ahead of it.
            _write_head(anchor, head)
            self._last = head

    def files(self) -> list[Path]:
        """The files of the chain that exist, oldest first."""
        numbers = sorted(self._numbers(), reverse=True)
        found = [self._numbered(one) for one in numbers]
        return [*found, self.path] if self.path.exists() else found

    def _numbers(self) -> list[int]:
        prefix = self.path.name
        rest = (one.name.removeprefix(prefix) for one in self.path.parent.glob(f"{prefix}.*"))
        return [int(found[1]) for one in rest if (found := _NUMBERED.fullmatch(one))]

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _rotate(self, lock: int, head: AuditHead) -> AuditHead:
        numbers = set(self._numbers())
        # Up to the first number that is free: a rotation that a crash interrupted left a gap.
        free = next(one for one in range(1, len(numbers) + 2) if one not in numbers)
        after = {one + 1 if one < free else one for one in numbers} | {1}
        dropped = [one for one in sorted(after, reverse=True) if one > self._keep]
        first = head.first
        if dropped:
            oldest = max(one for one in after if one <= self._keep)
            before = oldest - 1 if oldest <= free else oldest
            first = _first_number(self._numbered(before) if before else self.path) or first
        # The head first: it says that older lines may be missing, before they are.
        head = msgspec.structs.replace(head, size=0, first=first)
        _write_head(lock, head)
        for number in range(free - 1, 0, -1):
            self._numbered(number).replace(self._numbered(number + 1))
        self.path.replace(self._numbered(1))
        for number in dropped:
            self._numbered(number).unlink(missing_ok=True)
        return head

    def _repair(
        self,
        handle: int,
        size: int,
        head: AuditHead | None,
        known: AuditHead,
        entries: Sequence[AuditEntry],
    ) -> tuple[AuditHead, list[AuditEntry]]:
        """Continue the chain where a killed process, or somebody else, left the file.

        Whole lines that the head does not know are taken over, a torn one is cut off, and lines
        that are gone stay gone: the chain continues from the last line that is known of, so that
        the gap is found.
        """
        notes: list[str] = []
        lost = ""
        if head is None:
            head = self._rebuild_head()
            if size or head.n or known.n:
                notes.append(f"{self.head_path.name} was missing or damaged")
            if (size or head.n) and not known.n:
                lost = "nothing is left that says where the log ended"
            head = msgspec.structs.replace(head, first=known.first if known.n else head.first)
        if size < head.size:
            lost = f"the file was {head.size - size} bytes longer when it was last written"
        n, previous, end = _take_over(handle, min(head.size, size), head, notes)
        if not AuditHead(n, previous).follows(known):
            lost = f"the log ended with line {n}, and was written up to line {known.n}"
            n, previous = known.n, known.hash
        head = AuditHead(n, previous, end, head.first)
        at = entries[0].at if entries else datetime.now(UTC)
        noted = [AuditEntry(at, "audit-repaired", _GATEWAY, reason=one) for one in notes]
        if lost:
            noted.insert(0, AuditEntry(at, AUDIT_LOST, _GATEWAY, outcome=FAILED, reason=lost))
        return head, [*noted, *entries]

    def _rebuild_head(self) -> AuditHead:
        """A head from the rotated files, as far as they tell."""
        numbers = sorted(self._numbers())
        if not numbers:
            return AuditHead()
        first = _first_number(self._numbered(numbers[-1])) or 1
        last = self._numbered(numbers[0]).read_bytes().rstrip(b"\n").rpartition(b"\n")[2]
        found = chain_fields(last)
        n = 0 if found is None else found[0]
        return AuditHead(n, hashlib.sha256(last).hexdigest(), 0, first)


class _Refusals:
    """Refusals that are summed up, and what they have in common."""

    __slots__ = ("about", "count", "lines")

    def __init__(self) -> None:
        self.lines = 0
        """How many have a line of their own."""
        self.count = 0
        """How many have none."""
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
    """The outcome of what was tried, and why it is not `ok`."""
    if error is None:
        return _Outcome(outcome=OK, reason="")
    if not isinstance(error, GatewayError):  # a fault of ours, or the server stops
        return _Outcome(outcome=FAILED, reason=type(error).__name__)
    # The code, not the message: messages quote what a caller wrote.
    is_refused = isinstance(error, CallerError)
    return _Outcome(outcome=REFUSED if is_refused else FAILED, reason=error.code)


class AuditLog:
    """Collects entries on the event loop and writes them in a worker thread, in batches.

    Nobody waits for it but who calls `flush`: what the operator does. Any other entry is written
    within about 50 ms; a process that is killed before that takes it along.
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
        """Whether the next batch is to be on the disk, with all before it, when it is written."""
        self._refusals: dict[tuple[str, str, str], _Refusals] = {}
        """Requests that were refused for who sent them, by event, caller and address."""
        self._refused_changes: dict[tuple[str, str, str], _Refusals] = {}
        """By event, caller and outcome. Apart: strangers must not take the room of callers."""
        self._summary_timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begin the log, or note where it ends: then it is missed when it is removed."""
        self._append([])

    def record(
        self, event: str, who: str, *, count: int | None = None, **about: Unpack[About]
    ) -> None:
        """Have one line written; `about` are fields of `AuditEntry`.

        A log that cannot be written stops nobody.
        """
        if self._file is None:
            return
        self._entries.append(AuditEntry(self._now(), event, who, count=count, **about))
        if self._timer is None and self._batch is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_WRITE_DELAY_S, self._start_batch)

    def record_expired(self, what: str, count: int) -> None:
        """Have one line written about data that a sweep deleted."""
        if count:
            self.record(EXPIRED, _GATEWAY, action=what, count=count)

    def record_upgrade(self, path: str, steps: int) -> None:
        """Have one line written about a store whose schema was changed when it was opened."""
        self.record("db-upgraded", _GATEWAY, target=path, count=steps)

    def record_refusal(self, event: str, who: str, **about: Unpack[About]) -> None:
        """Have one line written about a change that was refused, or that failed.

        A caller can have that repeated for nothing. So it gets ten lines a minute for each event;
        those beyond are summed up in one, with what they have in common.
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
        """Count a request that was refused for who sent it; one line a minute sums them up."""
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
        # Those so far, not all there are: others may add entries without end.
        batches = (1 if self._entries else 0) + (0 if self._batch is None else 1)
        for _ in range(batches):
            await self._finish_batch()
        # All of them were in a batch that had begun before.
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
            # Its callback may not have been called yet, and awaiting what is done calls none.
            self._on_written(batch)

    def close(self) -> None:
        """Write what is left when the gateway stops."""
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
            self._timer.cancel()  # a flush was faster
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
            # With the delay, also for those that have waited while this batch was written: under
            # load each batch without it has a few entries, and costs a thread its wake-up.
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
            note = AuditEntry(entries[0].at, "audit-incomplete", _GATEWAY, reason=text)
            entries = [note, *entries]
        try:
            self._file.append(entries, sync=sync)
        except Exception as error:  # also a bug: later entries have to be written
            if not self._lost:
                reason, path = str(error), str(self._file.path)
                log.warning("audit.not_written", path=path, reason=reason)
            self._lost_reason = getattr(error, "strerror", None) or type(error).__name__
            self._lost += len(entries) - (1 if self._lost else 0)
        else:
            self._lost = 0 if entries else self._lost


# ---------------------------------------------------------------- lines


def _encode(entry: AuditEntry, n: int, previous: str) -> bytes:
    line = _Line(
        n=n,
        time=format_timestamp(entry.at),
        event=entry.event,
        who=entry.who[:_MAX_TEXT],
        account=entry.account,
        requester=entry.requester,
        action=entry.action[:_MAX_TEXT],
        target=entry.target[:_MAX_TEXT],
        skill=entry.skill,
        task=entry.task[:_MAX_TEXT],
        address=entry.address[:_MAX_TEXT],
        outcome=entry.outcome,
        policy=entry.policy,
        reason=entry.reason[:_MAX_TEXT],
        count=entry.count,
        previous=previous,
    )
    try:
        return msgspec.json.encode(line)
    except UnicodeEncodeError:  # a lone surrogate in a name that a peer made up
        fields = msgspec.structs.asdict(line)
        texts = {key: value for key, value in fields.items() if isinstance(value, str)}
        clean = {key: value.encode("utf-8", "replace").decode() for key, value in texts.items()}
        return msgspec.json.encode(msgspec.structs.replace(line, **clean))


def read_head(raw: bytes) -> AuditHead | None:
    """The head in the bytes of its file; None when it is damaged."""
    try:
        return msgspec.json.decode(raw.rstrip(), type=AuditHead)
    except msgspec.MsgspecError:
        return None


def _write_head(lock: int, head: AuditHead) -> None:
    os.pwrite(lock, msgspec.json.encode(head).ljust(HEAD_BYTES - 1) + b"\n", 0)


def _read_from(handle: int, offset: int) -> bytes:
    pieces: list[bytes] = []
    while piece := os.pread(handle, 1 << 20, offset):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)


def _take_over(handle: int, start: int, head: AuditHead, notes: list[str]) -> tuple[int, str, int]:
    """Continue the chain by the lines after `start`: the number, hash and place of its end."""
    n, previous, end = head.n, head.hash, start
    for line in _read_from(handle, start).splitlines(keepends=True):
        text = line.rstrip(b"\n")
        found = chain_fields(text)
        if found == (n + 1, previous):
            n, previous = n + 1, hashlib.sha256(text).hexdigest()
            if not line.endswith(b"\n"):
                os.write(handle, b"\n")
                end += 1
        elif not line.endswith(b"\n"):
            os.ftruncate(handle, end)
            notes.append(f"a torn last line of {len(line)} bytes was removed")
            break
        elif found is None or found[0] > n:
            notes.append("a line that no writer of this log has written was found")
        end += len(line)
    return n, previous, end


def chain_fields(line: bytes) -> tuple[int, str] | None:
    """The number and the hash in a line; None when it is none of ours."""
    try:
        fields = decode_line(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    n, previous = fields.get("n"), fields.get("previous", "")
    if not isinstance(n, int) or isinstance(n, bool) or not isinstance(previous, str):
        return None
    return n, previous


def _first_number(path: Path) -> int | None:
    with suppress(OSError), path.open("rb") as file:
        found = chain_fields(file.readline().rstrip(b"\n"))
        return None if found is None else found[0]
    return None


def record_command(
    folder: Path, event: str, *, count: int | None = None, **about: Unpack[About]
) -> None:
    """Log what a command of the operator changed, in its own process."""
    about.setdefault("address", "command line")
    entry = AuditEntry(datetime.now(UTC), event, OPERATOR, count=count, **about)
    try:
        AuditFile(folder / AUDIT_FILE).append([entry], sync=True)
    except OSError as error:  # as in the gateway, a log that cannot be written stops nobody
        log.warning("audit.not_written", path=str(folder / AUDIT_FILE), reason=str(error))
