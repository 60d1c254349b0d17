"""The audit log of calls."""

import asyncio
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from openclaw_a2a.calls import audit_log
from openclaw_a2a.calls.audit_log import AuditLog
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.model.call import Caller
from openclaw_a2a.model.ids import AgentId

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CALLER = Caller(AgentId("a"), "host")


def audit(path: Path) -> AuditLog:
    return AuditLog(path, lambda: NOW, Supervisor())


def targets(path: Path) -> list[str]:
    return [json.loads(line)["target"] for line in path.read_text("utf-8").splitlines()]


async def test_a_disk_that_hangs_does_not_block_the_event_loop(tmp_path: Path) -> None:
    """Issue 11: each call opened, appended to and closed the file on the event loop."""
    path = tmp_path / "audit.jsonl"
    os.mkfifo(path)  # opening it hangs until somebody reads
    log = audit(path)
    log.record("call", CALLER, target="b")
    with anyio.fail_after(60):
        await asyncio.sleep(0)
        lines = await asyncio.to_thread(path.read_bytes)
        await log.flush()
    assert json.loads(lines)["target"] == "b"


async def test_lines_keep_their_order_and_are_there_after_a_flush(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "audit.jsonl"
    log = audit(path)
    for number in range(50):
        log.record("call", CALLER, target=str(number))
        if number % 7 == 0:
            await asyncio.sleep(0)
    await log.flush()
    assert targets(path) == [str(number) for number in range(50)]
    assert path.stat().st_mode & 0o077 == 0


async def test_a_caller_that_disconnects_takes_no_line_with_it(tmp_path: Path) -> None:
    log = audit(tmp_path / "audit.jsonl")
    log.record("call", CALLER, target="b")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await log.flush()
    await log.flush()
    assert targets(tmp_path / "audit.jsonl") == ["b"]


async def test_what_is_left_at_the_end_is_written(tmp_path: Path) -> None:
    log = audit(tmp_path / "audit.jsonl")
    log.record("call", CALLER, target="b")
    log.close()
    assert targets(tmp_path / "audit.jsonl") == ["b"]


async def test_a_full_file_is_rotated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "_MAX_BYTES", 100)
    path = tmp_path / "audit.jsonl"
    log = audit(path)
    for target in ("first", "second", "third"):
        log.record("call", CALLER, target=target)
        await log.flush()
    assert targets(tmp_path / "audit.jsonl.1") == ["third"]
    assert not path.exists()


async def test_a_log_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log = audit(tmp_path / "file" / "audit.jsonl")
    log.record("call", CALLER, target="b")
    with anyio.fail_after(60):
        await log.flush()
