"""One damaged row of the store: its task answers `corrupt-record`, everything else is served."""

import asyncio
import base64
import json
import secrets
import sqlite3
import time
import urllib.error
import urllib.request
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.postgres_server import PostgresServer

Json = Any
DEADLINE_S = 240.0
OF_TASK = "WHERE task = (SELECT number FROM task WHERE id = :id)"
BROKEN = 'CAST(\'{"id":"x","con\' AS BLOB)'

UNREADABLE = {
    "a snapshot that is cut off": f"UPDATE snapshot SET body = {BROKEN} {OF_TASK}",
    "a snapshot that is no task": f"UPDATE snapshot SET body = CAST('[1]' AS BLOB) {OF_TASK}",
    "a snapshot of another task": f"""UPDATE snapshot SET body =
        CAST(replace(CAST(body AS TEXT), :id, 'another') AS BLOB) {OF_TASK}""",
    "a snapshot that is no UTF-8": f"UPDATE snapshot SET body = CAST(replace(CAST(body AS TEXT), "
    f"'ROLE_USER', CAST(x'ff' AS TEXT)) AS BLOB) {OF_TASK}",
    "a history of another shape": f"""UPDATE snapshot SET body = CAST(replace(CAST(body AS TEXT),
        '"history":[', '"history":[7,') AS BLOB) {OF_TASK}""",
    "no snapshot": f"DELETE FROM snapshot {OF_TASK}",
    "an unknown state": "UPDATE task SET state = 77 WHERE id = :id",
    "a time beyond all times": "UPDATE task SET status_at = 9000000000000000000 WHERE id = :id",
    "a binding that is cut off": f"UPDATE task SET binding = {BROKEN} WHERE id = :id",
}


CUT = 'convert_to(\'{"id":"x","con\', \'UTF8\')'
OF_TASK_IN_POSTGRES = "WHERE task = (SELECT number FROM task WHERE id = $1)"
UNREADABLE_IN_POSTGRES = {
    "a snapshot that is cut off": f"UPDATE snapshot SET body = {CUT} {OF_TASK_IN_POSTGRES}",
    "no snapshot": f"DELETE FROM snapshot {OF_TASK_IN_POSTGRES}",
    "an empty snapshot": f"UPDATE snapshot SET body = '' {OF_TASK_IN_POSTGRES}",
    "an unknown state": "UPDATE task SET state = 77 WHERE id = $1",
    "a binding that is cut off": f"UPDATE task SET binding = {CUT} WHERE id = $1",
    "no content": f"DELETE FROM content {OF_TASK_IN_POSTGRES}",
}


def rpc(url: str, method: str, params: Json, version: str = "1.0") -> Json:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"content-type": "application/json", "a2a-version": version}
    request = urllib.request.Request(f"{url}/a2a/jsonrpc", json.dumps(call).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return json.load(error)


def stream(url: str, method: str, params: Json, last_event_id: int | None = None) -> list[Json]:
    """The data of every event until the stream ends."""
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"content-type": "application/json", "a2a-version": "1.0"}
    if last_event_id is not None:
        headers["last-event-id"] = str(last_event_id)
    request = urllib.request.Request(f"{url}/a2a/jsonrpc", json.dumps(call).encode(), headers)
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
        content = response.read().decode()
    if content.startswith("{"):  # refused before the stream began
        return [json.loads(content)]
    lines = content.splitlines()
    return [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]


def send(url: str, message_id: str, **more: Json) -> str:
    said = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": message_id}], **more}
    return rpc(url, "SendMessage", {"message": said})["result"]["task"]["id"]


def code_of(answer: Json) -> str:
    return answer["error"]["data"][0]["metadata"]["code"]


def listed(url: str, **params: Json) -> list[str]:
    """The ids of all pages."""
    found: list[str] = []
    token = ""
    while True:
        page = rpc(url, "ListTasks", {"pageToken": token, **params})["result"]
        found += [task["id"] for task in page["tasks"]]
        token = page["nextPageToken"]
        if not token:
            return found


def is_ready(url: str) -> bool:
    with urllib.request.urlopen(f"{url}/readyz", timeout=DEADLINE_S) as response:
        return json.load(response)["ready"]


def damage(path: Path, statement: str, **values: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        changed = connection.execute(statement, values).rowcount
        assert changed >= 1
        connection.commit()


TASKS = {"channels": {"a2a": {"accounts": {"default": {"agentStyle": "task-generating"}}}}}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_damaged_task_answers_corrupt_record_and_lists_leave_it_out(
    start_gateway: Any, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "state.db"
    gateway = start_gateway({**TASKS, "store": {"kind": "sqlite", "path": str(path)}})
    url = gateway.url
    first, damaged, last = [send(url, f"m-{number}") for number in range(3)]
    gateway.stop()
    damage(path, UNREADABLE[kind], id=damaged)
    gateway.start()

    for method, version in (("GetTask", "1.0"), ("tasks/get", "0.3")):
        answer = rpc(url, method, {"id": damaged, "historyLength": 5}, version)
        if version == "1.0":
            assert code_of(answer) == "corrupt-record"
        else:
            assert answer["error"]["code"] == -32603
        assert str(tmp_path) not in json.dumps(answer)
    assert sorted(listed(url)) == sorted([first, last])
    assert sorted(listed(url, pageSize=1)) == sorted([first, last])
    assert code_of(stream(url, "SubscribeToTask", {"id": damaged}, 0)[-1]) == "corrupt-record"
    assert rpc(url, "GetTask", {"id": first})["result"]["id"] == first
    assert send(url, "m-3")
    assert is_ready(url)
    assert "store.record_damaged" in gateway.output()
    assert damaged in gateway.output()


LARGE = "long " * 60_000
"""A text that lists read by itself, after the page that has its task."""


@pytest.mark.parametrize("kind", [*UNREADABLE, "no content"])
def test_a_large_damaged_task_is_left_out_of_lists(
    start_gateway: Any, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "state.db"
    gateway = start_gateway({**TASKS, "store": {"kind": "sqlite", "path": str(path)}})
    url = gateway.url
    first = send(url, "m-0")
    damaged = send(url, "m-1", parts=[{"text": LARGE}])
    last = send(url, "m-2", parts=[{"text": LARGE}])
    gateway.stop()
    missing = f"DELETE FROM content {OF_TASK}"
    damage(path, {**UNREADABLE, "no content": missing}[kind], id=damaged)
    gateway.start()

    for artifacts in (True, False):
        found = listed(url, pageSize=2, includeArtifacts=artifacts)
        assert sorted(found) == sorted([first, last])
    assert code_of(rpc(url, "GetTask", {"id": damaged})) == "corrupt-record"
    assert rpc(url, "GetTask", {"id": last})["result"]["id"] == last
    assert is_ready(url)


@pytest.mark.slow
@pytest.mark.parametrize("kind", UNREADABLE_IN_POSTGRES)
@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
def test_a_damaged_task_in_postgres_is_corrupt_and_left_out_of_lists(
    start_gateway: Any, postgres: PostgresServer, kind: str, is_large: bool
) -> None:
    is_large = is_large or kind == "no content"
    text = LARGE if is_large else "small"
    schema = f"damaged_{secrets.token_hex(8)}"
    store = {"kind": "postgres", "url": postgres.url(), "schema": schema}
    gateway = start_gateway({**TASKS, "store": store})
    url = gateway.url
    first, damaged, last = [send(url, f"m-{number}", parts=[{"text": text}]) for number in range(3)]

    async def damage_row() -> None:
        connection = await asyncpg.connect(postgres.url(), server_settings={"search_path": schema})
        changed = await connection.execute(UNREADABLE_IN_POSTGRES[kind], damaged)
        assert not changed.endswith(" 0")
        await connection.close()

    gateway.stop()
    asyncio.run(damage_row())
    gateway.start()

    answer = rpc(url, "GetTask", {"id": damaged, "historyLength": 5})
    assert code_of(answer) == "corrupt-record"
    for artifacts in (True, False):
        for size in (1, 50):
            found = listed(url, pageSize=size, includeArtifacts=artifacts)
            assert sorted(found) == sorted([first, last])
    if not is_large:  # of a large one the events are read, and they may be whole
        assert code_of(stream(url, "SubscribeToTask", {"id": damaged}, 0)[-1]) == "corrupt-record"
    assert send(url, "m-3")
    assert is_ready(url)
    assert "store.record_damaged" in gateway.output()


def test_a_damaged_event_ends_its_stream_with_an_error_after_the_events_before_it(
    start_gateway: Any, tmp_path: Path
) -> None:
    path = tmp_path / "state.db"
    gateway = start_gateway({**TASKS, "store": {"kind": "sqlite", "path": str(path)}})
    task_id = send(gateway.url, "m")
    whole = stream(gateway.url, "SubscribeToTask", {"id": task_id}, 0)
    gateway.stop()
    damage(
        path,
        f"UPDATE event SET body = {BROKEN} {OF_TASK} AND sequence = "
        f"(SELECT max(sequence) FROM event {OF_TASK})",
        id=task_id,
    )
    gateway.start()

    events = stream(gateway.url, "SubscribeToTask", {"id": task_id}, 0)

    assert events[:-1] == whole[:-1]
    assert code_of(events[-1]) == "corrupt-record"
    assert rpc(gateway.url, "GetTask", {"id": task_id})["result"]["id"] == task_id


HELD = {"text": "hold"}


@pytest.mark.parametrize(
    "statement",
    [
        UNREADABLE["a snapshot that is cut off"],
        UNREADABLE["a binding that is cut off"],
        f"UPDATE run SET input = {BROKEN} WHERE task = :id",
        f"UPDATE event SET body = {BROKEN} {OF_TASK}",
    ],
)
def test_a_gateway_starts_and_recovers_the_other_runs_beside_a_damaged_one(
    start_gateway: Any, slow_agent: dict[str, object], tmp_path: Path, statement: str
) -> None:
    path = tmp_path / "state.db"
    store = {"kind": "sqlite", "path": str(path)}
    gateway = start_gateway({**TASKS, "store": store, "agents": {"main": slow_agent}})
    url = gateway.url

    def begin(message_id: str) -> str:
        said = {"messageId": message_id, "role": "ROLE_USER", "parts": [HELD]}
        params = {"message": said, "configuration": {"returnImmediately": True}}
        return rpc(url, "SendMessage", params)["result"]["task"]["id"]

    damaged, other = begin("damaged"), begin("other")
    gateway.kill()
    damage(path, statement, id=damaged)
    gateway.start()

    assert rpc(url, "GetTask", {"id": other})["result"]["status"]["state"] == "TASK_STATE_FAILED"
    answer = rpc(url, "GetTask", {"id": damaged})
    if "error" in answer:
        assert code_of(answer) == "corrupt-record"
    else:
        assert answer["result"]["status"]["state"] == "TASK_STATE_FAILED"
    assert is_ready(url)
    gateway.end_programs()  # nothing names the run whose record is damaged, so its program is left


def test_a_damaged_record_file_leaves_the_other_tasks_alone(
    start_gateway: Any, slow_agent: dict[str, object], tmp_path: Path
) -> None:
    folder = tmp_path / "tasks"
    store = {"kind": "json-file", "path": str(folder)}
    gateway = start_gateway({**TASKS, "store": store, "agents": {"main": slow_agent}})
    url = gateway.url
    first = send(url, "echo:first")
    said = {"messageId": "held", "role": "ROLE_USER", "parts": [HELD]}
    params = {"message": said, "configuration": {"returnImmediately": True}}
    damaged = rpc(url, "SendMessage", params)["result"]["task"]["id"]
    gateway.kill()
    name = base64.urlsafe_b64encode(damaged.encode()).rstrip(b"=").decode()
    file = folder / f"{name}.json"
    file.write_bytes(file.read_bytes()[:-20])
    gateway.start()

    answer = rpc(url, "GetTask", {"id": damaged})
    assert code_of(answer) == "corrupt-record"
    assert str(tmp_path) not in json.dumps(answer)
    assert listed(url) == [first]
    assert code_of(stream(url, "SubscribeToTask", {"id": damaged}, 0)[-1]) == "corrupt-record"
    assert code_of(rpc(url, "SendMessage", {"message": said})) == "corrupt-record"
    assert is_ready(url)
    assert str(file) in gateway.output()


class Webhook(BaseHTTPRequestHandler):
    """Takes notifications, and remembers their tokens."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.tokens.append(self.headers["x-a2a-notification-token"])  # type: ignore[attr-defined] - set by the test
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""


NO_UTF8 = "CAST('{\"id\":\"' || x'ff' || '\"}' AS BLOB)"


@pytest.mark.parametrize("body", [BROKEN, NO_UTF8], ids=["cut off", "no UTF-8"])
def test_a_damaged_delivery_is_given_up_and_the_others_are_sent(
    start_gateway: Any, tmp_path: Path, body: str
) -> None:
    path = tmp_path / "state.db"
    push = {"allowPrivate": True, "backoffSeconds": 0.1, "mostBackoffSeconds": 1, "attempts": 1000}
    gateway = start_gateway({**TASKS, "store": {"kind": "sqlite", "path": str(path)}, "push": push})
    url = gateway.url
    with HTTPServer(("127.0.0.1", 0), Webhook, bind_and_activate=False) as server:
        server.tokens = []  # type: ignore[attr-defined] - read by the handler
        server.server_bind()  # not listening yet: both deliveries wait
        address = f"http://127.0.0.1:{server.server_port}/hook"
        tasks = [send(url, name) for name in ("damaged", "whole")]
        for task_id in tasks:
            config = {"taskId": task_id, "id": task_id, "url": address, "token": task_id}
            assert "result" in rpc(url, "CreateTaskPushNotificationConfig", config)
        gateway.kill()
        damage(path, f"UPDATE delivery SET body = {body} WHERE task = :id", id=tasks[0])
        server.server_activate()
        server.timeout = DEADLINE_S
        gateway.start()
        server.handle_request()
        assert server.tokens == [tasks[1]]  # type: ignore[attr-defined] - see above
    # The damaged one may be looked at after the other one was sent. It is logged without a
    # traceback, which `start_gateway` takes for a fault.
    deadline = time.monotonic() + DEADLINE_S
    while has_webhooks(url, tasks[0]) or "damaged" not in gateway.output():
        assert time.monotonic() < deadline, gateway.output()
        time.sleep(0.05)  # another process has to look at it
    assert is_ready(url)


def has_webhooks(url: str, task_id: str) -> bool:
    listed = rpc(url, "ListTaskPushNotificationConfigs", {"taskId": task_id})
    return bool(listed["result"].get("configs"))
