"""The audit log: who changed what, from where and with which outcome; never any content.

One JSON line each, in a file that the gateway and its commands append to. Each line has a number
and the SHA-256 of the line before it, over rotations and restarts, so that a line that was changed,
removed or moved can be found (`verify_chain`). A small file beside the log, the head, holds the
number and hash of the last line; it is also the lock that writers take. Another file, the anchor,
and the memory of the gateway hold them too: so a log that is removed with its head is missed.
"""

import asyncio
import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, TypedDict, Unpack

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import CallerError, GatewayError
from openclaw_a2a.model.ids import JsonObject
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
_MAX_SUMMARIZED = 1000  # addresses; those beyond are counted together
_MAX_TEXT = 500
_HEAD_BYTES = 256  # of a fixed width: it is overwritten in place by one small write
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_NUMBERED = re.compile(r"\.([1-9][0-9]*)")
_decode_line = msgspec.json.Decoder(dict[str, object]).decode


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


class _Head(msgspec.Struct, frozen=True):
    """The last line that was written, the size of the file then, and the first line that is kept.

    It is written after the lines. Whatever the file has beyond `size` was written by a process
    that was killed in between.
    """

    n: int = 0
    hash: str = ""
    size: int = 0
    first: int = 1

    def follows(self, known: "_Head") -> bool:
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
        self._last = _Head()
        """The end of the log when this process last wrote."""

    def append(self, entries: Sequence[AuditEntry]) -> None:
        """Add lines. Nothing is synced to the disk: a machine that loses power may lose lines.

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
            fcntl.flock(lock, fcntl.LOCK_EX)
            handle = os.open(self.path, _FLAGS | os.O_APPEND, 0o600)
            files.callback(os.close, handle)
            anchor = os.open(self.anchor_path, _FLAGS, 0o600)
            files.callback(os.close, anchor)
            size = os.fstat(handle).st_size
            head = _read_head(os.pread(lock, _HEAD_BYTES, 0))
            anchored = _read_head(os.pread(anchor, _HEAD_BYTES, 0)) or _Head()
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
            head = _Head(n, previous, size, head.first)
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

    def _rotate(self, lock: int, head: _Head) -> _Head:
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
        head: _Head | None,
        known: _Head,
        entries: Sequence[AuditEntry],
    ) -> tuple[_Head, list[AuditEntry]]:
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
        if not _Head(n, previous).follows(known):
            lost = f"the log ended with line {n}, and was written up to line {known.n}"
            n, previous = known.n, known.hash
        head = _Head(n, previous, end, head.first)
        at = entries[0].at if entries else datetime.now(UTC)
        noted = [AuditEntry(at, "audit-repaired", "gateway", reason=one) for one in notes]
        if lost:
            noted.insert(0, AuditEntry(at, AUDIT_LOST, "gateway", outcome=FAILED, reason=lost))
        return head, [*noted, *entries]

    def _rebuild_head(self) -> _Head:
        """A head from the rotated files, as far as they tell."""
        numbers = sorted(self._numbers())
        if not numbers:
            return _Head()
        first = _first_number(self._numbered(numbers[-1])) or 1
        last = self._numbered(numbers[0]).read_bytes().rstrip(b"\n").rpartition(b"\n")[2]
        found = _chain_fields(last)
        n = 0 if found is None else found[0]
        return _Head(n, hashlib.sha256(last).hexdigest(), 0, first)


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

    Nobody waits for it but who calls `flush`. An entry is written within about 50 ms; a process
    that is killed before that takes the entry with it.
    """

    def __init__(self, file: AuditFile | None, now: Callable[[], datetime]) -> None:
        """Without a file nothing is logged."""
        self._file = file
        self._now = now
        self._entries: list[AuditEntry] = []
        self._lost = 0
        self._lost_reason = ""
        self._timer: asyncio.TimerHandle | None = None
        self._batch: asyncio.Future[None] | None = None
        """The batch that is being written."""
        self._refusals: dict[tuple[str, str, str], list[int]] = {}
        self._summary_timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begin the log, or note where it ends: then it is missed when it is removed."""
        self._append([])

    def record(self, event: str, who: str, **about: Unpack[About]) -> None:
        """Have one line written; `about` are fields of `AuditEntry`.

        A log that cannot be written stops nobody.
        """
        if self._file is None:
            return
        self._entries.append(AuditEntry(self._now(), event, who, **about))
        if self._timer is None and self._batch is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_WRITE_DELAY_S, self._start_batch)

    def count_refusal(self, status: int, who: str, address: str) -> None:
        """Count a request that was refused for who sent it; one line a minute sums them up."""
        if self._file is None:
            return
        event = "request-forbidden" if status == 403 else "authentication-failed"
        key = (event, who, address)
        if key not in self._refusals and len(self._refusals) >= _MAX_SUMMARIZED:
            key = (event, "", "other addresses")
        self._refusals.setdefault(key, [0])[0] += 1
        if self._summary_timer is None:
            loop = asyncio.get_running_loop()
            self._summary_timer = loop.call_later(_SUMMARY_S, self._summarize)

    async def flush(self) -> None:
        """Wait until all entries so far are written."""
        # Those so far, not all there are: others may add entries without end.
        batches = (1 if self._entries else 0) + (0 if self._batch is None else 1)
        for _ in range(batches):
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
        self._write(entries)

    def _start_batch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()  # a flush was faster
        self._timer = None
        entries, self._entries = self._entries, []
        loop = asyncio.get_running_loop()
        # The thread pool owns it; one at a time, so that lines are in the order of `record`.
        self._batch = loop.run_in_executor(None, self._write, entries)
        self._batch.add_done_callback(self._on_written)

    def _on_written(self, batch: "asyncio.Future[None]") -> None:
        if batch is not self._batch:
            return
        self._batch = None
        if self._entries and self._timer is None:
            # Without the delay: these have waited while the batch was written.
            self._start_batch()

    def _summarize(self) -> None:
        self._summary_timer = None
        refusals, self._refusals = self._refusals, {}
        for (event, who, address), [count] in refusals.items():
            self._entries.append(
                AuditEntry(self._now(), event, who, address=address, outcome=REFUSED, count=count)
            )
        if refusals and self._timer is None and self._batch is None:
            self._timer = asyncio.get_running_loop().call_later(0, self._start_batch)

    def _write(self, entries: list[AuditEntry]) -> None:
        if entries:
            self._append(entries)

    def _append(self, entries: list[AuditEntry]) -> None:
        if self._file is None:
            return
        if self._lost and entries:
            text = f"{self._lost} entries could not be written: {self._lost_reason}"
            note = AuditEntry(entries[0].at, "audit-incomplete", "gateway", reason=text)
            entries = [note, *entries]
        try:
            self._file.append(entries)
        except OSError as error:
            if not self._lost:
                reason, path = str(error), str(self._file.path)
                log.warning("audit.not_written", path=path, reason=reason)
            self._lost_reason = error.strerror or type(error).__name__
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


def _read_head(raw: bytes) -> _Head | None:
    try:
        return msgspec.json.decode(raw.rstrip(), type=_Head)
    except msgspec.MsgspecError:
        return None


def _write_head(lock: int, head: _Head) -> None:
    os.pwrite(lock, msgspec.json.encode(head).ljust(_HEAD_BYTES - 1) + b"\n", 0)


def _read_from(handle: int, offset: int) -> bytes:
    pieces: list[bytes] = []
    while piece := os.pread(handle, 1 << 20, offset):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)


def _take_over(handle: int, start: int, head: _Head, notes: list[str]) -> tuple[int, str, int]:
    """Continue the chain by the lines after `start`: the number, hash and place of its end."""
    n, previous, end = head.n, head.hash, start
    for line in _read_from(handle, start).splitlines(keepends=True):
        text = line.rstrip(b"\n")
        found = _chain_fields(text)
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


def _chain_fields(line: bytes) -> tuple[int, str] | None:
    """The number and the hash in a line; None when it is none of ours."""
    try:
        fields = _decode_line(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    n, previous = fields.get("n"), fields.get("previous", "")
    if not isinstance(n, int) or isinstance(n, bool) or not isinstance(previous, str):
        return None
    return n, previous


def _is_loss(line: bytes) -> bool:
    return AUDIT_LOST.encode() in line and _decode_line(line).get("event") == AUDIT_LOST


def _first_number(path: Path) -> int | None:
    with suppress(OSError), path.open("rb") as file:
        found = _chain_fields(file.readline().rstrip(b"\n"))
        return None if found is None else found[0]
    return None


# ---------------------------------------------------------------- reading and checking


def read_lines(folder: Path) -> Iterator[JsonObject]:
    """The entries of a data folder, oldest first, also those of earlier versions.

    What is no JSON object is left out: `verify_chain` is for finding that.
    """
    paths = [folder / name for name in OLD_FILES] + AuditFile(folder / AUDIT_FILE).files()
    for path in paths:
        with suppress(FileNotFoundError), path.open("rb") as file:
            for line in file:
                with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    yield _decode_line(line)


def follow_lines(folder: Path) -> Iterator[JsonObject | None]:
    """The entries that are added from now on; None whenever there is none yet."""
    audit = AuditFile(folder / AUDIT_FILE)
    last = _last_number(audit)
    return _follow_lines(folder, last)


def _follow_lines(folder: Path, last: int) -> Iterator[JsonObject | None]:
    audit = AuditFile(folder / AUDIT_FILE)
    while True:
        if _last_number(audit) <= last:
            yield None
            continue
        # From the first file again: a rotation may have moved lines that were not read yet.
        for line in read_lines(folder):
            n = line.get("n")
            if isinstance(n, int) and n > last:
                last = n
                yield line


def _last_number(audit: AuditFile) -> int:
    with suppress(FileNotFoundError):
        head = _read_head(audit.head_path.read_bytes())
        return 0 if head is None else head.n
    return 0


class AuditProblem(msgspec.Struct, frozen=True):
    """What is wrong with a line."""

    file: str
    line: int
    problem: str


class AuditReport(msgspec.Struct, frozen=True):
    """The result of a check: how many lines there are, the hash of the last, and what is wrong."""

    lines: int
    hash: str
    problems: tuple[AuditProblem, ...]


def verify_chain(folder: Path, *, is_used: bool = False) -> AuditReport:
    """Check the chain of a data folder, also while a gateway writes. Raises: OSError.

    `is_used`: a gateway has run there, so there must be a log.
    """
    audit = AuditFile(folder / AUDIT_FILE)
    with ExitStack() as opened:
        try:
            lock = os.open(audit.head_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            lock = None
        # Only while the files are opened: then they may be rotated and appended to.
        if lock is not None:
            opened.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_SH)
        head = None if lock is None else _read_head(os.pread(lock, _HEAD_BYTES, 0))
        anchor = None
        with suppress(FileNotFoundError):
            anchor = _read_head(audit.anchor_path.read_bytes())
        files = [opened.enter_context(path.open("rb")) for path in audit.files()]
        sizes = [os.fstat(file.fileno()).st_size for file in files]
        if lock is not None:
            fcntl.flock(lock, fcntl.LOCK_UN)
        checker = _ChainChecker(head, anchor, has_log=is_used or bool(files))
        for file, size in zip(files, sizes, strict=True):
            checker.read(file, size)
        return checker.finish(audit)


class _ChainChecker:
    """Reads the lines of a chain in order and collects what does not fit."""

    def __init__(self, head: _Head | None, anchor: _Head | None, *, has_log: bool) -> None:
        self._head = head
        self._has_log = has_log
        self._ends = [one for one in (head, anchor) if one is not None]
        self._problems: list[AuditProblem] = []
        self._count = 0
        self._n: int | None = None
        self._hash = ""
        self._at = ("", 0)

    def read(self, file: BinaryIO, size: int) -> None:
        name, left = Path(file.name).name, size
        for number, line in enumerate(file, 1):
            if left <= 0:
                return
            left -= len(line)
            if not line.endswith(b"\n") and _chain_fields(line) is None:
                return  # torn by a kill: the next writer repairs it
            self._check(line.rstrip(b"\n"), name, number)

    def _check(self, line: bytes, name: str, number: int) -> None:
        at, before = (name, number), self._at
        found = _chain_fields(line)
        if found is None:
            self._add(at, "is no line of the audit log: it was changed, or added")
            return
        self._count += 1
        n, previous = found
        expected = self._n
        if expected is None:
            self._check_first(at, n, previous)
        elif n != expected + 1:
            self._add(at, _numbering_problem(n, expected))
        elif previous != self._hash:
            self._add(before, f"line {expected} of the log was changed")
        if _is_loss(line) and at not in [(one.file, one.line) for one in self._problems]:
            self._add(at, "lines before this one may be missing: the log was without its head")
        digest = hashlib.sha256(line).hexdigest()
        if any(n == one.n and digest != one.hash for one in self._ends):
            self._add(at, f"line {n} of the log was changed")
        self._n, self._hash, self._at = n, digest, at

    def _check_first(self, at: tuple[str, int], n: int, previous: str) -> None:
        first = self._ends[0].first if self._ends else n
        if n > first:
            self._add(at, f"lines {first} to {n - 1} of the log are missing before this one")
        if n == 1 and previous:
            self._add(at, "line 1 of the log was changed")

    def finish(self, audit: AuditFile) -> AuditReport:
        last, name = self._n or 0, audit.path.name
        end = max((one.n for one in self._ends), default=0)
        if not self._ends and not self._count and self._has_log:
            self._add((name, 0), "is missing, although a gateway has run with this folder")
        elif self._head is None and (self._has_log or self._ends):
            self._add((audit.head_path.name, 0), "is missing or damaged; the end is not proven")
        if end > last:
            line = self._at[1] if self._at[0] == name else 0
            first = last + 1 if self._count else self._ends[0].first
            missing = f"lines {first} to {end} of the log are missing after this one"
            self._add((name, line), missing)
        return AuditReport(self._count, self._hash, tuple(self._problems))

    def _add(self, at: tuple[str, int], problem: str) -> None:
        self._problems.append(AuditProblem(at[0], at[1], problem))


def _numbering_problem(n: int, expected: int) -> str:
    if n > expected + 1:
        return f"lines {expected + 1} to {n - 1} of the log are missing before this one"
    return f"line {n} of the log stands after line {expected}: lines were moved or copied"


# ---------------------------------------------------------------- filters


class AuditFilter(msgspec.Struct, frozen=True):
    """Which entries to show. Texts of names are compared whole, `what` also as a beginning."""

    who: str | None = None
    what: str | None = None
    task: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def accepts(self, line: JsonObject) -> bool:
        """True when an entry is to be shown."""
        # `token` and `requester` name the caller in the lines of earlier versions.
        names = {line.get(key) for key in ("who", "requester", "token")}
        if self.who is not None and self.who not in names:
            return False
        if self.what is not None and not str(line.get("event", "")).startswith(self.what):
            return False
        if self.task is not None and not str(line.get("task", "")).startswith(self.task):
            return False
        if self.since is None and self.until is None:
            return True
        try:
            at = datetime.fromisoformat(str(line.get("time", "")))
        except ValueError:
            return False
        after = self.since is None or at >= self.since
        return after and (self.until is None or at < self.until)


def select(lines: Iterable[JsonObject], chosen: AuditFilter) -> Iterator[JsonObject]:
    """The entries that a filter accepts."""
    return (one for one in lines if chosen.accepts(one))


def record_command(folder: Path, event: str, **about: Unpack[About]) -> None:
    """Log what a command of the operator changed, in its own process."""
    about.setdefault("address", "command line")
    entry = AuditEntry(datetime.now(UTC), event, OPERATOR, **about)
    try:
        AuditFile(folder / AUDIT_FILE).append([entry])
    except OSError as error:  # as in the gateway, a log that cannot be written stops nobody
        log.warning("audit.not_written", path=str(folder / AUDIT_FILE), reason=str(error))
