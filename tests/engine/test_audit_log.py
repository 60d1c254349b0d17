"""The audit log: batches, the chain of hashes, rotation, and writers that are killed."""

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.captured_logs import capture_logs

from openclaw_a2a.engine.audit_file import ANCHOR_FILE, AUDIT_FILE, AuditEntry, AuditFile
from openclaw_a2a.engine.audit_log import AuditLog, record_command
from openclaw_a2a.engine.audit_reader import (
    AuditFilter,
    follow_lines,
    read_lines,
    verify_chain,
)

HEAD_FILE = f"{AUDIT_FILE}.head"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def audit(folder: Path, max_bytes: int | None = None, keep: int = 3) -> AuditLog:
    return AuditLog(AuditFile(folder / AUDIT_FILE, max_bytes=max_bytes, keep=keep), lambda: NOW)


def entry(target: str) -> AuditEntry:
    return AuditEntry(NOW, "call", "alice", target=target)


def targets(folder: Path) -> list[str]:
    return [one["target"] for one in read_lines(folder) if "target" in one]


def problems(folder: Path) -> list[tuple[str, int, str]]:
    return [(one.file, one.line, one.problem) for one in verify_chain(folder).problems]


@contextmanager
def held_file(folder: Path) -> Iterator[None]:
    """The lock of the log is taken, as by a command that writes for long."""
    with (folder / f"{AUDIT_FILE}.head").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# ---------------------------------------------------------------- batches


async def test_a_disk_that_hangs_does_not_block_the_event_loop(tmp_path: Path) -> None:
    """Each call opened, appended to and closed the file on the event loop."""
    log = audit(tmp_path)
    with held_file(tmp_path):
        log.record("call", "alice", target="b")
        flushed = asyncio.ensure_future(log.flush())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not flushed.done()
    with anyio.fail_after(240):
        await flushed
    assert targets(tmp_path) == ["b"]


async def test_lines_keep_their_order_and_are_there_after_a_flush(tmp_path: Path) -> None:
    folder = tmp_path / "missing"
    log = audit(folder)
    for number in range(50):
        log.record("call", "alice", target=str(number))
        if number % 7 == 0:
            await asyncio.sleep(0)
    await log.flush()
    assert targets(folder) == [str(number) for number in range(50)]
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o077 == 0
    assert problems(folder) == []


async def test_entries_of_a_batch_that_had_begun_are_on_the_disk_after_a_flush_with_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []

    def count(handle: int) -> None:
        synced.append(os.fstat(handle).st_size)

    monkeypatch.setattr(os, "fsync", count)
    log = AuditLog(AuditFile(tmp_path / AUDIT_FILE), lambda: NOW)
    log.record("task-submitted", "alice")
    await log.flush()
    assert synced == []
    log.record("task-canceled", "operator")
    waiting = [asyncio.ensure_future(log.flush()), asyncio.ensure_future(log.flush(sync=True))]
    await asyncio.gather(*waiting)
    assert synced[-1] == (tmp_path / AUDIT_FILE).stat().st_size
    assert len((tmp_path / AUDIT_FILE).read_bytes().splitlines()) == 2


async def test_a_caller_that_disconnects_takes_no_line_with_it(tmp_path: Path) -> None:
    log = audit(tmp_path)
    log.record("call", "alice", target="b")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await log.flush()
    await log.flush()
    assert targets(tmp_path) == ["b"]


async def test_a_batch_that_is_done_is_not_awaited_for_ever(tmp_path: Path) -> None:
    """The callback of a batch comes a turn of the loop after its end; a flush must not need it."""
    log = audit(tmp_path)
    for number in range(20):
        log.record("call", "alice", target=str(number))
        first = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        # The thread ends while the loop is busy elsewhere: the batch is done, its callback not.
        deadline = time.monotonic() + 30
        while len(targets(tmp_path)) <= number and time.monotonic() < deadline:
            pass
        await log.flush()
        await first
    assert targets(tmp_path) == [str(number) for number in range(20)]


async def test_what_is_left_at_the_end_is_written(tmp_path: Path) -> None:
    log = audit(tmp_path)
    log.record("call", "alice", target="b")
    log.count_refusal(401, "", "192.0.2.1")
    log.close()
    first, second = read_lines(tmp_path)
    assert first["target"] == "b"
    assert (second["event"], second["from"], second["count"]) == (
        "authentication-failed",
        "192.0.2.1",
        1,
    )


async def test_an_entry_is_written_without_a_flush(tmp_path: Path) -> None:
    log = audit(tmp_path)
    log.record("call", "alice", target="b")
    with anyio.fail_after(240):
        while not (tmp_path / AUDIT_FILE).exists() or not targets(tmp_path):  # noqa: ASYNC110 - written by a thread
            await asyncio.sleep(0.01)


async def test_refusals_of_many_addresses_take_a_bounded_number_of_lines(tmp_path: Path) -> None:
    log = audit(tmp_path)
    for number in range(5000):
        log.count_refusal(401, "", f"2001:db8::{number:x}")
    log.close()
    lines = list(read_lines(tmp_path))
    assert len(lines) <= 1001
    assert sum(one["count"] for one in lines) == 5000


async def test_refusals_of_a_caller_have_few_lines_and_a_sum(tmp_path: Path) -> None:
    log = audit(tmp_path)
    for number in range(100):
        log.record_refusal("task-canceled", "eve", task=f"t-{number}", address="192.0.2.1")
        log.record_refusal("task-canceled", "eve", outcome="failed", address="192.0.2.1")
        log.record_refusal("task-deleted", "eve", address=f"192.0.2.{number}", reason="x")
    log.record_refusal("task-canceled", "alice", task="t", address="192.0.2.2")
    for number in range(5000):  # strangers take nothing away from callers that are known
        log.count_refusal(401, "", f"2001:db8::{number:x}")
    log.record_refusal("task-canceled", "bob", task="t", address="192.0.2.2")
    log.close()
    lines = [one for one in read_lines(tmp_path) if one["event"].startswith("task-")]
    sums = [one for one in lines if "count" in one]
    assert len(lines) == 3 * 10 + 2 + len(sums)
    assert [(one["event"], one["who"], one["outcome"], one["count"]) for one in sums] == [
        ("task-canceled", "eve", "refused", 90),
        ("task-canceled", "eve", "failed", 90),
        ("task-deleted", "eve", "refused", 90),
    ]
    # What all of them have in common.
    assert (sums[0]["from"], sums[2]["reason"]) == ("192.0.2.1", "x")
    assert "task" not in sums[0] and "from" not in sums[2]


async def test_refusals_of_many_callers_take_a_bounded_number_of_lines(tmp_path: Path) -> None:
    log = audit(tmp_path)
    for number in range(20_000):
        log.record_refusal("task-canceled", f"peer-{number % 5000}", task="t")
    log.close()
    lines = list(read_lines(tmp_path))
    assert len(lines) <= 5000
    assert sum(one.get("count", 1) for one in lines) == 20_000


async def test_a_log_that_cannot_be_written_stops_nobody_and_says_so_later(tmp_path: Path) -> None:
    (tmp_path / "folder").touch()
    log = audit(tmp_path / "folder")
    for target in ("b", "c"):
        log.record("call", "alice", target=target)
        with anyio.fail_after(240):
            await log.flush()
    (tmp_path / "folder").unlink()
    log.record("call", "alice", target="d")
    await log.flush()
    first, second = read_lines(tmp_path / "folder")
    assert (first["event"], second["target"]) == ("audit-incomplete", "d")
    assert first["reason"].startswith("2 entries could not be written")


async def test_an_entry_that_cannot_be_written_takes_no_later_one_with_it(tmp_path: Path) -> None:
    log = audit(tmp_path)
    with capture_logs() as logs:
        log.record("call", cast("str", 5))
        with anyio.fail_after(240):
            await log.flush()
    assert [one["event"] for one in logs] == ["audit.not_written"]
    log.record("call", "alice", target="b")
    with anyio.fail_after(240):
        await log.flush()
    first, second = read_lines(tmp_path)
    assert (first["event"], second["target"]) == ("audit-incomplete", "b")


async def test_without_a_file_nothing_is_logged() -> None:
    log = AuditLog(None, lambda: NOW)
    log.record("call", "alice")
    log.record_refusal("call", "alice")
    log.count_refusal(401, "", "192.0.2.1")
    await log.flush()
    log.close()


# ---------------------------------------------------------------- the chain


def test_each_line_holds_the_hash_of_the_one_before(tmp_path: Path) -> None:
    AuditFile(tmp_path / AUDIT_FILE).append([entry("a"), entry("b")])
    AuditFile(tmp_path / AUDIT_FILE).append([entry("c")])
    lines = list(read_lines(tmp_path))
    assert [one["n"] for one in lines] == [1, 2, 3]
    assert "previous" not in lines[0]
    assert len({one["previous"] for one in lines[1:]}) == 2
    report = verify_chain(tmp_path)
    assert (report.lines, report.problems) == (3, ())


def filled(folder: Path, count: int = 9) -> list[bytes]:
    AuditFile(folder / AUDIT_FILE).append([entry(str(number)) for number in range(count)])
    return (folder / AUDIT_FILE).read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("index", [0, 4, 8])
def test_a_changed_line_is_found_and_named(tmp_path: Path, index: int) -> None:
    lines = filled(tmp_path)
    lines[index] = lines[index].replace(b"alice", b"mallo")
    (tmp_path / AUDIT_FILE).write_bytes(b"".join(lines))
    assert problems(tmp_path) == [
        (AUDIT_FILE, index + 1, f"line {index + 1} of the log was changed")
    ]


@pytest.mark.parametrize("index", [0, 4, 8])
def test_a_removed_line_is_found_and_named(tmp_path: Path, index: int) -> None:
    lines = filled(tmp_path)
    del lines[index]
    (tmp_path / AUDIT_FILE).write_bytes(b"".join(lines))
    [(file, line, problem)] = problems(tmp_path)
    assert (file, line) == (AUDIT_FILE, min(index + 1, 8))
    assert f"lines {index + 1} to {index + 1} of the log are missing" in problem


def test_lines_that_changed_places_are_found(tmp_path: Path) -> None:
    lines = filled(tmp_path)
    lines[3], lines[4] = lines[4], lines[3]
    (tmp_path / AUDIT_FILE).write_bytes(b"".join(lines))
    assert {(file, line) for file, line, _ in problems(tmp_path)} == {
        (AUDIT_FILE, 4),
        (AUDIT_FILE, 5),
        (AUDIT_FILE, 6),
    }


def test_an_added_line_is_found(tmp_path: Path) -> None:
    lines = filled(tmp_path)
    lines.insert(4, b'{"time":"2026-01-01T00:00:00Z","event":"call","who":"mallory"}\n')
    (tmp_path / AUDIT_FILE).write_bytes(b"".join(lines))
    assert [(file, line) for file, line, _ in problems(tmp_path)] == [(AUDIT_FILE, 5)]


def test_removed_lines_stay_missing_when_the_gateway_writes_on(tmp_path: Path) -> None:
    lines = filled(tmp_path)
    (tmp_path / AUDIT_FILE).write_bytes(b"".join(lines[:6]))
    AuditFile(tmp_path / AUDIT_FILE).append([entry("next")])
    found = problems(tmp_path)
    assert found == [(AUDIT_FILE, 7, "lines 7 to 9 of the log are missing before this one")]
    assert [one["event"] for one in read_lines(tmp_path)][-2:] == ["audit-lost", "call"]


def test_a_missing_head_is_reported(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / HEAD_FILE).unlink()
    assert [file for file, _, _ in problems(tmp_path)] == [HEAD_FILE]
    AuditFile(tmp_path / AUDIT_FILE).append([entry("next")])
    assert problems(tmp_path) == []
    assert "missing or damaged" in [one.get("reason", "") for one in read_lines(tmp_path)][9]


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("left", [0, 4], ids=["all", "the tail"])
def test_a_log_that_is_removed_with_its_head_stays_missed(
    tmp_path: Path, left: int, is_running: bool
) -> None:
    file = AuditFile(tmp_path / AUDIT_FILE)
    file.append([entry(str(number)) for number in range(9)])
    lines = (tmp_path / AUDIT_FILE).read_bytes().splitlines(keepends=True)
    for path in tmp_path.glob("audit*"):
        path.unlink()
    if left:
        (tmp_path / AUDIT_FILE).write_bytes(b"".join(lines[:left]))
    missing = f"lines {left + 1} to 9 of the log are missing"
    assert missing in str(problems(tmp_path))
    file = file if is_running else AuditFile(tmp_path / AUDIT_FILE)
    for number in range(3):
        file.append([entry(str(number))])
    assert problems(tmp_path) == [(AUDIT_FILE, left + 1, f"{missing} before this one")]
    found = [(one["n"], one["event"]) for one in read_lines(tmp_path)][left]
    assert found == (10, "audit-lost")


def test_a_gateway_misses_its_log_also_without_head_and_anchor(tmp_path: Path) -> None:
    log = audit(tmp_path)
    for target in ("a", "b", "c"):
        record_command(tmp_path, "token-created", target=target)
    log.open()
    for path in tmp_path.iterdir():
        path.unlink()
    record_command(tmp_path, "token-created", target="y")
    assert problems(tmp_path) == []
    log.open()
    missing = "lines 2 to 3 of the log are missing before this one"
    assert problems(tmp_path) == [(AUDIT_FILE, 2, missing)]
    assert [one["event"] for one in read_lines(tmp_path)][-1] == "audit-lost"


def test_a_log_without_any_end_is_not_proven_for_good(tmp_path: Path) -> None:
    lines = filled(tmp_path)
    for path in tmp_path.iterdir():
        path.unlink()
    (tmp_path / AUDIT_FILE).write_bytes(b"".join(lines[:5]))
    AuditFile(tmp_path / AUDIT_FILE).append([entry("next")])
    [(file, line, problem)] = problems(tmp_path)
    assert (file, line) == (AUDIT_FILE, 6)
    assert "may be missing" in problem


def test_an_anchor_that_is_missing_or_damaged_is_made_again(tmp_path: Path) -> None:
    """As after an earlier version, which had none."""
    filled(tmp_path)
    for damage in (b"", b"{", b"\0" * 300):
        (tmp_path / ANCHOR_FILE).unlink()
        if damage:
            (tmp_path / ANCHOR_FILE).write_bytes(damage)
        assert problems(tmp_path) == []
        AuditFile(tmp_path / AUDIT_FILE).append([entry("next")])
        assert problems(tmp_path) == []
    (tmp_path / HEAD_FILE).unlink()
    AuditFile(tmp_path / AUDIT_FILE).append([entry("next")])
    assert problems(tmp_path) == []


def test_where_a_gateway_has_run_there_must_be_a_log(tmp_path: Path) -> None:
    assert verify_chain(tmp_path).problems == ()
    [one] = verify_chain(tmp_path, is_used=True).problems
    assert (one.file, "is missing" in one.problem) == (AUDIT_FILE, True)
    audit(tmp_path).open()
    report = verify_chain(tmp_path, is_used=True)
    assert (report.lines, report.problems) == (0, ())


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_edit_of_any_byte_is_found(tmp_path: Path, data: st.DataObject) -> None:
    for path in tmp_path.iterdir():
        path.unlink()
    content = b"".join(filled(tmp_path, 5))
    at = data.draw(st.integers(0, len(content) - 1))
    new = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[at]))
    edited = content[:at] + bytes([new]) + content[at + 1 :]
    (tmp_path / AUDIT_FILE).write_bytes(edited)
    assert problems(tmp_path)


# ---------------------------------------------------------------- rotation


def test_the_chain_continues_over_rotations_and_old_files_are_dropped(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / AUDIT_FILE, max_bytes=400, keep=3)
    for number in range(30):
        file.append([entry(str(number))])
    names = sorted(path.name for path in tmp_path.glob("audit*"))
    assert names[:2] == [f"{AUDIT_FILE}.1", f"{AUDIT_FILE}.2"] or AUDIT_FILE in names
    assert f"{AUDIT_FILE}.3" in names
    assert f"{AUDIT_FILE}.4" not in names
    kept = targets(tmp_path)
    assert kept == [str(number) for number in range(30 - len(kept), 30)]
    assert len(kept) < 30
    assert problems(tmp_path) == []
    (tmp_path / f"{AUDIT_FILE}.3").unlink()
    [(name, line, problem)] = problems(tmp_path)
    assert (name, line) == (f"{AUDIT_FILE}.2", 1)
    assert "missing" in problem


def test_a_changed_line_in_a_rotated_file_is_named_with_its_file(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / AUDIT_FILE, max_bytes=400, keep=9)
    for number in range(9):
        file.append([entry(str(number))])
    path = tmp_path / f"{AUDIT_FILE}.1"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[-1] = lines[-1].replace(b"alice", b"mallo")
    path.write_bytes(b"".join(lines))
    [(name, line, _)] = problems(tmp_path)
    assert (name, line) == (path.name, len(lines))


def test_a_rotation_that_was_interrupted_is_completed_by_the_next(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / AUDIT_FILE, max_bytes=400, keep=9)
    while not (tmp_path / f"{AUDIT_FILE}.2").exists():
        file.append([entry("x")])
    # Killed between the two renames: `.1` is free, and the current file still has its lines.
    if (tmp_path / AUDIT_FILE).exists():
        pytest.fail("a full file is rotated at once")
    (tmp_path / f"{AUDIT_FILE}.1").replace(tmp_path / AUDIT_FILE)
    count = len(targets(tmp_path))
    for _ in range(12):
        file.append([entry("y")])
    assert problems(tmp_path) == []
    assert len(targets(tmp_path)) == count + 12


# ---------------------------------------------------------------- crashes


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_torn_last_line_is_repaired_and_noted(tmp_path: Path, cut: int) -> None:
    file = AuditFile(tmp_path / AUDIT_FILE)
    file.append([entry("a"), entry("b")])
    ends = {name: (tmp_path / name).read_bytes() for name in (HEAD_FILE, ANCHOR_FILE)}
    file.append([entry("c")])
    # Killed in the middle of the write, before the head and the anchor were written.
    content = (tmp_path / AUDIT_FILE).read_bytes()
    (tmp_path / AUDIT_FILE).write_bytes(content[: -cut - 1])
    for name, before in ends.items():
        (tmp_path / name).write_bytes(before)
    file = AuditFile(tmp_path / AUDIT_FILE)
    assert problems(tmp_path) == []
    file.append([entry("d")])
    assert targets(tmp_path) == ["a", "b", "d"]
    assert "torn" in [one.get("reason", "") for one in read_lines(tmp_path)][2]
    assert problems(tmp_path) == []


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_whole_line_that_the_head_does_not_know_is_kept(tmp_path: Path, end: bytes) -> None:
    file = AuditFile(tmp_path / AUDIT_FILE)
    file.append([entry("a")])
    ends = {name: (tmp_path / name).read_bytes() for name in (HEAD_FILE, ANCHOR_FILE)}
    file.append([entry("b")])
    content = (tmp_path / AUDIT_FILE).read_bytes()
    (tmp_path / AUDIT_FILE).write_bytes(content.removesuffix(b"\n") + end)
    for name, before in ends.items():
        (tmp_path / name).write_bytes(before)
    file = AuditFile(tmp_path / AUDIT_FILE)
    file.append([entry("c")])
    assert targets(tmp_path) == ["a", "b", "c"]
    assert problems(tmp_path) == []


_WRITER = """
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from openclaw_a2a.engine.audit_file import AUDIT_FILE, AuditEntry, AuditFile
file = AuditFile(Path(sys.argv[1]) / AUDIT_FILE, max_bytes=20_000, keep=1000)
number = 0
print("ready", flush=True)
while True:
    at, who = datetime.now(UTC), sys.argv[2]
    batch = [AuditEntry(at, "call", who, target=str(number + one)) for one in range(3)]
    file.append(batch)
    number += 3
"""


def test_writers_that_are_killed_at_any_moment_leave_a_chain_that_holds(tmp_path: Path) -> None:
    for turn in range(6):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", _WRITER, str(tmp_path), f"{turn}-{name}"],
                stdout=subprocess.PIPE,
            )
            for name in ("gateway", "command")
        ]
        try:
            for one in writers:
                assert one.stdout is not None
                one.stdout.readline()
            record_command(tmp_path, "token-created", target="x")
        finally:
            for one in writers:
                one.send_signal(signal.SIGKILL)
                one.wait()
                assert one.stdout is not None
                one.stdout.close()
    record_command(tmp_path, "token-created", target="last")
    assert problems(tmp_path) == []
    lines = list(read_lines(tmp_path))
    assert [one["n"] for one in lines] == list(range(1, len(lines) + 1))
    for who in {one["who"] for one in lines if one["event"] == "call"}:
        numbers = [int(one["target"]) for one in lines if one["who"] == who]
        assert numbers == list(range(len(numbers)))


# ---------------------------------------------------------------- reading


def test_lines_of_earlier_versions_are_read_first(tmp_path: Path) -> None:
    old = {"time": "2025-01-01T00:00:00Z", "event": "call", "requester": "a", "token": "t"}
    for name, target in (("calls-audit.jsonl.1", "1"), ("calls-audit.jsonl", "2")):
        (tmp_path / name).write_text(json.dumps({**old, "target": target}) + "\n", "utf-8")
    AuditFile(tmp_path / AUDIT_FILE).append([entry("3")])
    assert targets(tmp_path) == ["1", "2", "3"]
    assert problems(tmp_path) == []
    chosen = AuditFilter(who="t", since=datetime(2024, 1, 1, tzinfo=UTC))
    found = filter(chosen.accepts, read_lines(tmp_path))
    assert [one["target"] for one in found] == ["1", "2"]


def test_new_lines_are_followed_over_a_rotation(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / AUDIT_FILE, max_bytes=400, keep=9)
    file.append([entry("old")])
    following = follow_lines(tmp_path)
    assert next(following) is None
    for number in range(6):
        file.append([entry(str(number))])
    found = [next(following) for _ in range(6)]
    assert [one and one["target"] for one in found] == [str(number) for number in range(6)]
    assert next(following) is None


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"mine\n")
    (tmp_path / AUDIT_FILE).symlink_to(tmp_path / "victim")
    with pytest.raises(OSError):
        AuditFile(tmp_path / AUDIT_FILE).append([entry("a")])
    assert (tmp_path / "victim").read_bytes() == b"mine\n"


@given(text=st.text(alphabet=st.characters(), max_size=40))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_name_that_a_peer_made_up_breaks_no_line(tmp_path: Path, text: str) -> None:
    for path in tmp_path.iterdir():
        path.unlink()
    names = [text, text + "\ud800", text + "\n" + text, text + "\u2028"]
    AuditFile(tmp_path / AUDIT_FILE).append([entry(one) for one in names])
    assert verify_chain(tmp_path).lines == 4
    assert problems(tmp_path) == []
    assert (tmp_path / AUDIT_FILE).stat().st_size < 8000
