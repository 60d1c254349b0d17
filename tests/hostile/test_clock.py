"""The clock is weeks ahead at start: nothing is deleted because of it."""

import json
import sqlite3
import time
from contextlib import closing
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.test_damaged_rows import TASKS, Webhook, rpc, send

Json = Any
DEADLINE_S = 240.0
DAYS = 40 * 86_400 * 1_000_000


def move_to_the_past(path: Path) -> None:
    """What a clock that is 40 days ahead makes of the data, without touching the clock."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE task SET status_at = status_at - {DAYS}")
        connection.execute(f"UPDATE task SET created_at = created_at - {DAYS}")
        connection.execute(f"UPDATE message SET created_at = created_at - {DAYS}")
        connection.execute("DELETE FROM record WHERE kind = 'maintenance'")
        connection.commit()


def wait_for(text: str, gateway: Any, count: int = 1) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while gateway.output().count(text) < count:
        assert time.monotonic() < deadline, gateway.output()
        time.sleep(0.05)  # another process has to do it; nothing here can be awaited


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_clock_that_is_weeks_ahead_at_start_deletes_nothing(
    start_gateway: Any, tmp_path: Path, restarts: int
) -> None:
    path = tmp_path / "state.db"
    gateway = start_gateway(
        {
            **TASKS,
            "store": {"kind": "sqlite", "path": str(path)},
            "retention": {"sweepSeconds": 1},
        }
    )
    url = gateway.url
    ended = send(url, "old")
    gateway.stop()
    move_to_the_past(path)
    for number in range(restarts):
        gateway.start()
        wait_for("maintenance.clock_jump_held", gateway, number + 1)
        assert rpc(url, "GetTask", {"id": ended})["result"]["id"] == ended
        # The message id is known, too: the same message is the same task.
        assert send(url, "old") == ended
        gateway.stop()


def test_a_delivery_that_was_put_off_by_a_wrong_clock_is_sent_within_the_longest_delay(
    start_gateway: Any, tmp_path: Path
) -> None:
    path = tmp_path / "state.db"
    push = {"allowPrivate": True, "backoffSeconds": 0.1, "mostBackoffSeconds": 1, "attempts": 1000}
    gateway = start_gateway({**TASKS, "store": {"kind": "sqlite", "path": str(path)}, "push": push})
    with HTTPServer(("127.0.0.1", 0), Webhook, bind_and_activate=False) as server:
        server.tokens = []  # type: ignore[attr-defined] - read by the handler
        server.server_bind()  # not listening yet: the delivery waits
        address = f"http://127.0.0.1:{server.server_port}/hook"
        task = send(gateway.url, "m")
        config = {"taskId": task, "id": task, "url": address, "token": task}
        assert "result" in rpc(gateway.url, "CreateTaskPushNotificationConfig", config)
        wait_for_row(path, "SELECT 1 FROM delivery WHERE state = 1")
        gateway.kill()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"UPDATE delivery SET next_at = next_at + {DAYS}")
            connection.commit()
        server.server_activate()
        server.timeout = DEADLINE_S
        gateway.start()
        server.handle_request()
        assert server.tokens == [task]  # type: ignore[attr-defined] - see above


def wait_for_row(path: Path, query: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    with closing(sqlite3.connect(path)) as connection:
        while connection.execute(query).fetchone() is None:
            assert time.monotonic() < deadline, query
            time.sleep(0.05)  # another process has to do it; nothing here can be awaited


def test_a_sweep_says_how_much_it_deleted(start_gateway: Any, tmp_path: Path) -> None:
    gateway = start_gateway({**TASKS, "retention": {"sweepSeconds": 1, "endedSeconds": 1}})
    ended = send(gateway.url, "short-lived")
    wait_for("maintenance.purged", gateway)
    assert "tasks=1" in gateway.output()
    answer = rpc(gateway.url, "GetTask", {"id": ended})
    assert "task-not-found" in json.dumps(answer)
