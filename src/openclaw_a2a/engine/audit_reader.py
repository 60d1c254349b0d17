"""Reads the audit log: its entries, new entries as they are added, and the check of its chain."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from openclaw_a2a.engine.audit_file import (
    AUDIT_FILE,
    AUDIT_LOST,
    HEAD_BYTES,
    OLD_FILES,
    AuditFile,
    AuditHead,
    chain_fields,
    decode_line,
    read_head,
)
from openclaw_a2a.model.file_lock import lock_file, unlock_file
from openclaw_a2a.model.ids import JsonObject


def read_lines(folder: Path) -> Iterator[JsonObject]:
    """The entries of a data folder, oldest first, also those of earlier versions.

    Lines that are no JSON object are skipped; `verify_chain` reports them.
    """
    paths = [folder / name for name in OLD_FILES] + AuditFile(folder / AUDIT_FILE).files()
    for path in paths:
        with suppress(FileNotFoundError), path.open("rb") as file:
            for line in file:
                with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    yield decode_line(line)


def follow_lines(folder: Path) -> Iterator[JsonObject | None]:
    """The entries that are added from now on; None whenever there is none yet."""
    audit = AuditFile(folder / AUDIT_FILE)
    return _follow_lines(folder, audit, _last_number(audit))


def _follow_lines(folder: Path, audit: AuditFile, last: int) -> Iterator[JsonObject | None]:
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
        head = read_head(audit.head_path.read_bytes())
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
        # Locked only while the files are opened; afterwards they may be rotated and appended to.
        if lock is not None:
            opened.callback(os.close, lock)
            lock_file(lock, is_shared=True)
        head = None if lock is None else read_head(os.pread(lock, HEAD_BYTES, 0))
        anchor = None
        with suppress(FileNotFoundError):
            anchor = read_head(audit.anchor_path.read_bytes())
        files = [opened.enter_context(path.open("rb")) for path in audit.files()]
        sizes = [os.fstat(file.fileno()).st_size for file in files]
        if lock is not None:
            unlock_file(lock)
        checker = _ChainChecker(head, anchor, has_log=is_used or bool(files))
        for file, size in zip(files, sizes, strict=True):
            checker.read(file, size)
        return checker.finish(audit)


class _ChainChecker:
    """Reads the lines of a chain in order and collects the problems."""

    def __init__(self, head: AuditHead | None, anchor: AuditHead | None, *, has_log: bool) -> None:
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
            if not line.endswith(b"\n") and chain_fields(line) is None:
                return  # torn by a killed process: the next writer repairs it
            self._check(line.rstrip(b"\n"), name, number)

    def _check(self, line: bytes, name: str, number: int) -> None:
        at, before = (name, number), self._at
        found = chain_fields(line)
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


def _is_loss(line: bytes) -> bool:
    return AUDIT_LOST.encode() in line and decode_line(line).get("event") == AUDIT_LOST


def _numbering_problem(n: int, expected: int) -> str:
    if n > expected + 1:
        return f"lines {expected + 1} to {n - 1} of the log are missing before this one"
    return f"line {n} of the log stands after line {expected}: lines were moved or copied"


# ---------------------------------------------------------------- filters


class AuditFilter(msgspec.Struct, frozen=True):
    """Which entries to show. Names must be equal; `what` also matches as a prefix."""

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
