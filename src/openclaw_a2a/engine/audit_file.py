"""The audit file: JSON lines chained by hashes, which the gateway and its commands append to.

Each line has a number and the SHA-256 of the line before it, across rotations and restarts, so that
a changed, removed or moved line can be found (`audit_reader.verify_chain`). A small file beside the
log, the head, holds the number and hash of the last line; it is also the lock of the writers. The
anchor file and the memory of the gateway hold them too, so that removing the log together with its
head is detected.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.file_lock import lock_file
from openclaw_a2a.model.message import format_timestamp

log = get_logger(__name__)

AUDIT_FILE = "audit.jsonl"
HEAD_SUFFIX = ".head"
ANCHOR_FILE = ".audit-anchor"
"""Hidden, and with another prefix than the log: `rm audit*` and `rm *` do not match it."""
OLD_FILES = ("calls-audit.jsonl.1", "calls-audit.jsonl")
"""Calls that earlier versions logged, without numbers and hashes; oldest first."""

OK, REFUSED, FAILED = "ok", "refused", "failed"
GATEWAY = "gateway"
"""The actor of entries without a caller: repairs of the log, expired data."""
AUDIT_LOST = "audit-lost"
"""Written lines are missing. The entry has the number after the last known line."""
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
    """The last line written, the size of the file at that time, and the first line kept.

    The head is written after the lines: bytes beyond `size` are of a process that was killed
    between the two writes.
    """

    n: int = 0
    hash: str = ""
    size: int = 0
    first: int = 1

    def follows(self, known: "AuditHead") -> bool:
        """True when a log that once ended with `known` can end with this line now."""
        return self.n > known.n or (self.n, self.hash) == (known.n, known.hash)


class AuditFile:
    """The file and its chain. A file lock serializes processes; a batch is one write.

    With `max_bytes` None the file is never rotated (commands leave rotation to the gateway).
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
        """Append lines. Without `sync` a power failure may lose some.

        Raises: OSError.
        """
        # One function with plain system calls: this runs for every burst of requests.
        try:
            lock = os.open(self.head_path, _FLAGS, 0o600)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self.head_path, _FLAGS, 0o600)
        with ExitStack() as files:
            files.callback(os.close, lock)  # closing releases the lock
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
            # The anchor last: a crash leaves it behind the log, never ahead of it.
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
        # Shift up to the first free number: an interrupted rotation may have left a gap.
        free = next(one for one in range(1, len(numbers) + 2) if one not in numbers)
        after = {one + 1 if one < free else one for one in numbers} | {1}
        dropped = [one for one in sorted(after, reverse=True) if one > self._keep]
        first = head.first
        if dropped:
            oldest = max(one for one in after if one <= self._keep)
            before = oldest - 1 if oldest <= free else oldest
            first = _first_number(self._numbered(before) if before else self.path) or first
        # The head first: it must say that older lines are gone before they are.
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
        """Continue the chain after a killed process or a foreign change of the file.

        Complete lines that the head does not know join the chain, and a torn last line is cut off.
        If lines are missing, the chain continues from the last known line, so that verification
        finds the gap.
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
        noted = [AuditEntry(at, "audit-repaired", GATEWAY, reason=one) for one in notes]
        if lost:
            noted.insert(0, AuditEntry(at, AUDIT_LOST, GATEWAY, outcome=FAILED, reason=lost))
        return head, [*noted, *entries]

    def _rebuild_head(self) -> AuditHead:
        """Derive a head from the rotated files."""
        numbers = sorted(self._numbers())
        if not numbers:
            return AuditHead()
        first = _first_number(self._numbered(numbers[-1])) or 1
        last = self._numbered(numbers[0]).read_bytes().rstrip(b"\n").rpartition(b"\n")[2]
        found = chain_fields(last)
        n = 0 if found is None else found[0]
        return AuditHead(n, hashlib.sha256(last).hexdigest(), 0, first)


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
