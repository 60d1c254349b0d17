"""A store that takes no writes or is damaged: `/readyz` and `doctor` say so, and it is mended."""

import json
import os
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.test_damaged_rows import TASKS, code_of, rpc, send

PROGRAM = str(Path(sys.executable).with_name("openclaw-a2a"))
DEADLINE_S = 240.0
Json = Any


def readiness(url: str) -> tuple[int, Json]:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=DEADLINE_S) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def wait_until(is_so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.05)  # another process has to do it; nothing here can be awaited


def doctor(gateway: Any) -> dict[str, Json]:
    checked = subprocess.run(
        [PROGRAM, "doctor", "--json", "--config", str(gateway.config)],
        capture_output=True,
        timeout=DEADLINE_S,
        env={**os.environ, "HOME": str(gateway.home)},
    )
    return {one["check"]: one for one in json.loads(checked.stdout)["findings"]}


def message(text: str) -> Json:
    return {"message": {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}}


@pytest.mark.parametrize("kind", ["sqlite", "json-file"])
def test_a_store_that_becomes_unwritable_is_reported_and_goes_on_when_it_is_mended(
    start_gateway: Any, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "store" / ("state.db" if kind == "sqlite" else "tasks")
    gateway = start_gateway({**TASKS, "store": {"kind": kind, "path": str(path)}})
    url = gateway.url
    before = send(url, "before")
    away = path.with_name("away")
    path.rename(away)  # every write fails: SQLite calls it a read-only database

    assert code_of(rpc(url, "SendMessage", message("meanwhile"))) == "store-unavailable"
    status, ready = readiness(url)
    assert status == 503
    assert str(path) in ready["reasons"][0]
    found = doctor(gateway)["store"]
    assert found["verdict"] == "broken", found
    assert rpc(url, "GetTask", {"id": before})["result"]["id"] == before

    away.rename(path)
    wait_until(lambda: readiness(url)[0] == 200, "readiness")
    assert send(url, "after")
    assert rpc(url, "GetTask", {"id": before})["result"]["id"] == before
    gateway.stop()
    [audit] = gateway.home.rglob("audit.jsonl")
    lines = [json.loads(line) for line in audit.read_text("utf-8").splitlines()]
    submitted = [one for one in lines if one["event"] == "task-submitted"]
    assert [one["outcome"] for one in submitted] == ["ok", "failed", "ok"]
    assert submitted[1]["reason"] == "store-unavailable"


def damage_pages(path: Path, table: str) -> None:
    """Overwrite the pages of a table, as a failing disk does."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page_size = connection.execute("PRAGMA page_size").fetchone()[0]
        root = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)
        ).fetchone()[0]
    with path.open("r+b") as file:
        file.seek((root - 1) * page_size)
        file.write(b"\xa5" * page_size)


def test_a_damaged_page_is_reported_and_gone_when_the_page_is_restored(
    start_gateway: Any, tmp_path: Path
) -> None:
    path = tmp_path / "store" / "state.db"
    gateway = start_gateway({**TASKS, "store": {"kind": "sqlite", "path": str(path)}})
    url = gateway.url
    task = send(url, "m")
    gateway.stop()
    whole = path.read_bytes()
    damage_pages(path, "snapshot")
    gateway.start()

    assert code_of(rpc(url, "GetTask", {"id": task})) == "store-unavailable"
    status, ready = readiness(url)
    assert status == 503
    assert "damaged" in ready["reasons"][0]
    found = doctor(gateway)["store"]
    assert found["verdict"] == "broken", found
    assert "damaged" in found["detail"]

    gateway.stop()
    for file in path.parent.glob("state.db-*"):
        file.unlink()
    path.write_bytes(whole)
    gateway.start()
    assert rpc(url, "GetTask", {"id": task})["result"]["id"] == task


def test_a_file_that_is_no_database_is_refused_with_what_to_do(
    start_gateway: Any, tmp_path: Path
) -> None:
    path = tmp_path / "store" / "state.db"
    gateway = start_gateway({**TASKS, "store": {"kind": "sqlite", "path": str(path)}})
    gateway.stop()
    path.write_bytes(b"\xa5" * path.stat().st_size)
    ended = subprocess.run(
        [PROGRAM, "up", "--config", str(gateway.config), "--port", str(gateway.port)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, "HOME": str(gateway.home)},
    )
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    assert str(path) in ended.stderr
    assert "backup" in ended.stderr
    assert doctor(gateway)["store"]["verdict"] == "broken"
